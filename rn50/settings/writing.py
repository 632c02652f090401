"""Write a configuration file, completely or not at all: a new one, or one with a section replaced.

Here alone a name, a value or a remark becomes what a shell will source.
"""

import dataclasses
import pathlib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rn50 import files
from rn50.errors import UserError, excerpt
from rn50.settings.config import Config, of_document
from rn50.settings.document import Document
from rn50.settings.fields import VARIABLE_OF, VARIABLES

_SECTIONS = {
    "hyperparameters": re.compile(r"^# --- hyperparameters\b.*?(?=^# --- )", re.MULTILINE | re.DOTALL),
    "input_pipeline": re.compile(r"^# --- input pipeline\b.*?(?=^# --- |\Z)", re.MULTILINE | re.DOTALL),
}
_FORM = "give a file in the form of those in configs/, as rn50 config new writes it"
_ASSIGNMENT = re.compile(rb"^[ \t]*(?:export[ \t]+)?[A-Za-z_][A-Za-z0-9_]*=", re.MULTILINE)
GROUP = tuple(VARIABLE_OF.values())
"""Names of the hyperparameters, which decide convergence together."""
_CONTENT = {"hyperparameters": "hyperparameters", "input_pipeline": "variables of the input pipeline"}
Line = tuple[str, str, str]
"""Name, value and reason, which may be empty."""


def is_name(name: str) -> bool:
    """Return True for the name of a variable of a shell."""
    return name.isascii() and name.isidentifier()


def refuse_impossible(name: str, value: str) -> None:
    """Raise UserError if the name is none of a variable, or the value is not one printable line."""
    if not is_name(name) or not value.isprintable():
        problem = "not the name of a variable and one line of text"
        raise UserError(excerpt(ascii(f"{name}={value}")), problem, "correct it")


def exported(name: str, value: str, overridable: bool = False) -> str:
    """Return the line that exports a variable; if ``overridable``, a value of the environment comes first.
    Raises UserError as ``refuse_impossible`` does."""
    refuse_impossible(name, value)
    word = shlex.quote(value)
    if overridable:
        word = f'"${{{name}:-{word}}}"' if word == value else f"${{{name}:-{word}}}"
    return f"export {name}={word}"


def remark(text: str) -> str:
    """Return text as one printable line of at most 200 characters, because names from other files must not
    end the comment that they stand in."""
    return excerpt("".join(character if character.isprintable() else " " for character in text), 200)


@dataclass(frozen=True)
class Base:
    """A configuration file: the text before, inside and behind one of its sections, and its configuration."""

    document: Document
    section: str
    before: str
    inside: str
    behind: str
    config: Config


def split(document: Document, section: str = "hyperparameters") -> Base:
    """Split a configuration file around ``section``, "hyperparameters" or "input_pipeline".

    Raises UserError if the file lacks the section, or cannot be run.
    """
    match = _SECTIONS[section].search(document.text)
    if match is None:
        where = " before another one" if section == "hyperparameters" else ""
        raise UserError(document.path, f"no section `# --- {section.replace('_', ' ')}`{where}", _FORM)
    before, behind = document.text[: match.start()], document.text[match.end() :]
    return Base(document, section, before, match.group(), behind, of_document(document))


def hyperparameters(config: Config) -> dict[str, str]:
    """Return the hyperparameters of a configuration, by name of the variable."""
    return {name: text for name, text in config.as_environment().items() if name in GROUP}


def render(
    base: Base, title: str, rows: Sequence[tuple[str, str]], values: Mapping[str, str]
) -> tuple[str, Config]:
    """Return the text and the configuration of ``base`` with these hyperparameters, which include BATCHSIZE,
    under a new header of (name, text) ``rows``, which replaces all that stood before the section. Raises as
    ``check`` does."""
    match = re.search(r"^#   machine +(.+)$", base.before, re.MULTILINE)
    machine = match.group(1) if match else f"that of {base.document.path.name}"
    run = [("command", "CONFIG_FILE=/path/to/this/file ./run_and_time.sh"), ("machine", machine)]
    ranks = base.config.ranks
    batch = int(values["BATCHSIZE"]) * ranks
    reasons = {"BATCHSIZE": f"per rank; {batch} in all, on {ranks} ranks"}
    lines = [(name, values[name], reasons.get(name, "")) for name in GROUP if name in values]
    text = beginning(f"at a global batch size of {batch}, {title}.", [*run, *rows], lines) + base.behind
    return text, check(base, text, values)


def beginning(about: str, rows: Sequence[tuple[str, str]], lines: Iterable[Line]) -> str:
    """Return the text of a file up to the end of its hyperparameters, ``lines``; ``about`` ends the line
    "# ResNet-50 ..."."""
    header = ["# shellcheck shell=bash", f"# ResNet-50 {remark(about)}", "#", *header_lines(rows), "", ""]
    title = "hyperparameters (one group: together they decide convergence)"
    return "\n".join(header) + section_text(title, lines)


def header_lines(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Return the lines of a file's header."""
    return [f"#   {name:<11} {remark(text)}" for name, text in rows]


def heading(title: str) -> str:
    """Return the line that begins a section."""
    return f"# --- {title} ".ljust(80, "-") + "\n"


def section_text(title: str, lines: Iterable[Line]) -> str:
    """Return the text of a section."""
    text = heading(title)
    for name, value, reason in lines:
        line = exported(name, value, overridable=name == "DATADIR")
        text += f"{line:<35} # {remark(reason)}\n" if reason else f"{line}\n"
    return text + "\n"


def check(base: Base, text: str, values: Mapping[str, str]) -> Config:
    """Return the configuration in ``text``.

    Raises UserError if it cannot be run, or if it is not ``base`` with these values in its section.
    """
    config, before = of_document(Document(base.document.path, text)), base.config
    kept = dataclasses.replace(config, **{base.section: getattr(before, base.section)}) == before
    values_read = {name: VARIABLES[name].read(value) for name, value in values.items()}
    has = {name: VARIABLES[name].read(value) for name, value in config.as_environment().items()}
    if not kept or not values_read.items() <= has.items():
        problem = f"sets {_CONTENT[base.section]} outside of their section too"
        raise UserError(base.document.path, problem, _FORM)
    return config


def write(text: str, output: pathlib.Path, force: bool) -> None:
    """Write a configuration completely or not at all.

    Raises UserError if the file exists and ``force`` is not given, or if it cannot be written.
    """
    refuse_output(output, force)
    files.write(output, text.encode("utf-8", "surrogateescape"), *_overwriting(force))


def refuse_output(output: pathlib.Path, force: bool) -> None:
    """Raise UserError if ``write`` would refuse to replace an existing file. Call it before measuring, so
    that no measurement is lost. ``force`` replaces configuration files only."""
    files.refuse_to_replace(output, files.TEXT, *_overwriting(force))
    if force and output.exists():
        content = files.read_bytes(output)
        if content.strip() and not _ASSIGNMENT.search(content):
            problem = "is not a configuration file, and --force replaces no other"
            raise UserError(output, problem, "give another --output")


def _overwriting(force: bool) -> tuple[str, str]:
    """Return what an output may overwrite, and the remedy if it may not."""
    if force:
        return files.ANY, "give another --output"
    return files.NOTHING, "give another --output, or --force"

"""Write configuration files: a new one (``beginning``, ``section_text``), or an existing one with one section
replaced (``split``, ``render``, ``check``).

``rn50 config new``, ``borrow``, ``search`` and ``tune`` use it, and nothing else makes text that a shell will
source: names and values are quoted here, and remarks kept to one line.
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

# A section begins with its heading and ends before the next one. Hyperparameters are never the last section.
# A heading: # --- hyperparameters (one group: together they decide convergence) -----------
_SECTIONS = {
    "hyperparameters": re.compile(r"^# --- hyperparameters\b.*?(?=^# --- )", re.MULTILINE | re.DOTALL),
    "input_pipeline": re.compile(r"^# --- input pipeline\b.*?(?=^# --- |\Z)", re.MULTILINE | re.DOTALL),
}
_FORM = "give a file in the form of those in configs/, as rn50 config new writes it"
_DIVISION = re.compile(r"^export SUBMISSION_DIVISION=.*$", re.MULTILINE)
# A line that assigns, as in "export LR=10.5". Only a file with such a line is a configuration file.
_ASSIGNMENT = re.compile(rb"^[ \t]*(?:export[ \t]+)?[A-Za-z_][A-Za-z0-9_]*=", re.MULTILINE)
GROUP = tuple(VARIABLE_OF.values())
"""Names of the variables of the hyperparameters, which decide convergence together."""
_CONTENT = {"hyperparameters": "hyperparameters", "input_pipeline": "variables of the input pipeline"}
"""Section -> words for its variables in an error."""
Entry = tuple[str, str]
"""Name and text of an entry of the header."""
Line = tuple[str, str, str]
"""Name and value of a variable, and the reason for the value, which may be empty."""


def is_name(name: str) -> bool:
    """Return True if a variable of a shell may have this name."""
    return name.isascii() and name.isidentifier()


def refuse_impossible(name: str, value: str) -> None:
    """Raise UserError if ``name`` cannot be that of a variable, or ``value`` is not one printable line."""
    if not is_name(name) or not value.isprintable():
        problem = "not the name of a variable and one line of text"
        raise UserError(excerpt(ascii(f"{name}={value}")), problem, "correct it")


def exported(name: str, value: str, overridable: bool = False) -> str:
    """Return the line that exports a variable. If ``overridable``, the line keeps a value that the
    environment has already. Raises UserError as ``refuse_impossible`` does."""
    refuse_impossible(name, value)
    word = shlex.quote(value)
    # DATADIR="${DATADIR:-/data}"; if the value needs quotes, DATADIR=${DATADIR:-'/my data'}.
    if overridable:
        word = f'"${{{name}:-{word}}}"' if word == value else f"${{{name}:-{word}}}"
    return f"export {name}={word}"


def remark(text: str) -> str:
    """Return text as one printable line of at most 200 characters, for a comment. A line break, as in a name
    from another file, would end the comment, and a shell would run what follows."""
    return excerpt("".join(character if character.isprintable() else " " for character in text), 200)


@dataclass(frozen=True)
class Base:
    """A configuration file of which one ``section`` is to be replaced: the text ``before``, ``inside`` and
    ``behind`` the section, and the configuration that the whole file makes."""

    document: Document
    section: str
    before: str
    inside: str
    behind: str
    config: Config


def split(document: Document, section: str = "hyperparameters") -> Base:
    """Split a configuration file around ``section``, "hyperparameters" or "input_pipeline".

    Raises UserError if the file lacks the section, or its configuration cannot be run.
    """
    match = _SECTIONS[section].search(document.text)
    if match is None:
        where = " before another one" if section == "hyperparameters" else ""
        raise UserError(document.path, f"no section `# --- {section.replace('_', ' ')}`{where}", _FORM)
    before, behind = document.text[: match.start()], document.text[match.end() :]
    return Base(document, section, before, match.group(), behind, of_document(document))


def hyperparameters(config: Config) -> dict[str, str]:
    """Return variable -> text of the hyperparameters of a configuration."""
    return {name: text for name, text in config.as_environment().items() if name in GROUP}


def render(base: Base, title: str, rows: Sequence[Entry], values: Mapping[str, str]) -> tuple[str, Config]:
    """Replace the hyperparameters of ``base`` and everything before them. Return the new text, and the
    configuration that it makes. If the values break a rule of the closed division, the text sets
    SUBMISSION_DIVISION=open.

    ``values`` are the new hyperparameters, variable -> text; BATCHSIZE is among them. The new header has
    ``title``, command and machine, then the entries ``rows``. Raises UserError as ``check`` does.
    """
    # An entry of the header: #   machine     any CPU; two cores or more
    match = re.search(r"^#   machine +(.+)$", base.before, re.MULTILINE)
    machine = match.group(1) if match else f"that of {base.document.path.name}"
    run = [("command", "CONFIG_FILE=/path/to/this/file ./run_and_time.sh"), ("machine", machine)]
    ranks = base.config.ranks
    batch = int(values["BATCHSIZE"]) * ranks
    reasons = {"BATCHSIZE": f"per rank; {batch} in all, on {ranks} ranks"}
    lines = [(name, values[name], reasons.get(name, "")) for name in GROUP if name in values]
    text = beginning(f"at a global batch size of {batch}, {title}.", [*run, *rows], lines) + base.behind
    text_of_open, replaced = _DIVISION.subn(exported("SUBMISSION_DIVISION", "open"), text)
    text_of_open += "" if replaced else exported("SUBMISSION_DIVISION", "open") + "\n"
    config = check(base, text_of_open, values)
    # Without departures the division of the base stays.
    return (text_of_open, config) if config.departures else (text, check(base, text, values))


def beginning(about: str, rows: Sequence[Entry], lines: Iterable[Line]) -> str:
    """Return the text of a file from its first line to the end of its section of hyperparameters.

    ``about`` completes the line "# ResNet-50 ...", ``rows`` are the entries of the header, and
    ``lines`` the hyperparameters.
    """
    header = ["# shellcheck shell=bash", f"# ResNet-50 {remark(about)}", "#", *header_lines(rows), "", ""]
    title = "hyperparameters (one group: together they decide convergence)"
    return "\n".join(header) + section_text(title, lines)


def header_lines(rows: Sequence[Entry]) -> list[str]:
    """Return the lines of the header for these entries."""
    return [f"#   {name:<11} {remark(text)}" for name, text in rows]


def heading(title: str) -> str:
    """Return the line that begins a section, with its line break."""
    return f"# --- {title} ".ljust(80, "-") + "\n"


def section_text(title: str, lines: Iterable[Line]) -> str:
    """Return the text of a section: heading, an export for each of ``lines``, an empty line."""
    text = heading(title)
    for name, value, reason in lines:
        line = exported(name, value, overridable=name == "DATADIR")
        text += f"{line:<35} # {remark(reason)}\n" if reason else f"{line}\n"
    return text + "\n"


def check(base: Base, text: str, values: Mapping[str, str]) -> Config:
    """Return the configuration that the new ``text`` of the file ``base`` makes.

    Raises UserError if it cannot be run. Raises UserError too if anything but ``base.section`` and the
    division has changed, or if ``values`` (variable -> text) are not in effect, because the file sets the
    variables again outside of the section.
    """
    config = of_document(Document(base.document.path, text))
    # With its old section and division the new configuration must equal the old one.
    run = dataclasses.replace(config.run, division=base.config.run.division)
    old = {"run": run, base.section: getattr(base.config, base.section)}
    with_old_section = dataclasses.replace(config, **old)
    expected = {name: VARIABLES[name].read(value) for name, value in values.items()}
    actual = {name: VARIABLES[name].read(value) for name, value in config.as_environment().items()}
    if with_old_section != base.config or not expected.items() <= actual.items():
        problem = f"sets {_CONTENT[base.section]} outside of their section too"
        raise UserError(base.document.path, problem, _FORM)
    return config


def write(text: str, output: pathlib.Path, force: bool) -> None:
    """Write a configuration completely or not at all.

    Raises UserError if the file exists and ``force`` is not given, or if it cannot be written.
    """
    refuse_output(output, force)
    # surrogateescape: the text of an existing file may have bytes that are not UTF-8.
    files.write(output, text.encode("utf-8", "surrogateescape"), *_overwriting(force))


def refuse_output(output: pathlib.Path, force: bool) -> None:
    """Raise UserError if ``output`` exists and ``write`` may not replace it: ``force`` replaces configuration
    files, and no other. A verb calls this before it measures, so that no measurement is lost."""
    files.refuse_to_replace(output, files.TEXT, *_overwriting(force))
    if force and output.exists():
        content = files.read_bytes(output)
        if content.strip() and not _ASSIGNMENT.search(content):
            problem = "is not a configuration file, and --force replaces no other"
            raise UserError(output, problem, "give another --output")


def _overwriting(force: bool) -> tuple[str, str]:
    """Return (files that an output may overwrite, remedy for an error if it may not)."""
    if force:
        return files.ANY, "give another --output"
    return files.NOTHING, "give another --output, or --force"

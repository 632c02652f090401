"""Replace one section of a configuration file. The file is read without a shell, and written completely or
not at all."""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rn50 import files
from rn50.errors import UserError, UserErrors
from rn50.settings.config import Config, from_environment
from rn50.settings.fields import VARIABLE_OF, VARIABLES
from rn50.settings.shell import assignments
from rn50.settings.shell.exports import exported, remark

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


@dataclass(frozen=True)
class Base:
    """A configuration file: the text before, inside and behind one of its sections, and its configuration."""

    file: pathlib.Path
    before: str
    inside: str
    behind: str
    config: Config
    section: str


def read(file: pathlib.Path, section: str = "hyperparameters", text: str | None = None) -> Base:
    """Read a configuration file and split it around ``section`` ("hyperparameters" or "input_pipeline").
    With ``text``, that is read in place of the file, which need not exist.

    Raises UserError if the file cannot be read, lacks the section, or cannot be run.
    """
    whole = assignments.text_of(file) if text is None else text
    match = _SECTIONS[section].search(whole)
    if match is None:
        where = " before another one" if section == "hyperparameters" else ""
        raise UserError(file, f"no section `# --- {section.replace('_', ' ')}`{where}", _FORM)
    parts = whole[: match.start()], match.group(), whole[match.end() :]
    return Base(file, *parts, configuration(file, text), section)


def configuration(file: pathlib.Path, text: str | None = None) -> Config:
    """Read a configuration without a shell, in an empty environment; ``text`` as in ``read``."""
    try:
        return from_environment(assignments.read(file, text).values, str(file))
    except UserError as error:
        raise UserErrors(*(UserError(file, line) for line in error.lines)) from None


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
    machine = match.group(1) if match else f"that of {base.file.name}"
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
    config, before = configuration(base.file, text), base.config
    kept = dataclasses.replace(config, **{base.section: getattr(before, base.section)}) == before
    asked = {name: VARIABLES[name].read(value) for name, value in values.items()}
    has = {name: VARIABLES[name].read(value) for name, value in config.as_environment().items()}
    if not kept or not asked.items() <= has.items():
        raise UserError(base.file, f"sets {_CONTENT[base.section]} outside of their section too", _FORM)
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

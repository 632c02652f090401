"""The configuration that a command line names, with the values of its options ``--set NAME=VALUE``.

``read`` returns it as a ``Config``. ``file_in`` and ``write`` make a configuration file of it, which scripts
source.
"""

import contextlib
import dataclasses
import functools
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rn50 import files, process
from rn50.errors import UserError, did_you_mean, excerpt
from rn50.gathered import differing
from rn50.settings import header
from rn50.settings.config import Config, from_environment, of_document
from rn50.settings.document import Document, absolute_paths, find, is_named, source, system_of, systems
from rn50.settings.fields import KNOWN_NAMES, RUNS_OWN_NAMES, VARIABLES
from rn50.settings.libraries import HARMLESS, is_passed_through
from rn50.settings.writing import exported, refuse_impossible, remark

_LONGEST = 100
"""Most characters of the name of a system. It becomes the name of a folder, for which file systems allow 255
bytes."""
_COPY = "change a copy of the file"
"""Remedy in errors about values of --set."""
_PLATFORM = "SUBMISSION_PLATFORM"
"""Variable with the name of the system in the log."""
_PART = re.compile(r"\w+=[A-Za-z0-9_.-]*", re.ASCII)
"""Part of the name of a system that stands for a value of --set."""
_SOURCES = re.compile(r"^\s*(\.|source)\s", re.MULTILINE)
"""Line that sources another file, such as ``. ./common.sh``."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """The configuration that a user chose: a file, ``values`` of ``--set`` (each NAME=VALUE), and an
    environment, by default that of this process. A shell sources the file when a property first needs it, and
    only once."""

    document: Document
    values: Sequence[str] = ()
    environ: Mapping[str, str] = dataclasses.field(default_factory=lambda: process.environment())

    @functools.cached_property
    def sourced(self) -> dict[str, str]:
        """Variables of ``environ`` and of the file, which wins where both set one.

        Raises UserError if the file cannot be sourced.
        """
        # The shell sources the file in the file's folder: a relative path of ``environ`` would change there.
        return self.document.sourced({**self.environ, **absolute_paths(self.environ)})

    @functools.cached_property
    def changes(self) -> dict[str, str]:
        """Variable -> text of ``values``, without the values that the file sets anyway.

        Raises UserError for a variable that no configuration can set, or that differs from run to run. Raises
        it also if the file cannot be sourced, or ``system`` is longer than ``_LONGEST``.
        """
        texts = dict(map(_pair, self.values))
        sourced = self.absolute if texts else {}  # without --set the file need not be sourced
        # Parsed values are compared: LR=2 does not change LR=2.0.
        changes = {name: text for name, text in texts.items() if _value(name, texts) != _value(name, sourced)}
        system = _system(self.document, changes)
        if changes and len(system) > _LONGEST:
            raise UserError("--set", f"the system would be called {excerpt(system)}", _COPY)
        return changes

    @property
    def system(self) -> str:
        """Name of the system that the file configures with these values, like DEMO_CPU+LR=1."""
        return _system(self.document, self.changes)

    @property
    def absolute(self) -> dict[str, str]:
        """``sourced`` with absolute paths. A relative path of the file begins in the root of this repository,
        because the scripts run there."""
        return {**self.sourced, **absolute_paths(self.sourced, files.ROOT)}

    @functools.cached_property
    def config(self) -> Config:
        """The configuration as a ``Config``. Raises UserError as ``changes`` does, or if it cannot be run."""
        variables = {**self.absolute, "CONFIG_FILE": str(self.document.path.resolve())}
        return from_environment(changed(variables, self.changes), self.document)


def read(
    name: str | None, values: Sequence[str] = (), environ: Mapping[str, str] | None = None, system: str = ""
) -> Config:
    """Return the configuration ``name``, a path or the name of a system of configs/. The ``values`` of --set,
    each NAME=VALUE, replace those of the file. ``environ`` is by default the environment of this process.

    Without a name and values, ``environ`` itself is the configuration if it sets every required variable, as
    after `. FILE`. Otherwise CONFIG_FILE or DGXSYSTEM names the configuration, else ``system``, a name like
    DEMO_CPU+LR=1.

    Raises UserError if there is no such configuration, or it cannot be sourced or run.
    """
    environ = process.environment() if environ is None else environ
    required = [variable for variable in VARIABLES.values() if variable.default is dataclasses.MISSING]
    # ``given`` returns (name, text), with None for the text of a variable that is not set. A required
    # variable that the run does not read need not be set.
    is_complete = all(variable.given(environ)[1] or not variable.is_read(environ) for variable in required)
    if is_complete and not name and not values:
        return of_scripts(environ)
    if not is_named(name) and (words := arguments(system)) != "CONFIG":
        name, *of_system = words.split(" --set ")
        values = (*of_system, *values)
    return Choice(find(name), values, environ).config


def of_scripts(environ: Mapping[str, str]) -> Config:
    """Return the configuration of an environment into which a script has sourced CONFIG_FILE.

    Raises UserError if it cannot be run.
    """
    file = environ.get("CONFIG_FILE")  # a rank on another machine may not see the file
    return from_environment(environ, Document(Path(file)) if file and os.path.exists(file) else None)


def differences(first: Config, second: Config) -> Iterator[tuple[str, str, str]]:
    """Yield (variable, value of ``first``, value of ``second``) of each value that differs, also of variables
    of libraries. Names of the system, and values that differ from run to run, are left out."""
    values = []
    for config in (first, second):
        passed = {name: text for name, text in config.environment.items() if is_passed_through(name)}
        values.append({**config.as_environment(), **passed})
    left_out = {*RUNS_OWN_NAMES, "DGXSYSTEM", _PLATFORM}
    return (difference for difference in differing(*values) if difference[0] not in left_out)


def against(first: Choice, words: Sequence[str]) -> Choice:
    """Return the configuration that ``words``, the words of the option ``--against``, describe: the name of a
    configuration, by default that of ``first``, and values NAME=VALUE, which are added to those of ``first``.

    Raises UserError if two configurations are named, no value differs from ``first``, or both configurations
    have one name.
    """
    values = [word for word in words if re.match(r"\w+=", word)]
    for word in values:
        _pair(word, "--against")
    option = f"--against {excerpt(' '.join(words))}"
    names = [word for word in words if word not in values]
    if len(names) > 1:
        raise UserError(option, "two configurations", "name one, and values as NAME=VALUE")
    document = find(names[0]) if names else first.document
    # Both configurations have the values of --set.
    second = dataclasses.replace(first, document=document, values=(*first.values, *values))
    if not any(differences(first.config, second.config)):
        remedy = "name another configuration, or a value that differs"
        raise UserError(option, f"has every value that {first.system} has", remedy)
    if second.system == first.system:
        raise UserError(option, f"a file that is called {first.system} too", "give it another name")
    return second


def _value(name: str, environ: Mapping[str, str]) -> Any:
    """Return the parsed value that a variable has in an environment, or its text if rn50 does not read it or
    cannot parse it."""
    variable = VARIABLES.get(name)
    with contextlib.suppress(ValueError):
        if variable:
            _, text = variable.given({**environ, **absolute_paths(environ)})
            # {}, no values of other variables: with some of them a run does not read this variable.
            return variable.value(text, {})
    return environ.get(name)


def _pair(word: str, option: str = "--set") -> tuple[str, str]:
    """Return name and value of ``word``, the value of ``option``. Raises UserError if no option can set the
    variable."""
    name, equals, value = word.partition("=")
    shown = excerpt(word)
    if not equals or not value.isprintable():
        example = f"{word}=1" if word in VARIABLES else "LR=1"
        raise UserError(f"{option} {shown}", "no NAME=VALUE", f"write {option} {example}")
    if name in RUNS_OWN_NAMES:
        problem = "no part of a configuration, because the runs of one result may differ in it"
        raise UserError(f"{option} {shown}", problem, f"put it in front of the command: {shown} rn50 ...")
    if name not in KNOWN_NAMES and not is_passed_through(name):
        meant = did_you_mean(name, KNOWN_NAMES) or "rn50 config show lists all"
        raise UserError(f"{option} {shown}", "no such variable", meant)
    refuse_impossible(name, value)
    return name, value


def changed(sourced: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Return the variables ``sourced`` from a file with those of --set, ``changes``. SUBMISSION_PLATFORM gets
    the changes as a suffix, so that no log of a changed configuration looks like one of the file."""
    # A relative path of --set begins in the working directory of the user.
    variables = {**sourced, **changes, **absolute_paths(changes)}
    if changes:
        platform = variables.get(_PLATFORM) or variables.get("DGXSYSTEM", "")
        variables[_PLATFORM] = " ".join([platform, *_parts(changes)])
    return variables


def other_batch(other: int | None, where: str, config: Config) -> Iterator[str]:
    """Yield a sentence if ``other``, the global batch size for which the learning rate of ``config`` was
    chosen, is not that of ``config``. ``where`` says in words which file or result has it."""
    size = config.global_batch_size
    if other != size:
        sizes = f"{other} {where}, {size} here, for which its learning rate was not chosen"
        # Published recipes are of ImageNet only.
        recipes = f"; rn50 borrow --suggest --global-batch-size {size} has others"
        others = recipes if config.is_imagenet else ""
        yield f"global batch size: {sizes}, so epochs are not comparable{others}"


def unchosen(config: Config) -> Iterator[tuple[str, str]]:
    """Yield (variable, sentence) for each value that does not fit one that replaces the file's: the learning
    rate of the file with another global batch size, as ``other_batch`` says it; another number of epochs or
    other evaluations, with which the last epochs are not trained."""
    with contextlib.suppress(UserError):  # a file may be complete only with --set
        if not config.document:  # the environment alone is the configuration
            return
        written = of_document(config.document)
        if written.hyperparameters.learning_rate == config.hyperparameters.learning_rate:
            texts = other_batch(written.global_batch_size, f"in {config.document.path.name}", config)
            yield from (("LR", text) for text in texts)
        h, last = config.hyperparameters, config.evaluation_epochs[-1]
        epochs = (h.num_epochs, last)
        if last < h.num_epochs and epochs != (
            written.hyperparameters.num_epochs,
            written.evaluation_epochs[-1],
        ):
            evaluations = f"EVAL_OFFSET={h.eval_offset}, EVAL_PERIOD={h.eval_period}"
            end = f"{h.num_epochs}, but a run ends after epoch {last}, the last that is evaluated"
            yield "NUMEPOCHS", f"{end} ({evaluations}); lower EVAL_PERIOD, or set TARGET=none"


def _parts(changes: Mapping[str, str]) -> list[str]:
    """Return NAME=value of each change, with ``_`` for whatever a name of a folder should not have."""
    return [f"{variable}={re.sub(r'[^A-Za-z0-9_.-]+', '_', value)}" for variable, value in changes.items()]


def _system(document: Document, changes: Mapping[str, str]) -> str:
    """Return the name of the system with ``changes``, like DEMO_CPU+LR=1."""
    return "+".join([system_of(document.path), *_parts(changes)])


def arguments(system: str) -> str:
    """Return the arguments that name a system on the command line: ``DEMO_CPU --set LR=1`` for DEMO_CPU+LR=1.

    Return the word CONFIG if the file of the system is not in ``configs/``, or if the name is not in the form
    that ``Choice.system`` has: from a log or from weights, it might hold characters that a shell would
    interpret. Return it also for a variable that could make a process run a stranger's code.
    """
    base, *parts = system.split("+")
    names = {part.partition("=")[0] for part in parts}
    if base not in systems() or not all(map(_PART.fullmatch, parts)) or names - VARIABLES.keys() - HARMLESS:
        return "CONFIG"
    return re.sub(r"\+(\w+=)", r" --set \1", system)


@contextlib.contextmanager
def file_in(into: Path | str | None, choice: Choice) -> Iterator[tuple[Path, Path]]:
    """Yield (configuration file, folder for the output of a command). The folder is ``into``, by default
    ``results/SYSTEM``. The file is that of the configuration if ``--set`` changes nothing, else one that
    ``write`` makes in the folder.

    If at the end the folder holds nothing new but this file, because the command was refused, everything is
    put back: the file gets the content that it had before, or is removed with the folders that were made.
    """
    folder = Path(into or files.ROOT / "results" / choice.system)
    if not choice.changes:
        yield choice.document.path, folder
        return
    file = _file(folder, choice)
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    names_before = set(folder.glob("*"))
    content_before = files.read_bytes(file) if file in names_before else None
    try:
        yield write(folder, choice), folder
    finally:
        if set(folder.glob("*")) - names_before <= {file}:  # at most the file is new
            if content_before is None:
                with contextlib.suppress(OSError):  # a file or folder may not have been made
                    file.unlink(missing_ok=True)
                    for empty in new_folders:
                        empty.rmdir()
            elif not (file.exists() and file.read_bytes() == content_before):
                files.write(file, content_before, files.ANY)  # ANY: replace the file, whoever wrote it


def _file(folder: Path, choice: Choice) -> Path:
    """Return the path of the file that ``write`` makes in a folder."""
    return folder / f"config_{choice.system}.sh"


def write(folder: Path, choice: Choice) -> Path:
    """Write a copy of the configuration file into ``folder``, followed by the values of ``--set``, for a
    script to source. Return its path.

    Raises UserError if the configuration cannot be run, or if a shell that sources the copy does not have the
    values of ``--set`` at the end.
    """
    file = _file(folder, choice)
    base = choice.document
    values = {name: choice.config.environment[name] for name in dict.fromkeys((*choice.changes, _PLATFORM))}
    text = header.EXPECTATION.sub("", base.text)  # with other values other epochs are to be expected
    if _SOURCES.search(text):  # a copy in another folder would not find the files that it sources
        text = f". {shlex.quote(str(base.path.resolve()))}\n"
    # The first line has files.MARK, so that a later call may replace the file.
    lines = [f"# {remark(base.path.name)}; {files.MARK}, --set", text, "# --set"]
    lines += [exported(name, value) for name, value in values.items()]
    files.make_folder(folder, "give another --output")
    # surrogateescape: the text of the file may have bytes that are not UTF-8.
    files.write(file, ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape"))
    sourced = source(file, choice.environ)
    if any(sourced.get(name) != value for name, value in values.items()):
        file.unlink()
        lost = " ".join(name for name in choice.changes if sourced.get(name) != values[name])
        lost = lost or " ".join(choice.changes)  # only SUBMISSION_PLATFORM is lost: name all of --set
        raise UserError(f"--set {lost}", f"{base.path} keeps its own value", _COPY)
    return file

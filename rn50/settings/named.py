"""Configurations by their names, with the values of ``--set NAME=VALUE``."""

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
from rn50.settings import header
from rn50.settings.config import Config, from_environment, of_document
from rn50.settings.document import Document, absolute_paths, find, source, system_of, systems
from rn50.settings.fields import KNOWN_NAMES, RUNS_OWN_NAMES, VARIABLES
from rn50.settings.libraries import is_passed_through
from rn50.settings.writing import exported, refuse_impossible, remark

_LONGEST = 100
"""Most characters of a system's name, which becomes the name of a folder."""
_COPY = "change a copy of the file"
_PLATFORM = "SUBMISSION_PLATFORM"
_PART = re.compile(r"\w+=[A-Za-z0-9_.-]*", re.ASCII)
"""A value of --set in the name of a system."""
_SOURCES = re.compile(r"^\s*(\.|source)\s", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Choice:
    """A configuration file with the values of ``--set``, each NAME=VALUE, in an environment, by default that
    of this process. A shell sources the file once, and only where it is needed."""

    document: Document
    values: Sequence[str] = ()
    environ: Mapping[str, str] = dataclasses.field(default_factory=lambda: process.environment())

    @functools.cached_property
    def sourced(self) -> dict[str, str]:
        """The variables of ``environ``, replaced by the file's.

        Raises UserError if the file cannot be sourced.
        """
        return self.document.sourced({**self.environ, **absolute_paths(self.environ)})

    @functools.cached_property
    def changes(self) -> dict[str, str]:
        """Variable -> value of ``values``, without those that the file has anyway.

        Raises UserError for a variable that no configuration can set, or that differs from run to run, and if
        the file cannot be sourced or ``system`` is too long for a folder.
        """
        texts = dict(map(_pair, self.values))
        sourced = self.absolute if texts else {}
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
        """``sourced`` with absolute paths: those of the file begin in the checkout, as for the scripts."""
        return {**self.sourced, **absolute_paths(self.sourced, files.ROOT)}

    @functools.cached_property
    def config(self) -> Config:
        """The configuration. Raises UserError as ``changes`` does, or if it cannot be run."""
        variables = {**self.absolute, "CONFIG_FILE": str(self.document.path.resolve())}
        return from_environment(changed(variables, self.changes), self.document)


def read(name: str | None, values: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Config:
    """Return the configuration ``name``, a file or a system of configs/, with ``values``, each NAME=VALUE, in
    place of the file's. ``environ`` is by default that of this process.

    Without a name and values, ``environ`` itself is the configuration if it sets every required variable, as
    after `. FILE`. Else CONFIG_FILE or DGXSYSTEM names it.

    Raises UserError if there is no such configuration, or it cannot be sourced or run.
    """
    environ = process.environment() if environ is None else environ
    required = [variable for variable in VARIABLES.values() if variable.default is dataclasses.MISSING]
    is_complete = all(needed.given(environ)[1] or not needed.is_read(environ) for needed in required)
    if is_complete and not name and not values:
        return of_scripts(environ)
    return Choice(find(name), values, environ).config


def of_scripts(environ: Mapping[str, str]) -> Config:
    """Return the configuration of an environment into which a script has sourced CONFIG_FILE.

    Raises UserError if it cannot be run.
    """
    file = environ.get("CONFIG_FILE")  # which another machine may lack
    return from_environment(environ, Document(Path(file)) if file and os.path.exists(file) else None)


def _value(name: str, environ: Mapping[str, str]) -> Any:
    """Return what an environment has of a variable, read where that is possible."""
    variable, absolute = VARIABLES.get(name), {**environ, **absolute_paths(environ)}
    with contextlib.suppress(ValueError):
        return variable.value(variable.given(absolute)[1], {}) if variable else environ.get(name)
    return environ.get(name)


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    word = excerpt(word)
    if not equals or not value.isprintable():
        raise UserError(f"--set {word}", "no NAME=VALUE", "write --set LR=1")
    if name in RUNS_OWN_NAMES:
        problem = "no part of a configuration, because the runs of one result may differ in it"
        raise UserError(f"--set {word}", problem, f"put it in front of the command: {word} rn50 ...")
    if name not in KNOWN_NAMES and not is_passed_through(name):
        meant = did_you_mean(name, KNOWN_NAMES) or "rn50 config show lists all"
        raise UserError(f"--set {word}", "no such variable", meant)
    refuse_impossible(name, value)
    return name, value


def changed(sourced: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration's variables with ``changes``; SUBMISSION_PLATFORM names these too."""
    # As of the environment: relative paths begin where the user is.
    variables = {**sourced, **changes, **absolute_paths(changes)}
    if changes:
        platform = variables.get(_PLATFORM) or variables.get("DGXSYSTEM", "")
        variables[_PLATFORM] = " ".join([platform, *_parts(changes)])
    return variables


def other_batch(its: int | None, where: str, config: Config) -> Iterator[str]:
    """Yield, in words, that a learning rate was chosen for another global batch size, ``its``, than the
    configuration's."""
    size = config.global_batch_size
    if its != size:
        sizes = f"{its} {where}, {size} here, for which its learning rate was not chosen"
        others = f"; rn50 borrow --suggest --global-batch-size {size} has others" * config.is_imagenet
        yield f"global batch size: {sizes}, so epochs are not comparable{others}"


def unchosen(config: Config) -> Iterator[str]:
    """Yield ``other_batch`` of a configuration and of its file, whose learning rate it has."""
    with contextlib.suppress(UserError):  # of a file that is complete with --set alone
        if not config.document:
            return
        written, where = of_document(config.document), f"in {config.document.path.name}"
        if written.hyperparameters.learning_rate == config.hyperparameters.learning_rate:
            yield from other_batch(written.global_batch_size, where, config)


def _parts(changes: Mapping[str, str]) -> list[str]:
    return [f"{variable}={re.sub(r'[^A-Za-z0-9_.-]+', '_', value)}" for variable, value in changes.items()]


def _system(document: Document, changes: Mapping[str, str]) -> str:
    return "+".join([system_of(document.path), *_parts(changes)])


def arguments(system: str) -> str:
    """Return the words for a system on the command line: ``DEMO_CPU --set LR=1`` for DEMO_CPU+LR=1. CONFIG
    for one whose file is not in ``configs/``, and for a name that ``system`` does not make, which a shell
    might take for more than words."""
    base, *parts = system.split("+")
    if base not in systems() or not all(map(_PART.fullmatch, parts)):
        return "CONFIG"
    return re.sub(r"\+(\w+=)", r" --set \1", system)


@contextlib.contextmanager
def file_in(into: Path | str | None, choice: Choice) -> Iterator[tuple[Path, Path]]:
    """Yield the file of a configuration, and the folder that a command fills: ``into``, by default that of
    the system in ``results/``. The file is the configuration's own where ``--set`` changes nothing, else that
    of ``write``.

    Where nothing else has come into the folder, because the command was refused, the folder is again as it
    was: with the file of earlier runs, or without one.
    """
    folder = Path(into or files.ROOT / "results" / choice.system)
    if not choice.changes:
        yield choice.document.path, folder
        return
    file = _file(folder, choice)
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    before = set(folder.glob("*"))
    earlier = files.read_bytes(file) if file in before else None
    try:
        yield write(folder, choice), folder
    finally:
        if set(folder.glob("*")) - before <= {file}:
            if earlier is not None and not (file.exists() and file.read_bytes() == earlier):
                files.write(file, earlier, files.ANY)
            with contextlib.suppress(OSError):  # what could not be made
                if earlier is None:
                    file.unlink(missing_ok=True)
                for empty in new:
                    empty.rmdir()


def _file(folder: Path, choice: Choice) -> Path:
    return folder / f"config_{choice.system}.sh"


def write(folder: Path, choice: Choice) -> Path:
    """Write a configuration with the values of ``--set``, for a script to source, and return its file in
    ``folder``.

    Raises UserError if it cannot be run, or if a shell that sources the file would not have the values.
    """
    file, base = _file(folder, choice), choice.document
    values = {name: choice.config.environment[name] for name in dict.fromkeys((*choice.changes, _PLATFORM))}
    text = header.EXPECTATION.sub("", base.text)  # which is of other values
    if _SOURCES.search(text):  # a copy would not find the files beside it
        text = f". {shlex.quote(str(base.path.resolve()))}\n"
    lines = [f"# {remark(base.path.name)}; {files.MARK}, --set", text, "# --set"]
    lines += [exported(name, value) for name, value in values.items()]
    files.make_folder(folder, "give another --output")
    files.write(file, ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape"))
    sourced = source(file, choice.environ)
    if any(sourced.get(name) != value for name, value in values.items()):
        file.unlink()
        lost = " ".join(name for name in choice.changes if sourced.get(name) != values[name])
        lost = lost or " ".join(choice.changes)
        raise UserError(f"--set {lost}", f"{base.path} keeps its own value", _COPY)
    return file

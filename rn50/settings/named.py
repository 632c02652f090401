"""Configurations by their names, with the values of ``--set NAME=VALUE``."""

import contextlib
import dataclasses
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rn50 import files, process
from rn50.errors import UserError, did_you_mean, excerpt
from rn50.settings import config_file, header
from rn50.settings.config import Config, from_environment, known_names
from rn50.settings.fields import RUNS_OWN_NAMES, VARIABLES, variables
from rn50.settings.shell.exports import exported, refuse_impossible, remark

_LONGEST = 100
"""Most characters of a system's name, which becomes the name of a folder."""
_COPY = "change a copy of the file"
_PLATFORM = "SUBMISSION_PLATFORM"
_PART = re.compile(r"\w+=[A-Za-z0-9_.-]*", re.ASCII)
"""A value of --set in the name of a system."""
_SOURCES = re.compile(r"^\s*(\.|source)\s", re.MULTILINE)


def read(name: str | None, values: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Config:
    """Return the configuration ``name``, a file or a system of configs/, with ``values``, each NAME=VALUE, in
    place of the file's. ``environ`` is by default that of this process.

    Without a name and values, ``environ`` itself is the configuration if it sets every required variable, as
    after `. FILE`. Else CONFIG_FILE or DGXSYSTEM names it.

    Raises UserError if there is no such configuration, or it cannot be sourced or run.
    """
    environ = process.environment() if environ is None else environ
    required = [variable for _, _, variable in variables() if variable.default is dataclasses.MISSING]
    is_complete = all(needed.given(environ)[1] or not needed.is_read(environ) for needed in required)
    if is_complete and not name and not values:
        return from_environment(environ)
    file = config_file.find(name)
    given = changes(file, values, environ)
    return from_environment(changed(config_file.sourced_environment(file, environ), given))


def changes(file: Path, values: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return variable -> value of NAME=VALUE, without those that the configuration of a file has anyway.

    Raises UserError for a variable that no configuration can set, or that differs from run to run, and if the
    file cannot be sourced or ``system`` has no name for it.
    """
    given = dict(map(_pair, values))
    sourced = config_file.sourced_environment(file, environ) if given else {}
    given = {name: text for name, text in given.items() if _value(name, given) != _value(name, sourced)}
    system(file, given)
    return given


def _value(name: str, environ: Mapping[str, str]) -> Any:
    """Return what an environment has of a variable, read where that is possible."""
    variable, absolute = VARIABLES.get(name), {**environ, **config_file.absolute_paths(environ)}
    with contextlib.suppress(ValueError):
        return variable.value(variable.given(absolute)[1], {}) if variable else environ.get(name)
    return environ.get(name)


def _pair(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    given = excerpt(given)
    if not equals or not value.isprintable():
        raise UserError(f"--set {given}", "no NAME=VALUE", "write --set LR=1")
    if name in RUNS_OWN_NAMES:
        problem = "no part of a configuration, because the runs of one result may differ in it"
        raise UserError(f"--set {given}", problem, f"put it in front of the command: {given} rn50 ...")
    if name not in known_names() and not config_file.is_passed_through(name):
        meant = did_you_mean(name, known_names()) or "rn50 config show lists all"
        raise UserError(f"--set {given}", "no such variable", meant)
    refuse_impossible(name, value)
    return name, value


def changed(sourced: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration's variables with those given; SUBMISSION_PLATFORM names these too."""
    # As of the environment: relative paths begin where the user is.
    both = {**sourced, **given, **config_file.absolute_paths(given)}
    if given:
        both[_PLATFORM] = " ".join([both.get(_PLATFORM) or both.get("DGXSYSTEM", ""), *_parts(given)])
    return both


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
    with contextlib.suppress(KeyError, UserError):  # of no file, or of one that is complete with --set alone
        file = config.environment["CONFIG_FILE"]
        written = from_environment(config_file.source(file), file)
        if written.as_environment()["LR"] == config.as_environment()["LR"]:
            yield from other_batch(written.global_batch_size, f"in {Path(file).name}", config)


def _parts(given: Mapping[str, str]) -> list[str]:
    return [f"{variable}={re.sub(r'[^A-Za-z0-9_.-]+', '_', value)}" for variable, value in given.items()]


def system(file: Path, given: Mapping[str, str]) -> str:
    """Return the name of the system that a file with these values configures, like DEMO_CPU+LR=1. Raises
    UserError if it is too long for a folder."""
    name = "+".join([config_file.system_of(file), *_parts(given)])
    if given and len(name) > _LONGEST:
        raise UserError("--set", f"the system would be called {excerpt(name)}", _COPY)
    return name


def arguments(system: str) -> str:
    """Return the words for a system on the command line: ``DEMO_CPU --set LR=1`` for DEMO_CPU+LR=1. CONFIG
    for one whose file is not in ``configs/``, and for a name that ``system`` does not make, which a shell
    might take for more than words."""
    base, *parts = system.split("+")
    if base not in config_file.systems() or not all(map(_PART.fullmatch, parts)):
        return "CONFIG"
    return re.sub(r"\+(\w+=)", r" --set \1", system)


def _file(folder: Path, base: Path, given: Mapping[str, str]) -> Path:
    return folder / f"config_{system(base, given)}.sh"


@contextlib.contextmanager
def file_in(into: Path | str | None, name: str | None, values: Sequence[str]) -> Iterator[tuple[Path, Path]]:
    """Yield the file of the configuration ``name`` with ``values``, and the folder that a command fills:
    ``into``, by default that of the system in ``results/``. The file is the configuration's own where
    ``values`` change nothing, else that of ``write``.

    Where nothing else has come into the folder, because the command was refused, the folder is again as it
    was: with the file of earlier runs, or without one.
    """
    base = config_file.find(name)
    given = changes(base, values, process.environment())
    folder = Path(into or files.ROOT / "results" / system(base, given))
    if not given:
        yield base, folder
        return
    file = _file(folder, base, given)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    before = set(folder.glob("*"))
    earlier = files.read_bytes(file) if file in before else None
    try:
        yield write(folder, name, values), folder
    finally:
        if set(folder.glob("*")) - before <= {file}:
            if earlier is not None and not (file.exists() and file.read_bytes() == earlier):
                files.write(file, earlier, files.ANY)
            with contextlib.suppress(OSError):  # what could not be made
                if earlier is None:
                    file.unlink(missing_ok=True)
                for empty in made:
                    empty.rmdir()


def write(folder: Path, name: str | None, values: Sequence[str]) -> Path:
    """Write the configuration ``name`` with ``values``, for a script to source, and return its file in
    ``folder``.

    Raises UserError as ``read`` does, or if a shell that sources the file would not have the values.
    """
    base = config_file.find(name)
    given = changes(base, values, process.environment())
    asked = read(name, values).environ()
    text = files.read_text(base, errors="surrogateescape")
    if _SOURCES.search(text):  # a copy would not find the files beside it
        text = f". {shlex.quote(str(base.resolve()))}\n"
    text = header.EXPECTATION.sub("", text)  # which is of other values
    lines = [f"# {remark(base.name)}; {files.MARK}, --set", text, "# --set"]
    lines += [exported(variable, asked[variable]) for variable in dict.fromkeys((*given, _PLATFORM))]
    file = _file(folder, base, given)
    files.make_folder(folder, "give another --output")
    files.write(file, ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape"))
    sourced = config_file.sourced_environment(file, process.environment())
    lost = [variable for variable in given if sourced.get(variable) != asked[variable]]
    if lost or sourced.get(_PLATFORM) != asked[_PLATFORM]:
        file.unlink()
        raise UserError(f"--set {' '.join(lost or given)}", f"{base} keeps its own value", _COPY)
    return file

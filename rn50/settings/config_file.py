"""Configuration files: the names that a file sets, and its variables after a shell has sourced it."""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rn50 import process
from rn50.errors import UserError, did_you_mean, excerpt
from rn50.files import PACKAGES, ROOT
from rn50.settings import parsers
from rn50.settings.fields import VARIABLES, variables
from rn50.settings.libraries import PASSED_THROUGH
from rn50.settings.shell import assignments
from rn50.settings.variables import FIXED, UNUSED

CONFIGS = (PACKAGES / "rn50" / "configs").resolve()
"""Folder of our own files. An unknown name is an error in our files, and ignored in any other."""

PATHS: tuple[str, ...] = ("LOGDIR", "RESULTS")
PATHS += tuple(name for name, variable in VARIABLES.items() if variable.parse is parsers.path)
"""Variables that hold paths, as in ``configs/start.sh``."""

NAMED_BY = ("CONFIG_FILE", "DGXSYSTEM")
"""Variables that name the configuration where a command does not."""

_NAME = re.compile(r"[A-Za-z0-9][\w+-]{,99}", re.ASCII)
TIME_LIMIT_S = 10
MOST_PRINTED = 4 << 20
"""Largest output of a shell in bytes, and largest file that a configuration may write."""


def systems() -> list[str]:
    """Return the names of the systems that have a file in ``configs/``."""
    return sorted(system_of(path) for path in CONFIGS.glob("config_*.sh"))


def file_of(system: str) -> Path:
    """Return the path of a system's configuration file, as ``configs/start.sh`` does."""
    return CONFIGS / f"config_{system}.sh"


def is_named(name: str | None) -> bool:
    """Return True if ``name`` or this process's environment names a configuration."""
    return bool(name or any(map(process.environment().get, NAMED_BY)))


def find(name: str | None) -> Path:
    """Return the configuration file ``name``: a file, or a system of configs/; by default CONFIG_FILE or
    DGXSYSTEM of this process's environment.

    Raises UserError if there is no such file.
    """
    environ, choices = process.environment(), f"there are: {', '.join(systems())}"
    variable = next((key for key in NAMED_BY if not name and environ.get(key)), "")
    named = name or environ.get(variable)
    if not named:
        raise UserError("which configuration? give its name or file, or set DGXSYSTEM", None, choices)
    ours = file_of(named)
    # A folder may have the name of a system, so folders are skipped. Any other path is taken; its reader
    # reports what is wrong.
    is_there = os.path.exists(named) and not os.path.isdir(named)
    if not is_there and not os.path.isfile(ours):
        subject = f"{variable}={excerpt(named)}" if variable else excerpt(named)
        meant = did_you_mean(named, systems())
        new = "" if meant or not _NAME.fullmatch(named) else f"; or write it: rn50 config new {named}"
        problem = "a folder" if os.path.isdir(named) else "no such file"
        raise UserError(subject, f"{problem}, and no system of configs/", f"{meant} {choices}{new}".strip())
    return Path(named) if is_there else ours


def sourced_environment(file: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a run of ``file``, as ``run_and_time.sh`` makes it: its values replace those
    of ``environ``.

    Paths of ``environ`` are relative to the working folder, paths that the file sets to the checkout. Both
    become absolute.

    Raises UserError if the file cannot be sourced.
    """
    base = {**environ, **absolute_paths(environ)}
    sourced = {**base, **source(str(file), base), "CONFIG_FILE": str(file.resolve())}
    return {**sourced, **absolute_paths(sourced, ROOT)}


def absolute_paths(variables: Mapping[str, str], folder: Path = Path()) -> dict[str, str]:
    """Return the variables that hold paths; a relative path begins in ``folder``."""
    return {name: os.path.abspath(folder / variables[name]) for name in PATHS if variables.get(name)}


def system_of(file: Path) -> str:
    """Return the name of the system that a file configures, as ``configs/start.sh`` does."""
    return file.stem[len("config_") :] if file.stem.startswith("config_") else file.stem


def is_ours(path: str) -> bool:
    """Return True if a file lies in this repository's ``configs/``."""
    return Path(os.path.realpath(path)).parent == CONFIGS


def known_names() -> set[str]:
    """Return the name of every variable that is read or checked here, without the aliases of other makers."""
    return {variable.name for _, _, variable in variables()} | set(FIXED) | set(UNUSED)


def every_name() -> set[str]:
    """Return ``known_names`` and the aliases of other makers."""
    return known_names() | {alias for _, _, variable in variables() for alias in variable.aliases}


def is_passed_through(name: str) -> bool:
    """Return True if a variable belongs to a library or launcher, to which it is passed unchanged."""
    return name.startswith(PASSED_THROUGH)


def names_set_by(path: str) -> list[str]:
    """Return the names that a file and the files that it sources set or may set. The text is read and never
    executed.

    Raises UserError if a file cannot be read, or if a file that it sources is missing.
    """
    parsed = assignments.read(Path(path))
    return [*parsed.values, *parsed.doubtful]


def unknown_names(path: str, known: set[str]) -> list[str]:
    """Return the names that a file sets and that are neither ``known`` nor a library's. Raises as
    ``names_set_by`` does."""
    return [name for name in names_set_by(path) if name not in known and not is_passed_through(name)]


def spelling(name: str, known: set[str]) -> str:
    """Return "did you mean X?" for an unknown name that nearly matches a known one or swaps letters of it;
    else nothing."""
    swapped = {known_name for known_name in known if sorted(known_name) == sorted(name)}
    return did_you_mean(name, known, nearness=0.9) or did_you_mean(name, swapped)


def source(path: str, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of a shell after it has sourced a file, exported or not. The file's output is
    dropped.

    The shell starts with a default PATH and the variables of ``environ`` only. Its working directory is the
    folder of the file, as in ``configs/load.sh``.

    Raises UserError if the file cannot be read or is no configuration, or if the shell reports an error, ends
    within the file, prints more than ``MOST_PRINTED`` bytes or takes longer than ``TIME_LIMIT_S``.
    """
    _refuse_other(path)
    given = {"PATH": "/usr/local/bin:/usr/bin:/bin", **(environ or {})}
    status, output, complaint = _shell(Path(path).resolve(), given)
    if status == 0 and not output:
        status, complaint = 1, "it ends the shell"
    if status != 0:
        complaint = complaint or f"exit status {status}"
        raise UserError(path, f"cannot be sourced ({complaint})", "keep plain `export NAME=value` lines")
    pairs = (entry.split("=", 1) for entry in output.split("\0") if "=" in entry)
    return {name: value for name, value in pairs if name not in ("PATH", "PWD", "OLDPWD", "SHLVL", "_")}


def _refuse_other(path: str) -> None:
    """Raise UserError for a file that cannot be read, that starts a job, or that sets no known variable: a
    look at somebody's script must not run it."""
    parsed = assignments.read(Path(path))
    names = {*parsed.values, *parsed.doubtful}
    if not (parsed.anything or names & every_name() or any(map(is_passed_through, names))):
        if ":::MLLOG" in assignments.text_of(Path(path)):
            raise UserError(path, "a log of a run, no configuration", "rn50 score reads it")
        raise UserError(path, "sets no variable of this benchmark", f"{assignments.PLAIN}, as in configs/")
    if parsed.starts:
        raise UserError(*parsed.starts, assignments.PLAIN)


def _shell(file: Path, environ: Mapping[str, str]) -> tuple[int, str, str]:
    """Return exit status, variables and last error line of a shell that sources a file. Its process group is
    killed with it."""
    prepare = f"ulimit -f {MOST_PRINTED >> 10}; set -a; unset CDPATH"
    script = f'{prepare}; . "./$1" >/dev/null || exit; command -p env -0'
    # Files, because ulimit does not limit a pipe.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", script, "bash", file.name],
            cwd=str(file.parent),
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=process.ask_to_end_with_parent(),
        )
        try:
            status = shell.wait(TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            return 124, "", f"it takes longer than {TIME_LIMIT_S} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        if status == -signal.SIGXFSZ:
            return status, "", f"it prints more than {MOST_PRINTED:,} bytes"
        out.seek(0)
        err.seek(max(0, err.seek(0, os.SEEK_END) - 1000))
        complaints = err.read().decode(errors="replace").strip().splitlines()
        return status, out.read().decode(errors="surrogateescape"), complaints[-1] if complaints else ""

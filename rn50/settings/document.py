"""Configuration files: the path of each, and one that is read once."""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from rn50 import process
from rn50.errors import UserError, did_you_mean, excerpt
from rn50.files import PACKAGES
from rn50.settings import parsers
from rn50.settings.fields import EVERY_NAME, VARIABLES
from rn50.settings.libraries import is_passed_through
from rn50.settings.shell import assignments

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


class Document:
    """A configuration file, read once. Nothing in it is run but by ``sourced``.

    ``text`` is that of a file not yet written. Raises UserError if the file cannot be read, or one that it
    sources.
    """

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path, self.assigned = path, assignments.read(path, text)
        self.text = self.assigned.text
        self.names = [*self.assigned.values, *self.assigned.doubtful]
        """The names that it and the files that it sources set or may set."""

    @property
    def is_ours(self) -> bool:
        """True if it lies in this repository's ``configs/``."""
        return Path(os.path.realpath(self.path)).parent == CONFIGS

    def unknown(self, names: Collection[str]) -> list[str]:
        """Return the names that it sets and that are neither among ``names`` nor a library's."""
        return [name for name in self.names if name not in names and not is_passed_through(name)]

    def sourced(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables of ``environ``, replaced by those of a shell that has sourced the file.

        Raises UserError if it is no configuration, and as ``source`` does. A file that starts a job, or that
        sets no known variable, is none: a look at somebody's script must not run it.
        """
        is_read = any(name in EVERY_NAME or is_passed_through(name) for name in self.names)
        if not is_read and not self.assigned.anything:
            if ":::MLLOG" in self.text:
                raise UserError(self.path, "a log of a run, no configuration", "rn50 score reads it")
            remedy = f"{assignments.PLAIN}, as in configs/"
            raise UserError(self.path, "sets no variable of this benchmark", remedy)
        if self.assigned.starts:
            raise UserError(*self.assigned.starts, assignments.PLAIN)
        return {**(environ or {}), **source(self.path, environ or {})}


def systems() -> list[str]:
    """Return the names of the systems that have a file in ``configs/``."""
    return sorted(system_of(path) for path in CONFIGS.glob("config_*.sh"))


def file_of(system: str) -> Path:
    """Return the path of a system's configuration file, as ``configs/start.sh`` does."""
    return CONFIGS / f"config_{system}.sh"


def system_of(file: Path) -> str:
    """Return the name of the system that a file configures, as ``configs/start.sh`` does."""
    return file.stem[len("config_") :] if file.stem.startswith("config_") else file.stem


def is_named(name: str | None) -> bool:
    """Return True if ``name`` or this process's environment names a configuration."""
    return bool(name or any(map(process.environment().get, NAMED_BY)))


def find(name: str | None) -> Document:
    """Return the configuration file ``name``: a file, or a system of configs/; by default CONFIG_FILE or
    DGXSYSTEM of this process's environment.

    Raises UserError if there is no such file, or it cannot be read.
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
    return Document(Path(named) if is_there else ours)


def absolute_paths(variables: Mapping[str, str], folder: Path = Path()) -> dict[str, str]:
    """Return the variables that hold paths; a relative path begins in ``folder``."""
    return {name: os.path.abspath(folder / variables[name]) for name in PATHS if variables.get(name)}


def source(path: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a shell after it has sourced a file, exported or not. The file's output is
    dropped.

    The shell starts with a default PATH and the variables of ``environ`` only. Its working directory is the
    folder of the file, as in ``configs/load.sh``.

    Raises UserError if the shell reports an error, ends within the file, prints more than ``MOST_PRINTED``
    bytes or takes longer than ``TIME_LIMIT_S``.
    """
    status, output, complaint = _shell(path.resolve(), {"PATH": "/usr/local/bin:/usr/bin:/bin", **environ})
    if status == 0 and not output:
        status, complaint = 1, "it ends the shell"
    if status != 0:
        complaint = complaint or f"exit status {status}"
        raise UserError(path, f"cannot be sourced ({complaint})", "keep plain `export NAME=value` lines")
    pairs = (entry.split("=", 1) for entry in output.split("\0") if "=" in entry)
    return {name: value for name, value in pairs if name not in ("PATH", "PWD", "OLDPWD", "SHLVL", "_")}


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

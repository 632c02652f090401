"""Configuration files: find the file of a system (``find``), read it without a shell (``Document``), and have
a shell source it (``source``).

``named.py`` makes a ``Config`` of the result.
"""

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
"""Folder of this repository's configuration files. A variable of unknown name is an error in these files; in
any other file it is ignored."""

PATHS: tuple[str, ...] = ("LOGDIR", "RESULTS")
PATHS += tuple(name for name, variable in VARIABLES.items() if variable.parse is parsers.path)
"""Variables whose values are paths, the same as in ``configs/start.sh``."""

NAMED_BY = ("CONFIG_FILE", "DGXSYSTEM")
"""Variables that name the configuration if the command line names none."""

_NAME = re.compile(r"[A-Za-z0-9][\w+-]{,99}", re.ASCII)
"""Name that a system may have."""
TIME_LIMIT_S = 10
"""Limit of the seconds that a shell takes to source a file: assignments take milliseconds."""
MOST_PRINTED = 4 << 20
"""Largest output of a shell, in bytes, and largest file that a configuration may write. By default Linux
allows a process 2 MiB of arguments and environment."""


class Document:
    """A configuration file. Its text and assignments are read once, without running anything; only
    ``sourced`` runs the file.

    ``text`` is the content of a file that is not yet written; by default the file is read. Raises UserError
    if the file, or a file that it sources, cannot be read.
    """

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        self.assigned = assignments.read(path, text)
        self.text = self.assigned.text
        self.names = [*self.assigned.values, *self.assigned.doubtful]
        """Names of the variables that the file and the files that it sources set, or may set in a way that
        only a shell can tell."""

    @property
    def is_ours(self) -> bool:
        """True if the file lies in this repository's ``configs/``."""
        return Path(os.path.realpath(self.path)).parent == CONFIGS

    def unknown(self, names: Collection[str]) -> list[str]:
        """Return the names of the variables that the file sets and that are neither among ``names`` nor
        passed through to a library."""
        return [name for name in self.names if name not in names and not is_passed_through(name)]

    def sourced(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return ``environ``, updated with the variables of a shell that has sourced the file.

        Raises UserError if the file is no configuration, or as ``source`` does. A file that starts a job, or
        that sets no known variable, is no configuration, because it may be a script, and to show the
        configuration of a script must not run it.
        """
        # ``anything`` is not empty if a statement may set any variable, so that only a shell knows which.
        sets_known_names = any(name in EVERY_NAME or is_passed_through(name) for name in self.names)
        if not sets_known_names and not self.assigned.anything:
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
    """Return the path of a system's file in ``configs/``, by the rule of ``configs/start.sh``."""
    return CONFIGS / f"config_{system}.sh"


def system_of(file: Path) -> str:
    """Return the name of the system that a file configures, by the rule of ``configs/start.sh``."""
    # A file of another name configures the system of that name.
    return file.stem[len("config_") :] if file.stem.startswith("config_") else file.stem


def is_named(name: str | None) -> bool:
    """Return True if ``name`` is not empty or this process's environment names a configuration."""
    return bool(name or any(map(process.environment().get, NAMED_BY)))


def find(name: str | None) -> Document:
    """Return the configuration file ``name``, which is a path or the name of a system of configs/. Without a
    name, CONFIG_FILE or DGXSYSTEM of this process's environment names the file.

    Raises UserError if there is no such file, or it cannot be read.
    """
    environ = process.environment()
    choices = f"there are: {', '.join(systems())}"
    # The variable that names the file; empty if ``name`` does, or none is set.
    variable = next((key for key in NAMED_BY if not name and environ.get(key)), "")
    named = name or environ.get(variable)
    if not named:
        raise UserError("which configuration? give its name or file, or set DGXSYSTEM", None, choices)
    ours = file_of(named)
    # A file or folder in the current folder, perhaps a stranger's, may have the name of a system: then the
    # system is meant. Any other path is taken, and ``Document`` reports what is wrong with it.
    is_path = not os.path.isfile(ours) and os.path.exists(named) and not os.path.isdir(named)
    if not is_path and not os.path.isfile(ours):
        subject = f"{variable}={excerpt(named)}" if variable else excerpt(named)
        meant = did_you_mean(named, systems())
        new = "" if meant or not _NAME.fullmatch(named) else f"; or write it: rn50 config new {named}"
        problem = "a folder" if os.path.isdir(named) else "no such file"
        raise UserError(subject, f"{problem}, and no system of configs/", f"{meant} {choices}{new}".strip())
    return Document(Path(named) if is_path else ours)


def absolute_paths(variables: Mapping[str, str], folder: Path = Path()) -> dict[str, str]:
    """Return those of ``variables`` that hold paths, made absolute. A relative path begins in ``folder``."""
    return {name: os.path.abspath(folder / variables[name]) for name in PATHS if variables.get(name)}


def source(path: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a shell has after it has sourced a file, whether exported or not. What the
    file prints is dropped.

    The shell starts with a default PATH and the variables of ``environ`` only. Its working directory is the
    folder of the file, as in ``configs/load.sh``.

    Raises UserError if the shell reports an error, ends within the file, prints more than ``MOST_PRINTED``
    bytes or takes longer than ``TIME_LIMIT_S``.
    """
    status, output, complaint = _shell(path.resolve(), {"PATH": "/usr/local/bin:/usr/bin:/bin", **environ})
    # Without a failure ``env`` prints at least PATH, unless the file left the shell before.
    if status == 0 and not output:
        status, complaint = 1, "it ends the shell"
    if status != 0:
        complaint = complaint or f"exit status {status}"
        raise UserError(path, f"cannot be sourced ({complaint})", "keep plain `export NAME=value` lines")
    pairs = (entry.split("=", 1) for entry in output.split("\0") if "=" in entry)
    return {name: value for name, value in pairs if name not in ("PATH", "PWD", "OLDPWD", "SHLVL", "_")}


def _shell(file: Path, environ: Mapping[str, str]) -> tuple[int, str, str]:
    """Have a shell source a file. Return (exit status, variables as ``env -0`` prints them, last line of
    standard error). Whatever the file started is killed at the end."""
    # ``ulimit -f`` counts KiB. ``set -a`` exports every variable, so that ``env`` prints it. With ``CDPATH``
    # a ``cd`` of the file may lead elsewhere. ``command -p`` finds ``env`` whatever PATH the file sets.
    prepare = f"ulimit -f {MOST_PRINTED >> 10}; set -a; unset CDPATH"
    script = f'{prepare}; . "./$1" >/dev/null || exit; command -p env -0'
    # The output goes into files, because ulimit does not limit a pipe.
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
        # The end suffices: only the last line is returned.
        err.seek(max(0, err.seek(0, os.SEEK_END) - 1000))
        complaints = err.read().decode(errors="replace").strip().splitlines()
        return status, out.read().decode(errors="surrogateescape"), complaints[-1] if complaints else ""

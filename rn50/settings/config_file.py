"""A configuration file: which names it sets, whether it is one of ours, and what the shell makes of it."""

import contextlib
import difflib
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Set, Tuple

from rn50.errors import UserError
from rn50.files import ROOT
from rn50.settings.shell import assignments
from rn50.settings.variables import PASSED_THROUGH

CONFIGS = ROOT / "configs"
"""Where our own files lie; in them an unknown name is an error, in anybody else's it is ignored."""

TIME_LIMIT_S = 10
MOST_PRINTED = 4 << 20
"""Bytes of the longest output of a shell, and of a file that a configuration writes."""


def is_ours(path: str) -> bool:
    """Whether a file lies in this repository's ``configs/``."""
    return Path(os.path.realpath(path)).parent == CONFIGS


def is_passed_through(name: str) -> bool:
    """Whether a variable belongs to a library or launcher, which it reaches untouched."""
    return name.startswith(PASSED_THROUGH)


def names_set_by(path: str) -> List[str]:
    """Names that a file sets or may set, and the files that it sources; read from its text and never executed.

    Raises UserError where a file cannot be read, or one that it sources is missing.
    """
    found = assignments.read(Path(path))
    found.refuse_missing()
    return [*found.values, *found.doubtful]


def unknown_names(path: str, known: Set[str]) -> List[str]:
    """One line, with the nearest known name, for every name that means nothing here and that a file of ours sets.

    Raises UserError as ``names_set_by`` does, whosoever's file it is.
    """
    problems = []
    for name in names_set_by(path):
        if is_ours(path) and name not in known and not is_passed_through(name):
            nearest = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {nearest[0]}?" if nearest else "remove it"
            problems.append(f"{name} in {path} is no known variable; {remedy}")
    return problems


def source(path: str, environ: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """The variables that a shell holds after sourcing a file, exported or not; what the file prints is dropped.

    The shell is a clean one, or one that starts with the variables of ``environ``. Its working directory is the folder of the
    file, as in ``configs/load.sh``.

    Raises UserError where the file cannot be read, the shell reports an error, ends within the file, prints without end, or
    takes longer than ``TIME_LIMIT_S``.
    """
    names_set_by(path)  # says what is wrong with the path, in our words
    status, said, complaint = _shell(Path(path).resolve(), {"PATH": "/usr/local/bin:/usr/bin:/bin", **(environ or {})})
    if status == 0 and not said:
        status, complaint = 1, "it ends the shell"
    if status != 0:
        complaint = complaint or f"exit status {status}"
        raise UserError(path, f"cannot be sourced ({complaint})", "keep plain `export NAME=value` lines")
    pairs = (entry.split("=", 1) for entry in said.split("\0") if "=" in entry)
    return {name: value for name, value in pairs if name not in ("PATH", "PWD", "OLDPWD", "SHLVL", "_")}


def _shell(file: Path, environ: Mapping[str, str]) -> Tuple[int, str, str]:
    """Exit status, variables, and the last complaint of a shell that sources a file. What it has started ends with it."""
    script = f'ulimit -f {MOST_PRINTED >> 10}; set -a; unset CDPATH; . "./$1" >/dev/null || exit; command -p env -0'
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:  # unlike a pipe, a file has a largest size
        shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", script, "bash", file.name], cwd=str(file.parent), env=dict(environ),
            stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
        )  # fmt: skip
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

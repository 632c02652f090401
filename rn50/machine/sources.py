"""The sources of the facts about a machine: files below a root, commands, and the environment. Those of
another machine, such as a copied root, can take their place."""

import contextlib
import pathlib
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from subprocess import DEVNULL, STDOUT
from typing import NamedTuple

from rn50 import process

Run = Callable[[Sequence[str]], tuple[int, str]]
"""Runs a command. Returns its exit status (127 if there is no such command) and its output."""

TIME_LIMIT_S, MOST_PRINTED = 20, 4 << 20


def run(argv: Sequence[str]) -> tuple[int, str]:
    """Run a command on this machine for at most ``TIME_LIMIT_S`` seconds and ``MOST_PRINTED`` bytes, with its
    messages in English."""
    limited = f'ulimit -f {MOST_PRINTED >> 9}; exec env LC_ALL=C "$@"'  # in blocks of 512 bytes
    try:
        with tempfile.TemporaryFile() as out:  # ulimit does not limit a pipe
            command = ["sh", "-c", limited, "sh", *argv]
            done = subprocess.run(command, stdin=DEVNULL, stdout=out, stderr=STDOUT, timeout=TIME_LIMIT_S)
            out.seek(0)
            printed = out.read().decode(errors="replace")
    except subprocess.TimeoutExpired:
        return 124, f"{argv[0]} gave no answer within {TIME_LIMIT_S} s"
    except OSError as error:
        return 126, str(error)
    if done.returncode == -signal.SIGXFSZ:
        return 126, f"{argv[0]} printed more than {MOST_PRINTED:,} bytes"
    return done.returncode, printed


class Sources(NamedTuple):
    """The files and commands of one machine, and the environment of a process on it."""

    root: pathlib.Path = pathlib.Path("/")
    run: Run = run
    environ: Mapping[str, str] = process.environment()

    def text(self, path: str) -> str:
        """Return the text of a file, stripped of white space; "" if there is no such file or it may not be
        read."""
        with contextlib.suppress(OSError):
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace").strip()
        return ""

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder; none if there is no such folder."""
        with contextlib.suppress(OSError):
            return sorted(entry.name for entry in (self.root / path.lstrip("/")).iterdir())
        return []

    def output(self, *argv: str) -> str:
        """Return the output of a command; "" if it failed."""
        status, printed = self.run(argv)
        return printed if status == 0 else ""


HERE = Sources()
"""This machine."""

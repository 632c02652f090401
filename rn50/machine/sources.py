"""``Sources``, from which ``rn50/machine`` reads its facts about a machine: the files below a root folder,
commands, and the environment. Tests pass those of another machine."""

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

TIME_LIMIT_S, LARGEST_OUTPUT = 20, 4 << 20
"""Limits of a command, in seconds and bytes: a broken driver lets nvidia-smi hang, for example."""


def run(argv: Sequence[str]) -> tuple[int, str]:
    """Run a command on this machine, with its messages in English. Return its exit status and its output
    (standard output and error together), or a status of 124 (too slow) or 126 and the reason why there is no
    output."""
    # The limit of a file's size is in blocks of 512 bytes.
    limited = f'ulimit -f {LARGEST_OUTPUT >> 9}; exec env LC_ALL=C "$@"'
    try:
        with tempfile.TemporaryFile() as out:  # a file, because ulimit does not limit a pipe
            command = ["sh", "-c", limited, "sh", *argv]
            ended = subprocess.run(command, stdin=DEVNULL, stdout=out, stderr=STDOUT, timeout=TIME_LIMIT_S)
            out.seek(0)
            printed = out.read().decode(errors="replace")
    except subprocess.TimeoutExpired:
        return 124, f"{argv[0]} gave no answer within {TIME_LIMIT_S} s"
    except OSError as error:
        return 126, str(error)
    if ended.returncode == -signal.SIGXFSZ:
        return 126, f"{argv[0]} printed more than {LARGEST_OUTPUT:,} bytes"
    return ended.returncode, printed


class Sources(NamedTuple):
    """The files and commands of a machine, and the environment of a process on it; by default those of this
    machine and process."""

    root: pathlib.Path = pathlib.Path("/")
    run: Run = run
    environ: Mapping[str, str] = process.environment()

    def text(self, path: str) -> str:
        """Return the text of a file below the root, without white space at its ends; "" if there is no such
        file or it cannot be read."""
        with contextlib.suppress(OSError):
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace").strip()
        return ""

    def names(self, path: str) -> list[str]:
        """Return the sorted names of the files in a folder below the root; [] if there is no such folder."""
        with contextlib.suppress(OSError):
            return sorted(entry.name for entry in (self.root / path.lstrip("/")).iterdir())
        return []

    def output(self, *argv: str) -> str:
        """Return the output of a command; "" if its exit status is not 0."""
        status, printed = self.run(argv)
        return printed if status == 0 else ""


HERE = Sources()
"""The sources of this machine."""

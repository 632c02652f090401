"""Commands as a person types them: on a pseudo-terminal of a given width; and the same in a pipe."""

import contextlib
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
RN50 = (sys.executable, "-m", "rn50")
LIMIT_S = 300
CTRL_C = b"\x03"
_OURS = {**os.environ, "TERM": "xterm-256color"}
for _name in ("CI", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    _OURS.pop(_name, None)

ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|.)", re.DOTALL)
COLOR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|9[0-7])(?:;\d+)*m")
CURSOR = re.compile(r"\x1b\[[0-9;?]*[A-HJKhl]")
TABLE = "┏┡│└┃├╭╰ "
"""What a row of a table begins with: its frame, or a space where it has none. No sentence does."""


class Shown(NamedTuple):
    """The exit status, and all that the terminal or the pipe was sent."""

    status: int
    raw: str

    @property
    def text(self):
        """Without the escape sequences."""
        return ESCAPE.sub("", self.raw).replace("\r\n", "\n")

    @property
    def lines(self):
        """Lines as they stand in the end: what a carriage return has led back over is gone."""
        return [line.rsplit("\r", 1)[-1] for line in self.text.split("\n")]


def on_terminal(command, columns=80, keys=None, cwd=ROOT, **environment):
    """Types a command into a terminal of ``columns``; ``keys`` is (what to wait for on the screen, what to
    type then)."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        list(map(str, command)), cwd=str(cwd), env={**_OURS, **environment}, stdin=slave, stdout=slave,
        stderr=slave, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(slave)
    raw, typed, deadline = b"", keys is None, time.monotonic() + LIMIT_S
    try:
        while time.monotonic() < deadline:
            if not select.select([master], [], [], 0.2)[0]:
                if process.poll() is not None:
                    break  # something that it left behind may hold the terminal
                continue
            try:
                piece = os.read(master, 65536)
            except OSError:  # the last process has closed it
                break
            raw += piece
            if not typed and keys[0] in ESCAPE.sub("", raw.decode(errors="replace")):
                os.write(master, keys[1])
                typed = True
        return Shown(
            process.wait(max(0.1, deadline - time.monotonic())), raw.decode(errors="surrogateescape"))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(master)


def in_pipe(command, cwd=ROOT, **environment):
    """The same with standard output and error in one pipe."""
    done = subprocess.run(
        list(map(str, command)), cwd=str(cwd), env={**_OURS, **environment}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)
    return Shown(done.returncode, done.stdout.decode(errors="surrogateescape"))


def assert_well(shown, statuses, columns=None):
    """It ended as it should, without a fault; a table fits the terminal, and a cursor that was hidden is
    back."""
    assert shown.status in statuses, shown.text
    assert "Traceback" not in shown.text and "RN50_DEBUG=1" not in shown.text, shown.text
    hidden, back = shown.raw.rfind("\x1b[?25l"), shown.raw.rfind("\x1b[?25h")
    assert hidden <= back
    if columns:
        # A line of JSON begins with spaces too, and is never folded.
        rows = [line for line in shown.lines if line[:1] in TABLE and not line.lstrip().startswith('"')]
        wide = [line for line in rows if len(line) > columns]
        assert not wide, wide[:3]


def assert_plain(shown):
    """Nothing but lines of text: no escape sequence, no line that is written over."""
    assert "\x1b" not in shown.raw and "\r" not in shown.raw.replace("\r\n", "\n"), shown.raw

"""End a run before its time, and its log with it: on a signal, and when the watchdog finds a rank that makes
no progress."""

import os
import signal
import threading
import time
from typing import NoReturn

from rn50 import files
from rn50.run.mlperf_log import RunLog
from rn50.terminal import say

LAST_WORDS_S = 5
"""Time limit in seconds for ending the log, because the disk may be what hangs."""
AFTER_RANK_0_S = 0.5
"""Time that the other ranks leave rank 0, which ends the log: mpirun kills all ranks one second after the
first one has ended."""


def at_once(log: RunLog, status: int, line: str | None) -> NoReturn:
    """End the log with status "aborted", print ``line``, and end this process, whatever its other threads
    do."""
    threading.Timer(LAST_WORDS_S, os._exit, (status,)).start()
    try:
        log.run_stop("aborted")
    finally:
        if line is not None:
            say(f"rn50: {line}", err=True)
        files.discard_unfinished()
        os._exit(status)


class OnSignal:
    """While it is open, SIGINT and SIGTERM end the run at once.

    Only SIGINT is reported, because it comes from a person who started this one process. The sender of
    SIGTERM reports why.

    The main thread may be in a native call that waits for a rank that no longer exists; Python runs no signal
    handler then. So the interpreter's wake-up descriptor wakes a thread of our own, which does not depend on
    the main thread.
    """

    LINES = {signal.SIGINT: "stopped by SIGINT; the same command starts the run again", signal.SIGTERM: None}

    def __init__(self, log: RunLog, rank: int):
        self._log, self._rank = log, rank

    def __enter__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._handlers = {number: signal.signal(number, lambda *_: None) for number in self.LINES}
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        for number in iter(lambda: os.read(self._read, 1), b""):
            if number[0] in self.LINES:
                if self._rank != 0:
                    time.sleep(AFTER_RANK_0_S)
                at_once(self._log, 128 + number[0], self.LINES[signal.Signals(number[0])])

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._write)

"""End the log and then this rank at once, whatever its threads do.

``timed_run.py`` does that on a signal (``OnSignal``), and if the watchdog finds a rank that makes no progress
(``at_once``).
"""

import os
import signal
import threading
import time
from typing import NoReturn

from rn50 import files
from rn50.run.mlperf_log import RunLog
from rn50.terminal import say

LAST_WORDS_S = 5
"""Seconds to end the log; after them the process ends anyway, because a disk may hang."""
AFTER_RANK_0_S = 0.5
"""Seconds for which the other ranks wait after a signal, so that rank 0 can end the log: mpirun kills all
ranks one second after the first rank has ended."""


def at_once(log: RunLog, status: int, line: str | None) -> NoReturn:
    """End the log with status "aborted", print ``line`` on standard error (None: nothing), and end this
    process with exit ``status``, whatever its other threads do."""
    threading.Timer(LAST_WORDS_S, os._exit, (status,)).start()
    try:
        log.run_stop("aborted")
    finally:
        if line is not None:
            say(f"rn50: {line}", err=True)
        files.discard_unfinished()
        os._exit(status)


class OnSignal:
    """Context manager: inside, SIGINT and SIGTERM end this process at once.

    Only SIGINT is reported, because it comes from a person who started this one process. The sender of
    SIGTERM reports the reason itself.

    Python runs signal handlers on the main thread only, and that thread may hang in a native call that waits
    for a rank that no longer exists. Therefore a thread of this class reads the interpreter's wake-up
    descriptor, to which the interpreter's handler in C writes the number of the signal.
    """

    LINES = {signal.SIGINT: "stopped by SIGINT; the same command starts the run again", signal.SIGTERM: None}
    """Signal -> the line to print; None: nothing."""

    def __init__(self, log: RunLog, rank: int):
        self._log, self._rank = log, rank

    def __enter__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        # Handlers that do nothing: with them the C handler runs, and the signal itself ends nothing.
        self._handlers = {number: signal.signal(number, lambda *_: None) for number in self.LINES}
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        """End the process on the first signal: the body of the thread."""
        # ``__exit__`` closes the other end, and the read then returns nothing: the thread ends.
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

"""Worker processes, for work that would wait for Python's lock in threads."""

import multiprocessing
import os
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, Callable, Optional


class Processes:
    """``count`` processes, started with the first work that they are given; a context manager, which waits for what they do.

    Each calls ``begin``, a function of a module, before anything else.
    """

    def __init__(self, count: int, begin: Optional[Callable[[], None]] = None) -> None:
        # Spawned: a forked child inherits locks held by threads that do not exist in it.
        self._executor = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin, (begin,))

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Has one of them call a function of a module. Its future raises BrokenProcessPool where a process was killed."""
        # A process that starts here inherits the blocked signal: Ctrl-C is for this process alone, which then stops them.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            return self._executor.submit(function, *arguments)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _begin(begin: Optional[Callable[[], None]]) -> None:
    """Makes a process leave when its parent is gone, by whatever signal, instead of waiting for work for ever."""
    def leave_with_parent() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()
    if begin:
        begin()

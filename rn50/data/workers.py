"""Worker processes, for work that Python's global interpreter lock would serialise in threads; results in the
order of the tasks."""

import contextlib
import multiprocessing
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

from rn50.errors import UserError
from rn50.files import only_process
from rn50.process import end_with_parent

Result = TypeVar("Result")


class Processes(ProcessPoolExecutor):
    """A pool of ``count`` processes, started at the first ``submit``; a context manager that waits for the
    submitted work."""

    def __init__(self, count: int) -> None:
        # Spawned: a forked child inherits locks held by threads that do not exist in it.
        super().__init__(count, multiprocessing.get_context("spawn"), _begin)
        self._watched: set[BaseProcess] = set()
        # A pool that ends forgets them.
        self._started, self._results = self._processes, self._result_queue

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> "Future[Any]":
        """Call a module-level function in one of the processes. The future raises BrokenProcessPool if a
        process was killed."""
        with _interrupt_held_back():
            future = super().submit(function, *arguments, **options)
        for process in set(self._started.values()) - self._watched:
            self._watched.add(process)
            threading.Thread(target=self._watch, args=(process,), daemon=True).start()
        return future

    def _watch(self, process: BaseProcess) -> None:
        """End the pool if a process was killed.

        One that was killed while it wrote a result keeps the lock of the pipe, and the reader would wait for
        the rest for ever, because this process can write there too.
        """
        connection.wait([process.sentinel])
        while process.exitcode is None:  # another thread asks for it
            time.sleep(0.01)
        if process.exitcode:
            for other in list(self._started.values()):
                other.kill()
            # The last one that is open: now the reader meets the end.
            self._results._writer.close()  # type: ignore[attr-defined]


@contextlib.contextmanager
def _interrupt_held_back() -> Iterator[None]:
    """Hold Ctrl-C back while processes start.

    They inherit the block: Ctrl-C reaches this process alone, which then stops the pool. The block is the
    thread's; where another thread takes the signal, its handler would interrupt this one between the start of
    a process and the message that it waits for.
    """
    held: list[int] = []
    of_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, lambda number, _: held.append(number)) if of_main else None
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if of_main:
            signal.signal(signal.SIGINT, before)
        if held:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def writing(folder: Path, doing: str, remedy: str, with_less: str = "") -> Iterator[None]:
    """Make ``folder`` and lock it for a process that is ``doing`` something there.

    Raises UserError, ending in ``remedy``, if a file cannot be written; ending in ``with_less``, if a process
    was killed; and if another process holds the lock.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with only_process(folder, doing):
            yield
    except OSError as error:
        raise UserError(error.filename or folder, f"cannot be written ({error.strerror})", remedy) from error
    except BrokenProcessPool as error:
        problem = f"a process {doing} was killed, perhaps for want of memory"
        raise UserError(folder, problem, with_less) from error


def in_order(futures: Iterable[Future[Result]], ahead: int) -> Iterator[Result]:
    """Yield the results of ``futures`` in order. Each is submitted when it is taken, and at most ``ahead`` at
    a time.

    If the caller stops early, those few finish uncancelled, because a pool whose processes are also killed
    fails on a cancelled task.
    """
    waiting: deque[Future[Result]] = deque()
    for future in futures:
        waiting.append(future)
        if len(waiting) == ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _begin() -> None:
    """Make this process end with its parent, even by SIGKILL, because it would wait for work for ever."""
    end_with_parent()
    if not multiprocessing.parent_process().is_alive():  # type: ignore[union-attr]
        sys.exit()  # it ended before

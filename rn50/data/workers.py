"""Worker processes that pack and generate data sets, where threads would wait for Python's global interpreter
lock: ``Processes``, a pool; ``in_order``, its results in order; ``writing``, the lock on the folder."""

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
        # "spawn", because a forked process inherits the locks that threads of this process hold, and the
        # threads that would release them do not exist in it.
        super().__init__(count, multiprocessing.get_context("spawn"), _prepare_process)
        self._watched: set[BaseProcess] = set()
        # A pool that ends sets its own attributes to None, and ``_watch`` needs the objects after that.
        self._started, self._results = self._processes, self._result_queue

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> "Future[Any]":
        """Call ``function``, which a module defines at its top level, in one of the processes. The result of
        the future raises BrokenProcessPool if a process was killed."""
        with _interrupt_held_back():
            future = super().submit(function, *arguments, **options)
        for process in set(self._started.values()) - self._watched:
            self._watched.add(process)
            threading.Thread(target=self._watch, args=(process,), daemon=True).start()
        return future

    def _watch(self, process: BaseProcess) -> None:
        """Wait until ``process`` ends, in a thread of its own, and end the pool if it was killed.

        A process that was killed while it wrote a result has written a part of the result into the pipe, and
        the pool would wait for the rest for ever: the pipe does not end while any process can write to it,
        and this process can. So this method ends all processes and closes the pipe here.
        """
        connection.wait([process.sentinel])
        while process.exitcode is None:  # another thread is fetching the exit status
            time.sleep(0.01)
        if process.exitcode:
            for other in list(self._started.values()):
                other.kill()
            self._results._writer.close()  # type: ignore[attr-defined]


@contextlib.contextmanager
def _interrupt_held_back() -> Iterator[None]:
    """Hold Ctrl-C back while worker processes start.

    SIGINT is blocked, and the processes inherit the block: Ctrl-C then reaches this process alone, which
    stops the pool. But the block holds for this thread only. Another thread may receive the signal, and
    Python would then run its handler in the main thread, between the start of a process and the message that
    the process waits for. So a handler that only notes the signal takes its place, and the signal is raised
    again at the end.
    """
    received: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    # No thread but the main thread may set a handler.
    handler = signal.signal(signal.SIGINT, lambda number, _: received.append(number)) if is_main else None
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if is_main:
            signal.signal(signal.SIGINT, handler)
        if received:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def writing(folder: Path, doing: str, remedy: str, with_less: str = "") -> Iterator[None]:
    """Make ``folder``, and hold a lock on it while this process writes files there. In messages, ``doing``
    says what this process does, as "packing a data set".

    Raises UserError with ``remedy`` if a file cannot be written, UserError with the remedy ``with_less`` if a
    worker process was killed, and UserError if another process holds the lock.
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
    """Yield the results of ``futures`` in order. ``futures`` is a generator that submits a task when its next
    future is taken; at most ``ahead`` tasks are submitted at a time.

    If the caller stops early, the submitted tasks are not cancelled and finish, because a pool whose
    processes are then killed fails on a cancelled task.
    """
    waiting: deque[Future[Result]] = deque()
    for future in futures:
        waiting.append(future)
        if len(waiting) == ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _prepare_process() -> None:
    """Let this worker process end when its parent ends, even by SIGKILL; else it would wait for tasks for
    ever."""
    end_with_parent()
    if not multiprocessing.parent_process().is_alive():  # type: ignore[union-attr]
        sys.exit()  # the parent ended before the call of end_with_parent

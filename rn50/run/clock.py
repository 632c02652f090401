"""The clock of the log, and the time that repeated work of all ranks takes."""

import functools
import time
from collections.abc import Callable


@functools.cache
def _boot_time() -> float:
    """Return the wall-clock time at which the machine started, read once per process."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def now_ms() -> int:
    """Return the wall-clock time in milliseconds since the epoch, the unit of ``time_ms``.

    The wall clock is read once per process. From then on a clock counts that nobody can set and that runs
    while the machine sleeps. So differences are right even if the wall clock jumps in mid-run.
    """
    return int((_boot_time() + time.clock_gettime(time.CLOCK_BOOTTIME)) * 1000)


def seconds_of(work: Callable[[], object], barrier: Callable[[], None], repeats: int) -> list[float]:
    """Return the seconds of each of ``repeats`` calls of ``work``; all ranks meet before each."""
    seconds = []
    for _ in range(repeats):
        barrier()
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return seconds

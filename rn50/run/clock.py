"""The clock of the MLPerf log, and a timer of work that all ranks do together."""

import functools
import time
from collections.abc import Callable


@functools.cache
def _boot_time() -> float:
    """Return the wall-clock time at which the machine started, read once per process."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def now_ms() -> int:
    """Return the wall-clock time in milliseconds since 1970, the unit of ``time_ms`` in the log.

    The wall clock is read once per process. The time since then is that of CLOCK_BOOTTIME, which nobody can
    set and which runs while the machine sleeps. So differences are right even if the wall clock is set during
    the run.
    """
    return int((_boot_time() + time.clock_gettime(time.CLOCK_BOOTTIME)) * 1000)


def seconds_of(work: Callable[[], object], barrier: Callable[[], None], repeats: int) -> list[float]:
    """Return the seconds of each of ``repeats`` calls of ``work``. Before each call all ranks wait for each
    other in ``barrier``."""
    seconds = []
    for _ in range(repeats):
        barrier()
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return seconds

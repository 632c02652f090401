"""The clock of the log."""

import functools
import time


@functools.lru_cache(maxsize=None)
def _boot_time() -> float:
    """The wall-clock time at which the machine started, looked up once."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def now_ms() -> int:
    """Wall-clock time in milliseconds since the epoch, the unit of ``time_ms``.

    The wall clock is read once a process; from then on time is counted by a clock that nobody can set, and that goes on while the
    machine sleeps. So differences are right even where the wall clock jumps in mid-run.
    """
    return int((_boot_time() + time.clock_gettime(time.CLOCK_BOOTTIME)) * 1000)

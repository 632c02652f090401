"""The clock of the log."""

import functools
import time


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

"""All-reduces through any communicator: their timing, and sums of numbers and of long arrays.

``timed_run.py`` calls ``speed_lines`` before the clock starts; ``rn50 bench comm`` calls ``time_sums``.
"""

import statistics
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rn50.benchmark import rules
from rn50.run.engine import Communicator
from rn50.settings.config import Config

SLOW = 1.5
"""Warn about a rank whose forward pass takes more than this many times the fastest rank's."""
REPEATS = 5
"""Number of timed all-reduces of the gradients; their median counts."""
FLOAT_BYTES = 4
"""Bytes of a float32 number, in which gradients are summed."""
LARGEST_SUM = 4096
"""Most int64 values that every communicator sums in one call."""


class Timing(NamedTuple):
    """Times of all-reduces of one size."""

    bytes: int
    """Bytes of each rank's array."""
    seconds: float
    """Median of the repeats."""
    fastest_seconds: float
    """Seconds of the fastest repeat."""
    bus_gb_per_second: float
    """``2 (n - 1) / n * bytes / seconds / 1e9`` with n ranks: at least so many gigabytes a second each rank
    sends, and receives, whatever the algorithm. nccl-tests calls it "busbw"."""


def time_sums(communicator: Communicator, size: int, repeats: int) -> Timing:
    """Time ``repeats`` all-reduces of ``size`` bytes, after one that is not counted. All ranks call it."""
    seconds = communicator.all_reduce_seconds(size // FLOAT_BYTES, 1 + repeats)[1:]
    median = statistics.median(seconds)
    bus_bytes = 2 * (communicator.size - 1) / communicator.size * size
    return Timing(size, median, min(seconds), bus_bytes / median / 1e9 if median else 0.0)


def time_gradients(config: Config, communicator: Communicator) -> Timing:
    """Time the all-reduce of the network's gradients. All ranks call it."""
    # PARAMETERS is for width 1. Nearly all parameters are weights of convolutions, which have ``width`` times
    # as many inputs, and as many outputs.
    return time_sums(communicator, FLOAT_BYTES * round(rules.PARAMETERS * config.data.width**2), REPEATS)


def speed_lines(
    config: Config, communicator: Communicator, forward_seconds: float, hosts: Mapping[int, str]
) -> list[str]:
    """Return a line with the speed of the gradients' all-reduce, then a warning for every slow rank. Return
    no line for a run of one rank.

    ``forward_seconds`` is the time of this rank's forward pass. ``hosts`` maps ranks to host names. All ranks
    call this function, and rank 0 shows the lines.
    """
    if communicator.size == 1:
        return []
    timing = time_gradients(config, communicator)
    # Each rank sets its own element of an array of zeros, so the sum has the times of all ranks.
    microseconds = np.zeros(communicator.size, dtype=np.int64)
    microseconds[communicator.rank] = round(forward_seconds * 1e6)
    microseconds = communicator.all_reduce(microseconds)
    fastest = int(microseconds.argmin())
    sums = f"{timing.bytes / 1e6:.1f} MB of gradients are summed in {timing.seconds * 1e3:.1f} ms"
    passes = f"{microseconds.min() / 1e3:.1f} to {microseconds.max() / 1e3:.1f} ms"
    ranks = f"{communicator.size} ranks, {communicator.library}"
    lines = [f"{ranks}: {sums} ({timing.bus_gb_per_second:.2f} GB/s); a forward pass takes {passes}"]
    for rank in np.flatnonzero(microseconds > SLOW * microseconds[fastest]):
        ratio = microseconds[rank] / microseconds[fastest]
        slow, fast = (f"rank {number} ({hosts.get(int(number), '?')})" for number in (rank, fastest))
        problem = f"{slow} takes {ratio:.1f} times as long for a forward pass as {fast}, and all wait for it"
        lines.append(f"warning: {problem}; look at load, clocks and binding of its cores")
    return lines


def total(communicator: Communicator, number: int) -> int:
    """Return the sum of a number over all ranks. All ranks call it."""
    return int(communicator.all_reduce(np.array([number], dtype=np.int64))[0])


def sum_in_pieces(communicator: Communicator, array: np.ndarray) -> np.ndarray:
    """Return the element-wise sum over all ranks of an int64 array of one dimension and any length. All ranks
    call it."""
    pieces = [array[start : start + LARGEST_SUM] for start in range(0, len(array), LARGEST_SUM)]
    return np.concatenate([communicator.all_reduce(piece) for piece in pieces])

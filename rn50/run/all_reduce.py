"""Time the all-reduce of the gradients before the clock starts, and sum arrays of any length."""

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
FLOAT_BYTES = 4
LARGEST_SUM = 4096
"""int64 values that any communicator sums at once."""


class Timing(NamedTuple):
    """All-reduces of one size, as timed on rank 0."""

    bytes: int
    """Bytes that each rank adds."""
    seconds: float
    """Median of the repeats."""
    fastest_seconds: float
    """Seconds of the fastest repeat."""
    bus_gb_per_second: float
    """``2 (n - 1) / n * bytes / seconds``: the least that each of the n ranks has to send and receive,
    whatever the algorithm. It is the "busbw" of nccl-tests."""


def time_sums(communicator: Communicator, size: int, repeats: int) -> Timing:
    """Time ``repeats`` all-reduces of ``size`` bytes, after one that is not counted. All ranks call it."""
    seconds = communicator.all_reduce_seconds(size // FLOAT_BYTES, 1 + repeats)[1:]
    median = statistics.median(seconds)
    share = 2 * (communicator.size - 1) / communicator.size
    return Timing(size, median, min(seconds), share * size / median / 1e9 if median else 0.0)


def of_gradients(config: Config, communicator: Communicator) -> Timing:
    """Time the all-reduce of the network's gradients. All ranks call it."""
    return time_sums(communicator, FLOAT_BYTES * round(rules.PARAMETERS * config.data.width**2), REPEATS)


def before_the_clock(
    config: Config, communicator: Communicator, forward_seconds: float, hosts: Mapping[int, str]
) -> list[str]:
    """Return a line with the speed of the gradients' all-reduce, then a warning for every slow rank.

    ``forward_seconds`` are those of this rank's forward pass; ``hosts`` maps each rank to its host name.
    Every rank calls it; the lines are for rank 0 to show.
    """
    if communicator.size == 1:
        return []
    timing = of_gradients(config, communicator)
    microseconds = np.zeros(communicator.size, dtype=np.int64)
    microseconds[communicator.rank] = round(forward_seconds * 1e6)
    microseconds = communicator.all_reduce(microseconds)
    fastest = int(microseconds.argmin())
    sums = f"{timing.bytes / 1e6:.1f} MB of gradients are summed in {timing.seconds * 1e3:.1f} ms"
    passes = f"{microseconds.min() / 1e3:.1f} to {microseconds.max() / 1e3:.1f} ms"
    ranks = f"{communicator.size} ranks, {communicator.library}"
    lines = [f"{ranks}: {sums} ({timing.bus_gb_per_second:.2f} GB/s); a forward pass takes {passes}"]
    for rank in np.flatnonzero(microseconds > SLOW * microseconds[fastest]):
        times = microseconds[rank] / microseconds[fastest]
        slow, fast = (f"rank {number} ({hosts.get(int(number), '?')})" for number in (rank, fastest))
        longer = f"{slow} takes {times:.1f} times as long for a forward pass as {fast}, and all wait for it"
        lines.append(f"warning: {longer}; look at load, clocks and binding of its cores")
    return lines


def total(communicator: Communicator, number: int) -> int:
    """Return the sum of a number over all ranks. All ranks call it."""
    return int(communicator.all_reduce(np.array([number], dtype=np.int64))[0])


def in_pieces(communicator: Communicator, array: np.ndarray) -> np.ndarray:
    """Return the sum of an int64 array of one dimension and any length over all ranks. All ranks call it."""
    pieces = [array[start : start + LARGEST_SUM] for start in range(0, len(array), LARGEST_SUM)]
    return np.concatenate([communicator.all_reduce(piece) for piece in pieces])

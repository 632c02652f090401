"""The all-reduce of the gradients, timed before the clock."""

import statistics
from typing import List, Mapping, NamedTuple

import numpy as np

from rn50.benchmark import rules
from rn50.run.implementation import Communicator, Implementation
from rn50.settings.config import Config

SLOW = 1.5
"""Warn about a rank whose forward pass takes more than this many times the fastest rank's."""
REPEATS = 5
FLOAT_BYTES = 4


class Timing(NamedTuple):
    """Sums of one size over all ranks, as rank 0 saw them."""

    bytes: int
    seconds: float
    """Median."""
    fastest_seconds: float
    bus_gb_per_second: float
    """``2 (n - 1) / n * bytes / seconds``: what each of the n ranks has to send and receive at least, whatever the algorithm; the
    "busbw" of nccl-tests."""


def time_sums(communicator: Communicator, size: int, repeats: int) -> Timing:
    """``repeats`` sums of ``size`` bytes after one that is not counted. All ranks call it."""
    seconds = communicator.all_reduce_seconds(size // FLOAT_BYTES, 1 + repeats)[1:]
    median = statistics.median(seconds)
    share = 2 * (communicator.size - 1) / communicator.size
    return Timing(size, median, min(seconds), share * size / median / 1e9 if median else 0.0)


def before_the_clock(config: Config, implementation: Implementation, hosts: Mapping[int, str]) -> List[str]:
    """What there is to say of the ranks before the clock runs: how fast gradients are summed, then a line for every slow rank.

    ``hosts`` names the host of every rank; the lines are for rank 0, but every rank calls it.
    """
    communicator = implementation.communicator
    if communicator.size == 1:
        return []
    timing = time_sums(communicator, FLOAT_BYTES * round(rules.PARAMETERS * config.data.width**2), REPEATS)
    microseconds = np.zeros(communicator.size, dtype=np.int64)
    microseconds[communicator.rank] = round(implementation.forward_seconds * 1e6)
    microseconds = communicator.sum(microseconds)
    fastest = int(microseconds.argmin())
    lines = [
        f"{communicator.size} ranks, {communicator.library}: {timing.bytes / 1e6:.1f} MB of gradients are summed in "
        f"{timing.seconds * 1e3:.1f} ms ({timing.bus_gb_per_second:.2f} GB/s); a forward pass takes "
        f"{microseconds.min() / 1e3:.1f} to {microseconds.max() / 1e3:.1f} ms"
    ]
    for rank in np.flatnonzero(microseconds > SLOW * microseconds[fastest]):
        times = microseconds[rank] / microseconds[fastest]
        lines.append(
            f"warning: rank {rank} ({hosts.get(int(rank), '?')}) takes {times:.1f} times as long for a forward pass as rank "
            f"{fastest} ({hosts.get(fastest, '?')}), and all wait for it; look at load, clocks and binding of its cores"
        )
    return lines

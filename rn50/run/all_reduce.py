"""The sum of the gradients over the ranks, timed: once before the clock, and by size (``rn50 bench comm``)."""

import re
import statistics
from typing import Callable, List, Mapping, NamedTuple

import numpy as np
from rich.table import Table

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.process import environment
from rn50.run.implementation import Communicator, Implementation
from rn50.settings.config import Config
from rn50.settings.variables import PASSED_THROUGH
from rn50.terminal import Terminal, print_json

SLOW = 1.5
"""A rank whose forward pass takes so many times as long as the fastest rank's is spoken of."""
REPEATS = 5
FLOAT_BYTES = 4
OF_ONE_RANK = r"HOROVOD_(.*RANK|.*SIZE|HOSTNAME|GLOO_RENDEZVOUS_.*)$|OMPI_COMM_|PMIX_|LD_"
"""Variables that launchers set; they say nothing of the settings that one compares."""


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


def sweep(communicator: Communicator, largest_bytes: int) -> List[Timing]:
    """Timings of 4 bytes, 16, 64 ... up to ``largest_bytes``. All ranks call it."""
    sizes = [FLOAT_BYTES]
    while sizes[-1] * 4 <= largest_bytes:
        sizes.append(sizes[-1] * 4)
    return [time_sums(communicator, size, 50 if size < 1 << 20 else 10) for size in sizes]


def as_rank(config: Config, largest_mib: int, as_json: bool) -> List[str]:
    """What ``rn50`` is to be called with as one rank of the measurement. Raises UserError where there is one rank only."""
    if config.ranks == 1:
        raise UserError("DGXNGPU=1: one rank has nothing to send; set DGXNGPU=2 or more")
    return ["bench", "comm", "--as-rank", f"--largest-mib={largest_mib}", *(["--json"] if as_json else [])]


def bench(config: Config, create: Callable[[Config], Implementation], largest_bytes: int, as_json: bool) -> None:
    """Times the sums as one rank; rank 0 prints them as JSON or as a table."""
    implementation = create(config)
    try:
        communicator = implementation.communicator
        timings = sweep(communicator, largest_bytes)
        if communicator.rank == 0:
            _show(config, communicator, timings, as_json)
        communicator.barrier()
    finally:
        implementation.close()


def _show(config: Config, communicator: Communicator, timings: List[Timing], as_json: bool) -> None:
    if as_json:
        used = {name: value for name, value in sorted(environment().items())
                if name.startswith(PASSED_THROUGH) and not re.match(OF_ONE_RANK, name)}
        report = {"library": communicator.library, "ranks": communicator.size, "nodes": config.run.nodes, "environment": used}
        print_json({**report, "all_reduce": [timing._asdict() for timing in timings]})
        return
    title = f"sums of float32 numbers over {communicator.size} ranks ({communicator.library})"
    table = Table(title=title, title_justify="left")
    for heading in ("bytes", "median ms", "fastest ms", "bus GB/s"):
        table.add_column(heading, justify="right")
    for timing in timings:
        times = (f"{seconds * 1e3:.3f}" for seconds in (timing.seconds, timing.fastest_seconds))
        table.add_row(f"{timing.bytes:,}", *times, f"{timing.bus_gb_per_second:.3f}")
    Terminal().print(table)

"""``rn50 bench comm``: the time of an all-reduce over the ranks of a run, by its size. Every rank calls
``as_rank``."""

import re
from typing import NamedTuple

from rn50.frameworks import traits
from rn50.process import environment
from rn50.run.all_reduce import FLOAT_BYTES, Timing, time_sums
from rn50.run.engine import Communicator
from rn50.run.loop import opened
from rn50.settings.config import Config
from rn50.settings.libraries import PASSED_THROUGH
from rn50.terminal import Terminal, print_json, table

OF_ONE_RANK = r"HOROVOD_(.*RANK|.*SIZE|HOSTNAME|GLOO_RENDEZVOUS_.*)$|OMPI_COMM_|PMIX_|LD_"
"""Pattern of the names of variables that launchers set and that differ between ranks or machines. They are no
settings to compare results by, so they are not reported."""


class AllReduces(NamedTuple):
    """Times of all-reduces by size, and the settings in effect."""

    library: str
    """Library that moves the bytes."""
    ranks: int
    """Number of ranks on all machines."""
    nodes: int
    """Number of machines."""
    environment: dict[str, str]
    """Variables of libraries that were set: name -> value."""
    all_reduce: list[Timing]


def as_rank(config: Config, largest_mib: int, as_json: bool) -> None:
    """Time all-reduces of 4, 16, 64, ... bytes, up to ``largest_mib``, as one rank. Rank 0 prints the times,
    as JSON or as a table."""
    sizes = [FLOAT_BYTES]
    while sizes[-1] * 4 <= largest_mib << 20:
        sizes.append(sizes[-1] * 4)
    with opened(config) as rank:
        communicator = rank.communicator
        # 50 repetitions of each size below 1 MiB, then 10.
        timings = [time_sums(communicator, size, 50 if size < 1 << 20 else 10) for size in sizes]
        if communicator.rank == 0:
            _show(config, communicator, timings, as_json)


def _show(config: Config, communicator: Communicator, timings: list[Timing], as_json: bool) -> None:
    """Print the times, as JSON or as a table."""
    if as_json:
        left_out = "|".join(filter(None, (OF_ONE_RANK, traits(config.run.framework).of_one_rank)))
        names = sorted(name for name in environment() if name.startswith(PASSED_THROUGH))
        settings = {name: environment()[name] for name in names if not re.match(left_out, name)}
        print_json(AllReduces(communicator.library, communicator.size, config.run.nodes, settings, timings))
        return
    title = f"all-reduces of float32 numbers over {communicator.size} ranks ({communicator.library})"
    by_size = table(("bytes", "median ms", "fastest ms", "bus GB/s"), title=title)
    for timing in timings:
        times = (f"{seconds * 1e3:.3f}" for seconds in (timing.seconds, timing.fastest_seconds))
        by_size.add_row(f"{timing.bytes:,}", *times, f"{timing.bus_gb_per_second:.3f}")
    Terminal().print(by_size)

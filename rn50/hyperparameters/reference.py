"""Epochs that MLPerf's reference implementation needs at any batch size: a curve through the reference
convergence points of the newest ruleset.

``expected_epochs.py`` and the model of ``plan/epochs.py`` measure recipes against it. The curve is that of
the official checker, ``rcp_checker.py`` of the ``mlperf_logging`` package: linear between the points,
constant below the first and above the last point, without the points that the checker prunes.
"""

import functools
import statistics
from typing import NamedTuple

import numpy as np

from rn50.results import rcp


class ReferencePoint(NamedTuple):
    """Epochs that the reference's runs at a global batch size needed."""

    batch_size: int
    mean: float
    low: float
    """Fewest epochs of a run."""
    high: float
    """Most epochs of a run."""


@functools.cache
def points() -> tuple[ReferencePoint, ...]:
    """Return the points in the order of their batch sizes, without those that the official checker prunes."""
    remaining = rcp.reference().pruned_rcp_data.values()  # the data after the pruning
    by_size = sorted((point["BS"], point["Epochs to converge"]) for point in remaining)
    return tuple(ReferencePoint(size, statistics.mean(runs), min(runs), max(runs)) for size, runs in by_size)


@functools.lru_cache(maxsize=4096)
def interpolated(batch_size: int) -> ReferencePoint:
    """Return the point of the curve at a batch size."""
    # The batch sizes, and the curves of the means, of the fewest and of the most epochs.
    sizes, *curves = zip(*points(), strict=True)
    return ReferencePoint(batch_size, *(float(np.interp(batch_size, sizes, curve)) for curve in curves))


def neighbours(batch_size: int) -> str:
    """Return in words the points between which ``interpolated`` interpolates."""
    sizes = [point.batch_size for point in points()]
    below = max((size for size in sizes if size <= batch_size), default=sizes[0])
    above = min((size for size in sizes if size >= batch_size), default=sizes[-1])
    names = [f"{batch:,}" for batch in dict.fromkeys((below, above))]
    return f"the reference's points at {' and '.join(names)}"

"""Epochs that the reference needs by batch size: a curve through the reference convergence points of the
newest ruleset.

As in the official checker, ``rcp_checker.py`` of the ``mlperf_logging`` package, the curve is linear between
points, leaves out the points that the checker prunes, and is constant below the first point and above the
last one.
"""

import functools
import statistics
from typing import NamedTuple

import numpy as np

from rn50.results import rcp


class ReferencePoint(NamedTuple):
    """Mean, fewest and most epochs of the reference's runs at a batch size."""

    batch_size: int
    mean: float
    low: float
    high: float


@functools.cache
def points() -> tuple[ReferencePoint, ...]:
    """Return the points by batch size, without those that the official checker prunes."""
    kept = rcp.reference().pruned_rcp_data.values()
    runs = sorted((point["BS"], point["Epochs to converge"]) for point in kept)
    return tuple(ReferencePoint(size, statistics.mean(all_), min(all_), max(all_)) for size, all_ in runs)


@functools.lru_cache(maxsize=4096)
def at(batch_size: int) -> ReferencePoint:
    """Return the point of the curve at a batch size."""
    sizes, *curves = zip(*points(), strict=True)
    return ReferencePoint(batch_size, *(float(np.interp(batch_size, sizes, curve)) for curve in curves))


def beside(batch_size: int) -> str:
    """Name the points between which ``at`` interpolates."""
    sizes = [point.batch_size for point in points()]
    below = max((size for size in sizes if size <= batch_size), default=sizes[0])
    above = min((size for size in sizes if size >= batch_size), default=sizes[-1])
    names = [f"{batch:,}" for batch in dict.fromkeys((below, above))]
    return f"the reference's points at {' and '.join(names)}"

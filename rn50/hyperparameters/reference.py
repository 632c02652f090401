"""Epochs that the reference needs by batch size: a curve through the reference convergence points of the
newest ruleset.

As in the official checker, the curve is linear between points, leaves out the points that the checker prunes,
and is constant below the first point and above the last one. Source: ``rcps_resnet.json`` and
``rcp_checker.py`` of the ``mlperf_logging`` package.
"""

import functools
import json
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np

from rn50.benchmark import rules
from rn50.results import recipe


@dataclass(frozen=True)
class Point:
    """Mean, fewest and most epochs of the reference's runs at a batch size."""

    batch_size: int
    mean: float
    low: float
    high: float


def convergence_points(ruleset: str) -> dict[str, dict[str, Any]]:
    """Return the reference convergence points of a ruleset by name, as the official checker has them."""
    return dict(json.loads(recipe.reference_file(ruleset).read_text(encoding="utf-8")))


@functools.cache
def points() -> tuple[Point, ...]:
    """Return the points by batch size, without those that the official checker prunes: those smaller than the
    fastest one, and those slower than the line between their neighbours."""
    every = convergence_points(rules.RULESETS[-1]).values()
    runs = sorted((rcp["BS"], rcp["Epochs to converge"]) for rcp in every)
    curve = [Point(size, statistics.mean(epochs), min(epochs), max(epochs)) for size, epochs in runs]
    fastest = min(curve, key=lambda point: point.mean)
    curve = [point for point in curve if point.batch_size >= fastest.batch_size]
    kept = curve[:1]
    for point, above in zip(curve[1:], curve[2:], strict=False):
        below = kept[-1]
        share = (point.batch_size - below.batch_size) / (above.batch_size - below.batch_size)
        if point.mean <= below.mean + (above.mean - below.mean) * share:
            kept.append(point)
    return (*kept, curve[-1])


def epochs(batch_sizes: "np.ndarray[Any, Any]", which: str = "mean") -> "np.ndarray[Any, Any]":
    """Return field ``which`` of ``Point`` at batch sizes. Shape as ``batch_sizes``, float64."""
    return np.interp(
        batch_sizes, [point.batch_size for point in points()], [getattr(point, which) for point in points()]
    )


@functools.lru_cache(maxsize=4096)
def at(batch_size: int) -> Point:
    """Return the point of the curve at a batch size."""
    mean, low, high = (float(epochs(np.array([batch_size]), which)[0]) for which in ("mean", "low", "high"))
    return Point(batch_size, mean, low, high)


def beside(batch_size: int) -> str:
    """Name the points between which ``at`` interpolates."""
    sizes = [point.batch_size for point in points()]
    below = max((size for size in sizes if size <= batch_size), default=sizes[0])
    above = min((size for size in sizes if size >= batch_size), default=sizes[-1])
    names = [f"{batch:,}" for batch in dict.fromkeys((below, above))]
    return f"the reference's points at {' and '.join(names)}"

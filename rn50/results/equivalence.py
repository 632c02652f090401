"""Test whether two sets of runs agree within a margin.

Two one-sided tests at 5 % each (D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987), on logarithms, so
that the margin is a ratio, with Welch's degrees of freedom: the sets are equivalent if the 90 % interval of
the ratio of their means lies within the margin, different if it lies outside, and undecided else. So sets
that differ by the margin are called equivalent at most once in 20 times.
"""

import bisect
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from rn50.printed import Minutes

CONFIDENCE = 0.9
POWER = 0.8
"""Chance that the runs which are asked for decide, if the ratio is what was found."""
MOST_RUNS = 1000
EQUIVALENT, DIFFERENT, UNDECIDED = "equivalent", "different", "undecided"


class Equivalence(NamedTuple):
    """Two sets of runs in one quantity."""

    claimed: Minutes
    """Geometric mean of the first."""
    found: Minutes
    """Geometric mean of the other."""
    runs: tuple[int, int]
    """Runs of both."""
    ratio: Minutes
    """found / claimed."""
    low: Minutes
    """Lower end of its 90 % interval."""
    high: Minutes
    """Upper end."""
    verdict: str
    """equivalent, different or undecided."""
    more_runs: int | None
    """How many more runs of the other would decide, in 80 of 100 cases; null: decided, or no number would."""


def judge(claimed: Sequence[float], ours: Sequence[float], margin: float) -> Equivalence:
    """Compare positive values, at least two of each. Without any spread the ratio alone decides."""
    first, second = ([math.log(value) for value in values] for values in (claimed, ours))
    change = statistics.mean(second) - statistics.mean(first)
    error, freedom = _error(first, second)
    reach = _t((1 + CONFIDENCE) / 2, freedom) * error if error else 0.0
    most = math.log1p(margin) * (1 + 1e-9)
    verdict = UNDECIDED
    if abs(change) + reach <= most:
        verdict = EQUIVALENT
    elif abs(change) - reach > most:
        verdict = DIFFERENT
    return Equivalence(
        claimed=math.exp(statistics.mean(first)),
        found=math.exp(statistics.mean(second)),
        runs=(len(first), len(second)),
        ratio=math.exp(change),
        low=math.exp(change - reach),
        high=math.exp(change + reach),
        verdict=verdict,
        more_runs=_more_runs(first, second, abs(most - abs(change))) if verdict == UNDECIDED else None,
    )


def of_more_runs(values: Sequence[float], runs: int) -> tuple[float, float]:
    """Return the 95 % interval of the mean of further ``runs`` like these positive values, at least two."""
    logs = [math.log(value) for value in values]
    deviation, mean = statistics.stdev(logs), statistics.mean(logs)
    reach = _t(0.975, len(logs) - 1) * deviation * math.sqrt(1 / len(logs) + 1 / runs)
    return math.exp(mean - reach), math.exp(mean + reach)


def _error(first: Sequence[float], second: Sequence[float], runs: int = 0) -> tuple[float, float]:
    """Return the standard error of the difference of means, of ``runs`` of the second if given, and its
    degrees of freedom (Welch and Satterthwaite)."""
    counts = len(first), runs or len(second)
    squares = [statistics.variance(side) / n for side, n in zip((first, second), counts, strict=True)]
    whole = sum(squares)
    parts = sum(square**2 / (n - 1) for square, n in zip(squares, counts, strict=True))
    return math.sqrt(whole), whole**2 / parts if parts else math.inf


def _more_runs(first: Sequence[float], second: Sequence[float], room: float) -> int | None:
    def would(runs: int) -> bool:
        error, freedom = _error(first, second, runs)
        return (_t((1 + CONFIDENCE) / 2, freedom) + _t((1 + POWER) / 2, freedom)) * error <= room

    more = range(1, MOST_RUNS)
    at = bisect.bisect_left(more, True, key=lambda runs: would(len(second) + runs))
    return more[at] if at < len(more) else None


def _t(share: float, freedom: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(min(freedom, 1e6), share))

"""Test whether two sets of runs, the claimed ones and ours, agree within a margin. ``rn50 reproduce`` judges
by it.

Method: two one-sided tests at 5 % each (D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987) with Welch's
degrees of freedom, on the logarithms of the values, so that the margin is a ratio. The sets are equivalent if
the 90 % interval of the ratio of their means lies within the margin, different if it lies outside, and
undecided otherwise. Sets that differ by exactly the margin are thus called equivalent at most once in 20
times.
"""

import bisect
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from rn50.printed import Minutes  # a number that is printed with four decimals

CONFIDENCE = 0.9
"""Confidence level of the interval of the ratio: 1 - 2 * 5 %."""
POWER = 0.8
"""Probability that ``Equivalence.more_runs`` further runs decide, if the true ratio is the one found so
far."""
MOST_RUNS = 1000
"""``Equivalence.more_runs`` stays below this number, because nobody makes more runs."""
EQUIVALENT, DIFFERENT, UNDECIDED = "equivalent", "different", "undecided"


class Equivalence(NamedTuple):
    """Two sets of runs, compared in one quantity."""

    claimed: Minutes
    """Geometric mean of the claimed runs."""
    found: Minutes
    """Geometric mean of our runs."""
    runs: tuple[int, int]
    """Number of claimed runs, and of our runs."""
    ratio: Minutes
    """found / claimed."""
    low: Minutes
    """Lower end of the 90 % interval of the ratio."""
    high: Minutes
    """Upper end of the interval."""
    verdict: str
    """equivalent, different or undecided."""
    more_runs: int | None
    """Number of further runs of ours that would decide in 80 of 100 cases; null: the verdict is decided, or
    no number below 1,000 would decide."""


def judge(claimed: Sequence[float], ours: Sequence[float], margin: float) -> Equivalence:
    """Compare two sets of positive values, at least two in each. ``margin`` is the largest ratio of the
    means, less 1, at which the sets are equivalent. If the values of each set are all equal, the ratio alone
    decides."""
    claimed_logs = [math.log(value) for value in claimed]
    our_logs = [math.log(value) for value in ours]
    change = statistics.mean(our_logs) - statistics.mean(claimed_logs)
    error, freedom = _error(claimed_logs, our_logs)
    half_width = _t_quantile((1 + CONFIDENCE) / 2, freedom) * error if error else 0.0
    most = math.log1p(margin) * (1 + 1e-9)  # so that a ratio of just the margin is within it despite rounding
    verdict = UNDECIDED
    if abs(change) + half_width <= most:
        verdict = EQUIVALENT
    elif abs(change) - half_width > most:
        verdict = DIFFERENT
    further = _more_runs(claimed_logs, our_logs, abs(most - abs(change))) if verdict == UNDECIDED else None
    return Equivalence(
        claimed=math.exp(statistics.mean(claimed_logs)),
        found=math.exp(statistics.mean(our_logs)),
        runs=(len(claimed), len(ours)),
        ratio=math.exp(change),
        low=math.exp(change - half_width),
        high=math.exp(change + half_width),
        verdict=verdict,
        more_runs=further,
    )


def prediction_interval(values: Sequence[float], runs: int) -> tuple[float, float]:
    """Return the 95 % interval of the mean of ``runs`` further runs like those with these ``values``, which
    are positive and at least two."""
    logs = [math.log(value) for value in values]
    mean = statistics.mean(logs)
    error = statistics.stdev(logs) * math.sqrt(1 / len(logs) + 1 / runs)
    half_width = _t_quantile(0.975, len(logs) - 1) * error
    return math.exp(mean - half_width), math.exp(mean + half_width)


def _error(first: Sequence[float], second: Sequence[float], runs: int = 0) -> tuple[float, float]:
    """Return the standard error of the difference of the means of two sets and its degrees of freedom (Welch
    and Satterthwaite). If ``runs`` is not 0, the second set counts as if it had so many runs."""
    n_first, n_second = len(first), runs or len(second)
    square_first, square_second = statistics.variance(first) / n_first, statistics.variance(second) / n_second
    square = square_first + square_second
    parts = square_first**2 / (n_first - 1) + square_second**2 / (n_second - 1)
    return math.sqrt(square), square**2 / parts if parts else math.inf


def _more_runs(first: Sequence[float], second: Sequence[float], distance: float) -> int | None:
    """Return how many further runs of the second set would decide with the probability ``POWER``; None if no
    number below ``MOST_RUNS`` would. ``distance`` is the distance of the difference of the means from the
    margin."""

    def decides(more: int) -> bool:
        error, freedom = _error(first, second, len(second) + more)
        # Either end of the interval may miss the margin, each with half of the probability 1 - POWER.
        quantiles = _t_quantile((1 + CONFIDENCE) / 2, freedom) + _t_quantile((1 + POWER) / 2, freedom)
        return quantiles * error <= distance

    numbers = range(1, MOST_RUNS)
    # ``decides`` is False for the first numbers and True from some number on.
    position = bisect.bisect_left(numbers, True, key=decides)
    return numbers[position] if position < len(numbers) else None


def _t_quantile(probability: float, freedom: float) -> float:
    """Return a quantile of Student's t distribution."""
    from scipy.special import stdtrit

    # ``freedom`` is infinite if the values of each set are all equal.
    return float(stdtrit(min(freedom, 1e6), probability))

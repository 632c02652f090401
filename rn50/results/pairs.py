"""Compare two results whose runs were made in turn, pair by pair, for ``rn50 run A --against B``.

The n-th runs of both results are a pair. They follow each other on the same machine, so other load slows both
alike, and the ratio within a pair says more than that of two means. The p-value is that of the exact
permutation test over the pairs (``significance.permutation_p``).
"""

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rn50 import rates
from rn50.results import compare, significance
from rn50.results.compare import Comparison
from rn50.results.score import SystemScore


class Side(NamedTuple):
    """A quantity over the runs of one result that are in a pair."""

    lowest: float
    highest: float
    noise: float
    """Standard deviation over the mean."""

    def __str__(self) -> str:
        return f"{self.lowest:.4g} to {self.highest:.4g} (noise {self.noise:.1%})"


class Pairs(NamedTuple):
    """A quantity of two results, pair by pair."""

    quantity: str
    """epochs, minutes, images_per_second, kilojoules or accuracy."""
    first: Side
    second: Side
    ratio: rates.Comparison
    """Value of the second result over that of the first; a round is a pair."""
    p: float
    """p-value of the permutation test over the pairs, of this quantity alone."""

    @property
    def sentence(self) -> str:
        """The figures in words."""
        ratio = f"{self.ratio.median:.3f}, {self.ratio.lowest:.3f} to {self.ratio.highest:.3f}"
        what = f"{compare.QUANTITIES[self.quantity][0]} in {self.ratio.rounds} pairs"
        return f"{what}: {self.first} -> {self.second}; ratio {ratio}; p = {self.p:.3f}"


def paired(comparison: Comparison, first: SystemScore, second: SystemScore) -> list[Pairs]:
    """Return each quantity of a comparison of two results over the pairs of runs that both have it, if there
    are two or more."""
    # The quantities of each run of either result.
    measured = [[compare.measured(run) for run in system.runs] for system in (first, second)]
    rows = []
    for quantity in [difference.quantity for difference in comparison.differences]:
        # Not ``strict``: a run without a counterpart in the other result is in no pair.
        values = ((a.get(quantity), b.get(quantity)) for a, b in zip(*measured, strict=False))
        pairs = [(a, b) for a, b in values if a and b]  # 0 has no ratio
        if len(pairs) > 1:
            before, after = zip(*pairs, strict=True)
            p = significance.permutation_p(before, after, paired=True)
            rows.append(Pairs(quantity, _side(before), _side(after), rates.compare(after, before), p))
    return rows


def _side(values: Sequence[float]) -> Side:
    return Side(min(values), max(values), statistics.stdev(values) / statistics.mean(values))


def sentences(rows: Sequence[Pairs]) -> Iterator[str]:
    """Yield a sentence for each quantity, and one if the pairs are too few to show a difference."""
    yield from (row.sentence for row in rows)
    most = max((row.ratio.rounds for row in rows), default=0)
    if 0 < most < significance.LEAST_PAIRS:
        least = f"p of {most} pairs is never below {2 ** (1 - most):.3g}, whatever the difference"
        yield f"{least}; from {significance.LEAST_PAIRS} pairs on it can be below 0.05"

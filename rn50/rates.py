"""Statistics of rates that are measured in rounds, and whether they show a difference between two settings.

A round measures each setting once. Other load on the machine slows measurements that are close in time by the
same factor. So two settings are compared by the ratio of their rates within each round, and the spread of the
ratios over the rounds says how far to trust the comparison.
"""

import statistics
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from rn50.printed import prints

T = TypeVar("T")

ROUNDS = 5
"""Fewest rounds that can show a difference. By chance, five rounds all favour the same setting in one of 16
cases."""


class Rates(NamedTuple):
    """Rates of one setting over several rounds."""

    median: float
    """Median of the rounds."""
    lowest: float
    """Slowest round."""
    highest: float
    """Fastest round."""


def of_rounds(values: Sequence[float]) -> Rates:
    """Return the statistics of ``values``, the rate of each round."""
    return Rates(statistics.median(values), min(values), max(values))


class Comparison(NamedTuple):
    """Ratios of the rates of two settings, one per round."""

    median: float
    """Median of the ratios."""
    lowest: float
    """Smallest ratio."""
    highest: float
    """Largest ratio."""
    rounds: int
    """Number of ratios."""

    @property
    def shown(self) -> bool:
        """True if there are five rounds or more, and all favour the same setting."""
        return self.rounds >= ROUNDS and (self.lowest > 1 or self.highest < 1)

    @property
    def spread(self) -> str:
        """The spread over the rounds in words, and whether they show a difference."""
        verdict = "" if self.shown else "; no difference that they show"
        return f"{self.lowest:.3f} to {self.highest:.3f} in {self.rounds} rounds{verdict}"


# What ``--json`` prints of it.
prints(Comparison, lambda r: (r.median, r.lowest, r.highest, r.rounds, r.shown))


def alternated(sides: Sequence[T], round_: int) -> Sequence[T]:
    """Return ``sides`` in the order in which to measure them in round 0, 1, ...: every second round measures
    them in reverse."""
    return sides[::-1] if round_ % 2 else sides


def compare(first: Sequence[float], other: Sequence[float]) -> Comparison:
    """Return the ratios of the rates ``first`` to the rates ``other``. Both have one rate per round."""
    ratios = [left / right for left, right in zip(first, other, strict=False)]
    return Comparison(statistics.median(ratios), min(ratios), max(ratios), len(ratios))

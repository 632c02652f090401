"""Rates that were measured in turn, round after round, and whether they show a difference.

Other load on a machine slows measurements close in time alike. So two things are compared within each round,
and the spread over the rounds says how far to trust the comparison.
"""

import statistics
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from rn50.printed import prints

T = TypeVar("T")

ROUNDS = 5
"""Fewest rounds that can show a difference: five rounds all favour one side by chance once in 16 times."""


class Rates(NamedTuple):
    """One measurement per round."""

    median: float
    """Median of the rounds."""
    lowest: float
    """Slowest round."""
    highest: float
    """Fastest round."""


def of_rounds(values: Sequence[float]) -> Rates:
    """Return the median, lowest and highest of one measurement per round."""
    return Rates(statistics.median(values), min(values), max(values))


class Comparison(NamedTuple):
    """Two sides that were measured in the same rounds, as the ratio of their speeds."""

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
        """True if at least five rounds all favour the same side."""
        return self.rounds >= ROUNDS and (self.lowest > 1 or self.highest < 1)

    @property
    def spread(self) -> str:
        """Return the spread over the rounds and whether they show a difference, in words."""
        verdict = "" if self.shown else "; no difference that they show"
        return f"{self.lowest:.3f} to {self.highest:.3f} in {self.rounds} rounds{verdict}"


prints(Comparison, lambda r: (r.median, r.lowest, r.highest, r.rounds, r.shown))


def alternated(sides: Sequence[T], round_: int) -> Sequence[T]:
    """Return the sides in the order of a round, which is reversed in every second one."""
    return sides[::-1] if round_ % 2 else sides


def compare(first: Sequence[float], other: Sequence[float]) -> Comparison:
    """Compare two sides that were both measured once in every round."""
    ratios = [left / right for left, right in zip(first, other, strict=False)]
    return Comparison(statistics.median(ratios), min(ratios), max(ratios), len(ratios))

"""Rates that were measured in turn, round after round, and whether they show a difference.

Whatever else a machine does slows neighbours in time alike, so two things are compared within each round, and the rounds say how
far such a comparison is to be trusted.
"""

import statistics
from typing import Any, Dict, NamedTuple, Sequence

ROUNDS = 5
"""Fewer cannot show a difference: that five rounds all favour one side by chance happens once in 16 times."""


class Rates(NamedTuple):
    """Median, lowest and highest of what the rounds gave."""

    median: float
    lowest: float
    highest: float

    def to_json(self) -> Dict[str, float]:
        return self._asdict()


def of_rounds(values: Sequence[float]) -> Rates:
    """Of one value a round."""
    return Rates(statistics.median(values), min(values), max(values))


class Comparison(NamedTuple):
    """How many times as fast one side is as another: median, lowest and highest of the ratios within a round."""

    median: float
    lowest: float
    highest: float
    rounds: int

    @property
    def shown(self) -> bool:
        """Whether all rounds, and enough of them, favour one side."""
        return self.rounds >= ROUNDS and (self.lowest > 1 or self.highest < 1)

    @property
    def spread(self) -> str:
        """What the rounds say of the difference, in words."""
        verdict = "" if self.shown else "; no difference that they show"
        return f"{self.lowest:.3f} to {self.highest:.3f} in {self.rounds} rounds{verdict}"

    def to_json(self) -> Dict[str, Any]:
        return {**self._asdict(), "shown": self.shown}


def compare(one: Sequence[float], other: Sequence[float]) -> Comparison:
    """Both measured once in every round."""
    ratios = [left / right for left, right in zip(one, other)]
    return Comparison(statistics.median(ratios), min(ratios), max(ratios), len(ratios))

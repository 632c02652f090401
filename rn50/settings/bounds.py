"""Ranges of numbers that several modules need."""

from typing import NamedTuple


class Range(NamedTuple):
    """A range with both ends, or without them where ``above`` or ``below`` is true."""

    least: float
    most: float
    above: bool = False
    below: bool = False

    def holds(self, value: float) -> bool:
        """Return True if a number lies within."""
        begins = self.least < value if self.above else self.least <= value
        return begins and (value < self.most if self.below else value <= self.most)

    @property
    def text(self) -> str:
        """The rule, which follows "NAME=value "."""
        begin, end = "above" if self.above else "at least", "below" if self.below else "at most"
        return f"must be {begin} {self.least:,} and {end} {self.most:,}"


SEED = Range(0, 2**31 - 1)
EPOCHS = Range(1, 10_000)
MACHINE = Range(1, 1_024)
"""Devices, cores or ranks of a machine."""

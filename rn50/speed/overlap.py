"""Mutual slowdown of input and training step: the rate of each alone beside that of both together."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from rn50 import rates
from rn50.printed import Share, prints
from rn50.rates import Comparison
from rn50.settings.config import Config

LOST = 0.05
"""Share of the slower one's rate above which the two are said to hold each other up."""
HIDDEN = 1 / 3
"""Share of the shorter one's time below which the two are said to exclude each other."""
REMEDIES = {
    "cpu": "the cores are shared, so that is to be expected; DALI_THREADS and OMP_NUM_THREADS divide them",
    "gpu": "set CUDA_DEVICE_MAX_CONNECTIONS=32 if it is less; rn50 tune input tries other DALI_THREADS and "
    "DALI_HW_DECODER_LOAD",
}


class Overlap(NamedTuple):
    """Images/s of input and training step; medians over the rounds."""

    device: str
    """cpu or gpu."""
    input: float
    """The input alone: batches that no step trains on."""
    step: float
    """The training step alone, on a synthetic batch."""
    together: float
    """Training on real data."""
    of_slower: Comparison
    """`together` over the slower of `input` and `step`, round by round."""

    @property
    def lost(self) -> Share:
        """Share of the slower one's rate that is lost while the other runs too."""
        return max(0.0, 1 - self.of_slower.median)

    @property
    def hidden(self) -> Share:
        """Share of the shorter one's time an image that passes while the other runs too: about 1 where the
        two run side by side, 0 where each waits for the other."""
        alone = 1 / self.input, 1 / self.step
        return (sum(alone) - 1 / self.together) / min(alone)

    @property
    def hold_each_other_up(self) -> bool:
        """True if every round finds that, and the loss is above ``LOST``."""
        return self.of_slower.shown and self.lost > LOST

    @property
    def exclude_each_other(self) -> bool:
        """True if input and step take turns in time: together they take nearly as long as one after the
        other."""
        return self.hold_each_other_up and self.hidden < HIDDEN

    @property
    def remedy(self) -> str:
        """Change that may help; empty if they do not hold each other up."""
        return REMEDIES[self.device] if self.hold_each_other_up else ""

    @property
    def sentence(self) -> str:
        """Return the three rates, the loss and the remedy, in words."""
        loss = "no less than the slower one, as far as these rounds show"
        if self.of_slower.shown and self.lost:
            loss = f"{self.lost:.1%} less than the slower one"
        if self.hold_each_other_up:
            loss += f"; they {'wait for' if self.exclude_each_other else 'slow'} each other: {self.remedy}"
        alone = f"the input can deliver {self.input:,.0f} images/s, the step takes {self.step:,.0f}"
        return f"{alone}, together {self.together:,.0f}: {loss}"


prints(
    Overlap,
    lambda r: (r.input, r.step, r.together, r.of_slower, r.lost, r.hidden),
    lambda r: (r.exclude_each_other, r.remedy),
)


def of_rounds(
    config: Config, alone: Sequence[float], step: Sequence[float], together: Sequence[float]
) -> Overlap:
    """Return the overlap of rates of the same rounds: the input alone, the step alone, both together."""
    median, slower = statistics.median, [min(pair) for pair in zip(alone, step, strict=True)]
    of_slower = rates.compare(together, slower)
    return Overlap(config.run.device, median(alone), median(step), median(together), of_slower)

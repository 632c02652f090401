"""How much the input pipeline and the training step slow each other down: their rates alone are compared with
the rate of both together. ``rn50 bench input``, ``tune input`` and ``profile`` report it."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from rn50 import rates
from rn50.printed import Share, prints
from rn50.rates import Comparison

LOST = 0.05
"""Limit of ``Overlap.lost``, above which input and step are said to hold each other up."""
HIDDEN = 1 / 3
"""Limit of ``Overlap.hidden``, below which input and step are said to exclude each other."""
REMEDIES = {
    "cpu": "the cores are shared, so that is to be expected; DALI_THREADS and OMP_NUM_THREADS divide them",
    "gpu": "set CUDA_DEVICE_MAX_CONNECTIONS=32 if it is less; rn50 tune input tries other DALI_THREADS and "
    "DALI_HW_DECODER_LOAD",
}
"""Device -> change that may help."""


class Overlap(NamedTuple):
    """Images/s of input and training step, alone and together; medians over the rounds."""

    device: str
    """cpu or gpu."""
    input: float
    """images/s of the input alone: its batches are taken, but no step trains on them."""
    step: float
    """images/s of the training step alone, on a synthetic batch."""
    together: float
    """images/s of training on real data."""
    of_slower: Comparison
    """`together` over the smaller of `input` and `step`, compared round by round."""

    @property
    def lost(self) -> Share:
        """Share of the smaller rate, of `input` and `step`, that is lost when both run together."""
        return max(0.0, 1 - self.of_slower.median)

    @property
    def hidden(self) -> Share:
        """Share of the input's or the step's time for an image, whichever is shorter, that passes while the
        other part runs: about 1 if both run at the same time, 0 if each waits for the other."""
        seconds_alone = 1 / self.input, 1 / self.step  # for an image
        return (sum(seconds_alone) - 1 / self.together) / min(seconds_alone)

    @property
    def hold_each_other_up(self) -> bool:
        """True if training on real data was slower than input and step alone in every round, by more than
        ``LOST``."""
        # ``shown``: there are at least five rounds, and in all of them the same rate is the lower one.
        return self.of_slower.shown and self.lost > LOST

    @property
    def exclude_each_other(self) -> bool:
        """True if input and step hardly run at the same time: an image takes nearly the sum of both times."""
        return self.hold_each_other_up and self.hidden < HIDDEN

    @property
    def remedy(self) -> str:
        """Change that may help; empty if input and step do not hold each other up."""
        return REMEDIES[self.device] if self.hold_each_other_up else ""

    @property
    def sentence(self) -> str:
        """The three rates, the loss and the remedy, in one sentence."""
        loss = "no less than the slower one, as far as these rounds show"
        if self.of_slower.shown and self.lost:
            loss = f"{self.lost:.1%} less than the slower one"
        if self.hold_each_other_up:
            loss += f"; they {'wait for' if self.exclude_each_other else 'slow'} each other: {self.remedy}"
        alone = f"the input can deliver {self.input:,.0f} images/s, the step takes {self.step:,.0f}"
        return f"{alone}, together {self.together:,.0f}: {loss}"


# Keys of --json, in this order.
prints(
    Overlap,
    lambda r: (r.input, r.step, r.together, r.of_slower, r.lost, r.hidden),
    lambda r: (r.exclude_each_other, r.remedy),
)


def of_rounds(device: str, alone: Sequence[float], step: Sequence[float], both: Sequence[float]) -> Overlap:
    """Return the overlap on a device, "cpu" or "gpu". ``alone``, ``step`` and ``both`` are the images/s of
    the input alone, the step alone, and both together, one for each round."""
    slower = [min(pair) for pair in zip(alone, step, strict=True)]
    return Overlap(device, median(alone), median(step), median(both), rates.compare(both, slower))

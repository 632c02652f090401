"""Count a network's predictions on a validation set: top-1, top-5, confusion of classes, calibration.

Everything is counted in whole numbers, so that the sum over ranks does not depend on their order.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rn50.errors import UserError
from rn50.printed import prints

TOP = 5
BINS = 15
"""Intervals of confidence of equal width, as in Guo et al., "On Calibration of Modern Neural Networks"
(arXiv:1706.04599)."""
UNIT = 1 << 32
"""Confidences are summed in units of 1 / ``UNIT``."""


def evaluate(
    predictions: Iterable[tuple[np.ndarray, np.ndarray]],
    classes: int,
    images: int,
    confusion: bool = False,
    add_up: Callable[[np.ndarray], np.ndarray] = lambda numbers: numbers,
) -> "Counts":
    """Return the counts of a validation set of ``images`` from pairs of float32 logits (n, classes) and
    labels (n,). ``add_up`` adds this rank's counts to those of the others.

    Raises UserError unless every image was counted.
    """
    local = Counts.none(classes, confusion)
    for logits, labels in predictions:
        local.add(logits, labels)
    counts = Counts(add_up(local.numbers), classes)
    refuse_other_count(counts.images, images)
    return counts


def refuse_other_count(counted: int, expected: int) -> None:
    """Raise UserError unless the configured number of validation images was evaluated."""
    if counted != expected:
        problem = f"{counted} validation samples were evaluated"
        raise UserError(f"NUMVALEXAMPLES={expected}", problem, "count the records of val.rec")


def margin(correct: int, images: int) -> float:
    """Return half the 95 % interval of an accuracy in percentage points, by E. B. Wilson (J. Am. Stat. Assoc.
    22, 1927): it has a width at 0 and 100 % too."""
    p, z = correct / images, 1.96
    return 100 * z / (1 + z**2 / images) * math.sqrt(p * (1 - p) / images + (z / 2 / images) ** 2)


class Bin(NamedTuple):
    """The images whose highest probability lies in an interval."""

    images: int
    """Images whose highest probability lies in this of 15 equal intervals from 0 to 1."""
    confidence: float
    """Mean of that probability."""
    accuracy: float
    """Top-1 of these images."""


@dataclass
class Counts:
    """The counts of a part of the validation set, or of all of it."""

    numbers: np.ndarray
    """int64: images, correct, top-5 correct; images, confidence and correct of each bin; the confusion row by
    row, if counted."""
    classes: int

    @classmethod
    def none(cls, classes: int, confusion: bool) -> "Counts":
        """Return counts of 0; with ``confusion`` they have the confusion of classes."""
        return cls(np.zeros(3 + 3 * BINS + (classes**2 if confusion else 0), np.int64), classes)

    def add(self, logits: np.ndarray, labels: np.ndarray) -> None:
        """Count images by their float32 logits (n, classes) and labels (n,)."""
        labels, rows = labels.reshape(-1).astype(np.int64), np.arange(len(labels))
        label_logits = logits[rows, labels][:, None]
        # Rank of the label's logit, from 0. The lower class wins a tie, and NaN ranks before all.
        ties_lost = (logits == label_logits) & (np.arange(self.classes) >= labels[:, None])
        place = (~(logits < label_logits)).sum(axis=1) - ties_lost.sum(axis=1)
        shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
        confidence = 1 / np.exp(shifted).sum(axis=1)
        bins = np.minimum((np.nan_to_num(confidence) * BINS).astype(np.int64), BINS - 1)
        self.numbers[:3] += len(labels), (place == 0).sum(), (place < TOP).sum()
        of_bin = np.ones(len(labels)), np.rint(np.nan_to_num(confidence) * UNIT), place == 0
        for row, values in enumerate(of_bin):
            np.add.at(self._bins[row], bins, values.astype(np.int64))
        if self.confusion is not None:
            np.add.at(self.confusion, (labels, logits.argmax(axis=1)), 1)

    @property
    def _bins(self) -> np.ndarray:
        return self.numbers[3 : 3 + 3 * BINS].reshape(3, BINS)

    @property
    def images(self) -> int:
        """Images of the validation set that were evaluated."""
        return int(self.numbers[0])

    @property
    def correct(self) -> int:
        """Images whose highest logit is that of their label."""
        return int(self.numbers[1])

    @property
    def top5_correct(self) -> int:
        """Images whose label is among the five highest logits."""
        return int(self.numbers[2])

    @property
    def top1(self) -> float:
        """Fraction of correct images."""
        return self.correct / self.images

    @property
    def top5(self) -> float:
        """`top5_correct` / `images`."""
        return self.top5_correct / self.images

    @property
    def confusion(self) -> np.ndarray | None:
        """Images by label and predicted class, (classes, classes); None if they were not counted."""
        rest = self.numbers[3 + 3 * BINS :]
        return rest.reshape(self.classes, self.classes) if len(rest) else None

    @property
    def bins(self) -> list[Bin]:
        """The intervals of confidence, from 0 to 1; those without images have zeros."""
        images, confidence, correct = self._bins
        whole = np.maximum(images, 1)
        means = images, confidence / UNIT / whole, correct / whole
        return [Bin(*values) for values in zip(*(column.tolist() for column in means), strict=True)]

    @property
    def calibration_error(self) -> float:
        """Expected calibration error, a fraction: the mean difference between confidence and accuracy,
        weighted by the images of a bin."""
        weighted = (interval.images * abs(interval.confidence - interval.accuracy) for interval in self.bins)
        return sum(weighted) / self.images


prints(Counts, lambda r: (r.images, r.correct, r.top1, r.top5, r.calibration_error, r.bins, r.top5_correct))

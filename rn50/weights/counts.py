"""Count a network's predictions on a validation set: top-1, top-5, confusion of classes, calibration.

``rn50 evaluate`` calls ``evaluate``: on every rank for the weights of a run, once for an ONNX model. All
counts are whole numbers, so that their sum over the ranks does not depend on the order of the ranks.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rn50.errors import UserError
from rn50.printed import prints

TOP = 5
"""Number of highest logits among which top-5 looks for the label."""
BINS = 15
"""Number of intervals of confidence, of equal width. Guo et al., "On Calibration of Modern Neural Networks"
(arXiv:1706.04599), use 15."""
UNIT = 1 << 32
"""Confidences, which lie between 0 and 1, are counted as whole multiples of 1 / ``UNIT``."""


def evaluate(
    predictions: Iterable[tuple[np.ndarray, np.ndarray]],
    classes: int,
    images: int,
    confusion: bool = False,
    add_up: Callable[[np.ndarray], np.ndarray] = lambda numbers: numbers,
) -> "Counts":
    """Return the counts of a validation set with ``images`` images. ``predictions`` are pairs of float32
    logits (n, classes) and labels (n,). ``add_up`` returns the sum of an array over all ranks; by default
    there is one rank.

    Raises UserError unless exactly ``images`` images were counted.
    """
    local = Counts.none(classes, confusion)
    for logits, labels in predictions:
        local.add(logits, labels)
    counts = Counts(add_up(local.numbers), classes)
    refuse_other_count(counts.images, images)
    return counts


def refuse_other_count(counted: int, expected: int) -> None:
    """Raise UserError if the number of images that were evaluated is not the configured one."""
    if counted != expected:
        problem = f"{counted} validation samples were evaluated"
        raise UserError(f"NUMVALEXAMPLES={expected}", problem, "count the records of val.rec")


def margin(correct: int, images: int) -> float:
    """Return half the width of the 95 % confidence interval of an accuracy, in percentage points.

    It is the interval of E. B. Wilson (J. Am. Stat. Assoc. 22, 1927), whose width is not 0 at accuracies of 0
    and 100 %.
    """
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
    """All counts in one int64 array, which ranks can sum: the numbers of images, of correct images and of
    images correct in top-5; then three counts for each bin (``_bins``); then the confusion row by row, if it
    is counted."""
    classes: int

    @classmethod
    def none(cls, classes: int, confusion: bool) -> "Counts":
        """Return counts of no images; with ``confusion`` the confusion of classes will be counted too."""
        return cls(np.zeros(3 + 3 * BINS + (classes**2 if confusion else 0), np.int64), classes)

    def add(self, logits: np.ndarray, labels: np.ndarray) -> None:
        """Count images by their float32 logits (n, classes) and labels (n,)."""
        labels = labels.reshape(-1).astype(np.int64)
        label_logits = logits[np.arange(len(labels)), labels][:, None]
        # Rank of the label's logit among the logits of its image, from 0: the number of logits before it.
        # Lower logits are behind it, and so are equal logits of higher classes; NaN is before it.
        is_equal_behind = (logits == label_logits) & (np.arange(self.classes) >= labels[:, None])
        rank = (~(logits < label_logits) & ~is_equal_behind).sum(axis=1)
        # ``confidence`` is the highest probability of the softmax; 0 for logits with NaN. Probability 1 is in
        # the last bin.
        shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
        confidence = np.nan_to_num(1 / np.exp(shifted).sum(axis=1))
        bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
        self.numbers[:3] += len(labels), (rank == 0).sum(), (rank < TOP).sum()
        bin_counts = np.ones(len(labels)), np.rint(confidence * UNIT), rank == 0  # rows of ``_bins``
        for row, values in enumerate(bin_counts):
            np.add.at(self._bins[row], bins, values.astype(np.int64))
        if self.confusion is not None:
            np.add.at(self.confusion, (labels, logits.argmax(axis=1)), 1)

    @property
    def _bins(self) -> np.ndarray:
        """The counts of the bins, a view of shape (3, BINS): images, confidences in 1 / ``UNIT``, correct."""
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
        """Number of images for each label (row) and predicted class (column), a view of shape (classes,
        classes); None if the confusion was not counted."""
        confusion = self.numbers[3 + 3 * BINS :]
        return confusion.reshape(self.classes, self.classes) if len(confusion) else None

    @property
    def bins(self) -> list[Bin]:
        """The intervals of confidence, from 0 to 1; an interval without images has zeros."""
        images, confidence, correct = self._bins
        divisor = np.maximum(images, 1)
        columns = images, confidence / UNIT / divisor, correct / divisor
        return [Bin(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]

    @property
    def calibration_error(self) -> float:
        """Expected calibration error, a fraction: the mean difference between confidence and accuracy,
        weighted by the images of a bin."""
        weighted = (interval.images * abs(interval.confidence - interval.accuracy) for interval in self.bins)
        return sum(weighted) / self.images


prints(Counts, lambda r: (r.images, r.correct, r.top1, r.top5, r.calibration_error, r.bins, r.top5_correct))

"""Images per second of an accelerator by its batch and by how many work together, and the minutes that a run takes with them.

A Gaussian process (Rasmussen and Williams, "Gaussian Processes for Machine Learning", algorithm 2.1) over the logarithm of published
training rates. Its covariance says what results tell about each other: those of one accelerator share its speed; how speed falls
with the number of accelerators and rises with the batch is much the same for all, less so for other accelerators, and the less the
more octaves lie between two results; results of one system share what that system does better or worse. So an accelerator that was
published at 8 only scales as others do, with an interval that says so.
"""

import math
from dataclasses import dataclass
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from rn50 import rules
from rn50.hyperparameters import accelerators as names
from rn50.hyperparameters.epochs import is_closed
from rn50.hyperparameters.published import PublishedResult

EVALUATION_SPEED = 1.7
"""Images/s of evaluation over those of training: the median of six systems whose published logs time both (1.4 to 2.9)."""
START_UP_SECONDS = 2.2
"""From ``run_start`` to full speed, and between epochs in all: the median of the same systems (1.2 to 13.5 s)."""


@dataclass(frozen=True)
class Spread:
    """Standard deviations of the logarithm of images/s, 0.1 being about 10 %: between accelerators; per octave of batch or of
    accelerators, as a straight trend of all; of the bends of all, and of one accelerator's own, along ``octaves``; between systems
    that are equal but for their maker; and between results of one system, or of what a user measured."""

    accelerator: float = 0.7
    trend: float = 0.1
    bends: float = 0.2
    own_bends: float = 0.1
    octaves: float = 2.0
    system: float = 0.05
    result: float = 0.02


@dataclass(frozen=True)
class Point:
    """Where a rate is measured or asked for; ``batch_size`` is that of an accelerator, and need not be whole."""

    accelerator: str
    accelerators: int
    batch_size: float


@dataclass(frozen=True)
class Rate:
    """Images/s per accelerator while training, and the standard deviation of its logarithm."""

    images_per_second: float
    spread: float


class ThroughputModel:
    """Of closed-division LARS ``results`` that say what they ran on, and of what the user ``measured`` on the planned system."""

    def __init__(
        self,
        results: Sequence[PublishedResult],
        measured: Optional[Tuple[Point, float]] = None,
        spread: Spread = Spread(),  # noqa: B008: it is frozen
    ) -> None:
        usable = [(each, rate) for each in results for rate in [training_rate(each)] if rate and is_closed(each)]
        points = [point(each) for each, _ in usable]
        systems = [system(each) for each, _ in usable]
        rates = [rate for _, rate in usable]
        self._spread = spread
        self._mean = float(np.mean(np.log(rates)))
        if measured:
            points, systems, rates = [*points, measured[0]], [*systems, PLANNED], [*rates, measured[1]]
        self._known = _Features.of(points, systems)
        noise = spread.result**2 * np.eye(len(points))
        self._precision = np.linalg.inv(self._covariance(self._known, self._known) + noise)
        self._weights = self._precision @ (np.log(rates) - self._mean)

    @property
    def accelerators(self) -> List[str]:
        """The names of those with a published rate, or a measured one."""
        return sorted(set(self._known.names))

    def predict(self, wanted: Point) -> Rate:
        """The rate of the planned system."""
        at = _Features.of([wanted], [PLANNED])
        shared = self._covariance(at, self._known)[0]
        logarithm = self._mean + float(shared @ self._weights)
        variance = float(self._covariance(at, at)[0, 0] - shared @ self._precision @ shared) + self._spread.result**2
        return Rate(math.exp(logarithm), math.sqrt(variance))

    def _covariance(self, a: "_Features", b: "_Features") -> "np.ndarray[Any, Any]":
        """Shape (points of a, points of b)."""
        s = self._spread
        same = a.names[:, None] == b.names
        apart = sum(np.subtract.outer(x, y) ** 2 for x, y in zip(a.octaves, b.octaves))
        near = np.exp(-apart / (2 * s.octaves**2))
        trend = sum(np.multiply.outer(x, y) for x, y in zip(a.octaves, b.octaves))
        return np.asarray(
            s.accelerator**2 * same + s.trend**2 * trend + (s.bends**2 + s.own_bends**2 * same) * near
            + s.system**2 * (a.systems[:, None] == b.systems)
        )  # fmt: skip


PLANNED = ""
"""The system of a prediction: no published one."""


@dataclass(frozen=True)
class _Features:
    """``octaves`` are those of accelerators above 8 and of the batch of each above 256, where most results are."""

    names: "np.ndarray[Any, Any]"
    systems: "np.ndarray[Any, Any]"
    octaves: Tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]

    @classmethod
    def of(cls, points: Sequence[Point], systems: Sequence[str]) -> "_Features":
        together = np.log2([each.accelerators / 8 for each in points])
        batch = np.log2([each.batch_size / 256 for each in points])
        return cls(np.array([each.accelerator for each in points]), np.array(systems), (together, batch))


def system(result: PublishedResult) -> str:
    """The same for all rounds that a system was in."""
    return f"{result.organisation}/{result.system}".lower()


def point(result: PublishedResult) -> Point:
    """Where a result that has a ``training_rate`` was measured."""
    assert result.accelerators and result.global_batch_size
    name = names.name(result.accelerator_model)
    return Point(name, result.accelerators, result.global_batch_size / result.accelerators)


def training_rate(result: PublishedResult) -> Optional[float]:
    """Images/s per accelerator without evaluations and start-up, which ``images_per_second_per_accelerator`` counts in; None
    where the table does not say what it takes."""
    speed, number, taken = result.images_per_second_per_accelerator, result.accelerators, result.olympic_minutes
    if not (speed and number and taken and result.global_batch_size and result.accelerator_model):
        return None
    images = speed * number * 60 * taken
    count = evaluations(images / rules.TRAIN_SAMPLES, result.first_evaluation_epoch, result.evaluation_interval)
    return _images(images, count) / (number * (60 * taken - START_UP_SECONDS))


def evaluations(epochs: float, first: Optional[float], interval: Optional[float]) -> float:
    """How many a run of ``epochs`` makes; where the first epoch and the interval are not known, the usual 3 and 4."""
    return max(1.0, 1 + (epochs - (first or 3)) / (interval or rules.EVAL_PERIOD_EPOCHS))


def minutes(epochs: float, evaluation_count: float, accelerators: int, images_per_second: float) -> float:
    """From ``run_start`` to ``run_stop``, with ``images_per_second`` of an accelerator while training."""
    images = _images(epochs * rules.TRAIN_SAMPLES, evaluation_count)
    return (images / (accelerators * images_per_second) + START_UP_SECONDS) / 60


def _images(trained: float, evaluation_count: float) -> float:
    """In images of training."""
    return trained + evaluation_count * rules.EVAL_SAMPLES / EVALUATION_SPEED

"""Images per second of an accelerator by its batch size and the number of accelerators, and the minutes that
a run takes.

A Gaussian process (Rasmussen and Williams, "Gaussian Processes for Machine Learning", algorithm 2.1) over the
logarithm of published training rates. Its covariance says what results tell about each other. Results of one
accelerator share its speed. Speed falls with the number of accelerators and rises with the batch in much the
same way for all accelerators, less so for different ones, and less the more octaves lie between two results.
So an accelerator that was published only at 8 is predicted to scale as others do, with a wider interval.
Systems far slower than their like have little weight, because deviations follow Student's t distribution
(Jylänki, Vanhatalo and Vehtari, "Robust Gaussian Process Regression with a Student-t Likelihood", 2011),
which is fitted by expectation maximisation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rn50.benchmark import rules
from rn50.results import chips
from rn50.results.published import PublishedResult

EVALUATION_SPEED = 1.7
"""Ratio of evaluation to training images/s: the median of six systems whose published logs time both (1.4 to
2.9)."""
START_UP_SECONDS = 2.2
"""Seconds from ``run_start`` to full speed, and between epochs in all: the median of the same systems (1.2 to
13.5 s)."""


DEGREES_OF_FREEDOM = 4
"""Degrees of freedom of Student's t distribution, the usual number where outliers are expected."""
_ROUNDS = 10
"""Iterations of expectation maximisation; after half of them nothing changes by a thousandth any more."""


class Spread:
    """Standard deviations of the logarithm of images/s; 0.1 is about 10 %.

    ``accelerator``: between accelerators. ``trend``: per octave of batch or of accelerators, as a straight
    line common to all. ``bends``: deviations from that line common to all, with the length scale ``octaves``.
    ``own_bends``: the same for one accelerator alone. ``system``: between systems that differ only in their
    maker; ``card``: the same where the accelerators are cards, which makers cool and connect in more ways
    than boards. ``measured``: a user's measurement.
    """

    accelerator = 0.7
    trend = 0.1
    bends = 0.2
    own_bends = 0.1
    octaves = 2.0
    system = 0.04
    card = 0.065
    measured = 0.02


@dataclass(frozen=True)
class Conditions:
    """Conditions of a rate that is measured or asked for; ``batch_size`` is per accelerator and need not be
    whole."""

    accelerator: str
    accelerators: int
    batch_size: float


class Rate(NamedTuple):
    """Images/s per accelerator while training, and the standard deviation of its logarithm."""

    images_per_second: float
    spread: float


class ThroughputModel:
    """Model of the closed-division LARS ``results`` that state their hardware, and of the rate that the user
    ``measured`` on the planned system."""

    def __init__(
        self, results: Sequence[PublishedResult], measured: tuple[Conditions, float] | None = None
    ) -> None:
        closed = ((result, training_rate(result)) for result in results if result.is_closed)
        usable = [(result, rate) for result, rate in closed if rate]
        self.points = [conditions(result) for result, _ in usable] + ([measured[0]] if measured else [])
        self.systems = {(chips.name(result.accelerator_model), system(result)) for result, _ in usable}
        rates = np.log([rate for _, rate in usable] + ([measured[1]] if measured else []))
        # A measured system may differ from similar ones by any factor; this factor is assumed to be the same
        # everywhere.
        self._planned, self._measured = Spread.accelerator if measured else None, measured
        self._mean = float(rates[: len(usable)].mean())
        self._known = _Features.of(self.points, planned=np.arange(len(self.points)) >= len(usable))
        shared = self._covariance(self._known, self._known)
        variances = np.where(self._known.planned, Spread.measured, self._makers(self._known)) ** 2
        noise = variances
        for _ in range(_ROUNDS):
            self._precision = np.linalg.inv(shared + np.diag(noise))
            self._weights = self._precision @ (rates - self._mean)
            # Expected squared deviation of a published rate: its squared residual plus the variance of the
            # process there.
            squared = (noise * self._weights) ** 2 + noise - noise**2 * np.diag(self._precision)
            wider = (DEGREES_OF_FREEDOM + squared / variances) / (DEGREES_OF_FREEDOM + 1)
            noise = np.where(self._known.planned, variances, variances * wider)

    @property
    def accelerators(self) -> list[str]:
        """Return the names of the accelerators with a published or measured rate."""
        return sorted(set(self._known.names))

    def predict(self, at: Conditions) -> Rate:
        """Return the rate of the planned system."""
        features = _Features.of([at], planned=np.array([True]))
        shared = self._covariance(features, self._known)[0]
        logarithm = self._mean + float(shared @ self._weights)
        variance = float(self._covariance(features, features)[0, 0] - shared @ self._precision @ shared)
        if self._measured and at == self._measured[0]:
            logarithm = math.log(self._measured[1])
        return Rate(math.exp(logarithm), math.sqrt(variance))

    def _makers(self, at: "_Features") -> "np.ndarray[Any, Any]":
        return np.where([chips.is_card(name) for name in at.names], Spread.card, Spread.system)

    def _covariance(self, a: "_Features", b: "_Features") -> "np.ndarray[Any, Any]":
        """Return the covariance between two sets of points. Shape (points of a, points of b)."""
        same = a.names[:, None] == b.names
        apart = sum(np.subtract.outer(x, y) ** 2 for x, y in zip(a.octaves, b.octaves, strict=False))
        near = np.exp(-apart / (2 * Spread.octaves**2))
        deviation = self._makers if self._planned is None else lambda _: self._planned
        trend = sum(np.multiply.outer(x, y) for x, y in zip(a.octaves, b.octaves, strict=False))
        return np.asarray(
            Spread.accelerator**2 * same
            + Spread.trend**2 * trend
            + (Spread.bends**2 + Spread.own_bends**2 * same) * near
            + np.multiply.outer(a.planned * deviation(a), b.planned * deviation(b))
        )


@dataclass(frozen=True)
class _Features:
    """Features of points. ``octaves`` are those of accelerators above 8 and of the batch per accelerator
    above 256, where most results are. ``planned`` marks the points of the planned system."""

    names: "np.ndarray[Any, Any]"
    octaves: tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]
    planned: "np.ndarray[Any, Any]"

    @classmethod
    def of(cls, points: Sequence[Conditions], planned: "np.ndarray[Any, Any]") -> "_Features":
        together = np.log2([conditions.accelerators / 8 for conditions in points])
        batch = np.log2([conditions.batch_size / 256 for conditions in points])
        return cls(np.array([conditions.accelerator for conditions in points]), (together, batch), planned)


def system(result: PublishedResult) -> str:
    """Return a name of a system that is the same in all its rounds."""
    return f"{result.organisation}/{result.system}".lower()


def conditions(result: PublishedResult) -> Conditions:
    """Return the conditions under which a result that has a ``training_rate`` was measured."""
    assert result.accelerators and result.recipe.global_batch_size
    name = chips.name(result.accelerator_model)
    return Conditions(name, result.accelerators, result.recipe.global_batch_size / result.accelerators)


def training_rate(result: PublishedResult) -> float | None:
    """Return images/s per accelerator without evaluations and start-up, which
    ``images_per_second_per_accelerator`` includes; None if the table lacks a value for it."""
    speed, number = result.images_per_second_per_accelerator, result.accelerators
    duration = result.olympic_minutes
    if not (speed and number and duration and result.recipe.global_batch_size and result.accelerator_model):
        return None
    images = speed * number * 60 * duration
    epochs = images / rules.TRAIN_SAMPLES
    count = evaluations(epochs, result.first_evaluation_epoch, result.evaluation_interval)
    return _images(images, count) / (number * (60 * duration - START_UP_SECONDS))


def evaluations(epochs: float, first: float | None, interval: float | None) -> float:
    """Return the number of evaluations in ``epochs``; the usual 3 and 4 stand in for an unknown ``first`` and
    ``interval``."""
    return max(1.0, 1 + (epochs - (first or 3)) / (interval or rules.EVAL_PERIOD_EPOCHS))


def minutes(epochs: float, evaluation_count: float, accelerators: int, images_per_second: float) -> float:
    """Return the minutes from ``run_start`` to ``run_stop``; ``images_per_second`` is that of one accelerator
    while training."""
    images = _images(epochs * rules.TRAIN_SAMPLES, evaluation_count)
    return (images / (accelerators * images_per_second) + START_UP_SECONDS) / 60


def _images(trained: float, evaluation_count: float) -> float:
    """Return the work of training and evaluation in images of training."""
    return trained + evaluation_count * rules.EVAL_SAMPLES / EVALUATION_SPEED

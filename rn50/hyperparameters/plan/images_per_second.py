"""``ThroughputModel`` predicts, for ``planner.py``, the images/s of an accelerator by its batch size and the
number of accelerators; ``minutes`` computes from them how long a run takes.

The model is a Gaussian process (Rasmussen and Williams, "Gaussian Processes for Machine Learning", algorithm
2.1) over the logarithm of published training rates. Its covariance states how much one result says about
another:

- Results with the same accelerator share its speed.
- Speed falls with the number of accelerators and rises with the batch size, in much the same way for all
  accelerators. Results with the same accelerator share more of these changes than results with different
  ones, and the fewer octaves lie between two results, the more they share.

So an accelerator of which only results with 8 are published is predicted to scale as others do, with a wider
interval. Systems far slower than similar ones have little weight, because deviations follow Student's t
distribution (Jylänki, Vanhatalo and Vehtari, "Robust Gaussian Process Regression with a Student-t
Likelihood", 2011), which is fitted by expectation maximisation.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rn50.benchmark import rules
from rn50.results import chips, published
from rn50.results.published import PublishedResult

EVALUATION_SPEED = 1.7
"""Images/s of evaluation over images/s of training: the median of six systems whose published logs time both
(they have 1.4 to 2.9)."""
START_UP_SECONDS = 2.2
"""Seconds of a run without training or evaluation, from ``run_start`` to full speed and between epochs: the
median of the same systems (they have 1.2 to 13.5 s)."""
TOO_FAST = 2
"""A measured rate is doubted if it is more than so many times that of the fastest published accelerator."""
INPUT = "input"
"""Key of ``at_size`` for the images/s of the input pipeline alone."""
DEGREES_OF_FREEDOM = 4
"""Degrees of freedom of Student's t distribution, the usual number where outliers are expected."""
_ROUNDS = 10
"""Iterations of expectation maximisation. After half of them nothing changes by a thousandth any more."""


class Spread:
    """Standard deviations of the logarithm of images/s (0.1 is about 10 %), and a length scale."""

    accelerator = 0.7
    """Between accelerators."""
    trend = 0.1
    """Slope of a straight line that all accelerators share, per octave of batch size or of the number of
    accelerators."""
    bends = 0.2
    """Deviations from this line that all accelerators share."""
    own_bends = 0.1
    """Further deviations, which each accelerator has for itself."""
    octaves = 2.0
    """Length scale of both kinds of deviations, in octaves; no standard deviation."""
    system = 0.04
    """Between systems that differ only in their maker, where accelerators are on boards."""
    card = 0.065
    """As ``system``, where accelerators are cards, which makers cool and connect in more ways than boards."""
    measured = 0.02
    """Error of a measurement."""
    estimated = 0.2
    """Error of an estimate by memory bandwidth. This is a choice, not a measurement."""


@dataclass(frozen=True)
class Conditions:
    """Conditions of a rate that was measured or is to be predicted."""

    accelerator: str
    """Name of the accelerator."""
    accelerators: int
    """Number of accelerators."""
    batch_size: float
    """Images per step on each accelerator; not necessarily a whole number."""


Measurement = tuple[Conditions, float]
"""Conditions of a rate that a user measured, and its images/s of each accelerator."""


Results = Sequence[PublishedResult]


class Rate(NamedTuple):
    """Images/s of each accelerator while training, and the standard deviation of its logarithm."""

    images_per_second: float
    spread: float


class ThroughputModel:
    """Model made of published results and of a measurement.

    ``results`` are LARS results, of which those of the closed division that state their hardware are used.
    ``measured`` is a measurement on the system to plan; None: there is none. ``spread`` is its error, the
    standard deviation of the logarithm.
    """

    def __init__(
        self, results: Results, measured: Measurement | None = None, spread: float = Spread.measured
    ):
        closed = ((result, training_rate(result)) for result in results if result.is_closed)
        usable = [(result, rate) for result, rate in closed if rate]
        self.points = [conditions(result) for result, _ in usable] + ([measured[0]] if measured else [])
        names = ((chips.name(result.accelerator_model), system(result)) for result, _ in usable)
        self.systems = dict(zip(names, (result.framework for result, _ in usable), strict=True))
        """(accelerator, system) -> framework, of the published results that are used."""
        rates = np.log([rate for _, rate in usable] + ([measured[1]] if measured else []))
        self.measured = measured
        # The measured rate, if there is one, is the last element, and has no part in the mean.
        self._mean = float(rates[: len(usable)].mean())
        self._data = _Features.of(self.points, planned=np.arange(len(self.points)) >= len(usable))
        covariance = self._covariance(self._data, self._data)
        variances = np.where(self._data.planned, spread, self._between_makers(self._data)) ** 2
        noise = variances  # the variance of each rate around the process, which grows for outliers
        for _ in range(_ROUNDS):
            self._precision = np.linalg.inv(covariance + np.diag(noise))  # the inverse of the covariance
            self._weights = self._precision @ (rates - self._mean)
            # Expected squared deviation of each rate from the process: the square of its residual, noise *
            # weight, plus the posterior variance of the process there, noise - noise**2 * precision.
            squared = (noise * self._weights) ** 2 + noise - noise**2 * np.diag(self._precision)
            # Student's t: the larger the deviation of a rate, the larger its variance. Without deviation the
            # factor is 4/5.
            widening = (DEGREES_OF_FREEDOM + squared / variances) / (DEGREES_OF_FREEDOM + 1)
            noise = np.where(self._data.planned, variances, variances * widening)

    @property
    def accelerators(self) -> list[str]:
        """Names of the accelerators with a published or measured rate, sorted."""
        return sorted(set(self._data.names))

    def predict(self, conditions: Conditions) -> Rate:
        """Return the rate that the system to plan has under these conditions."""
        point = _Features.of([conditions], planned=np.array([True]))
        covariance = self._covariance(point, self._data)[0]
        logarithm = self._mean + float(covariance @ self._weights)
        variance = float(self._covariance(point, point)[0, 0] - covariance @ self._precision @ covariance)
        # Under the conditions of the measurement the measured rate itself counts.
        if self.measured and conditions == self.measured[0]:
            logarithm = math.log(self.measured[1])
        return Rate(math.exp(logarithm), math.sqrt(variance))

    def _between_makers(self, points: "_Features") -> "np.ndarray[Any, Any]":
        """Return the standard deviation between makers for the accelerator of each point. Shape (points,)."""
        return np.where([chips.is_card(name) for name in points.names], Spread.card, Spread.system)

    def _deviation(self, points: "_Features") -> "np.ndarray[Any, Any] | float":
        """Return the standard deviation of the logarithm of a factor, common to all points of the system to
        plan, by which it is faster than similar systems. The factor of a system that was measured may be as
        large as between accelerators, because the measurement tells it; else it is as between makers."""
        return Spread.accelerator if self.measured else self._between_makers(points)

    def _covariance(self, a: "_Features", b: "_Features") -> "np.ndarray[Any, Any]":
        """Return the covariance between two sets of points. Shape (points of a, points of b)."""
        same = a.names[:, None] == b.names
        # Sums over the two ``octaves``: number of accelerators and batch size.
        distance = sum(np.subtract.outer(x, y) ** 2 for x, y in zip(a.octaves, b.octaves, strict=False))
        nearness = np.exp(-distance / (2 * Spread.octaves**2))
        trend = sum(np.multiply.outer(x, y) for x, y in zip(a.octaves, b.octaves, strict=False))
        return np.asarray(
            Spread.accelerator**2 * same
            + Spread.trend**2 * trend
            + (Spread.bends**2 + Spread.own_bends**2 * same) * nearness
            # The factor of the system to plan is common to all points of this system.
            + np.multiply.outer(a.planned * self._deviation(a), b.planned * self._deviation(b))
        )


@dataclass(frozen=True)
class _Features:
    """A set of points as arrays, with a value for each point."""

    names: "np.ndarray[Any, Any]"
    """Names of the accelerators."""
    octaves: tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]
    """Octaves (factors of two) by which the number of accelerators is above 8, and the batch size of an
    accelerator above 256. Most results are near 8 and 256."""
    planned: "np.ndarray[Any, Any]"
    """True for a point of the system to plan, which was measured or is to be predicted."""

    @classmethod
    def of(cls, points: Sequence[Conditions], planned: "np.ndarray[Any, Any]") -> "_Features":
        """Return the features of points."""
        number = np.log2([conditions.accelerators / 8 for conditions in points])
        batch = np.log2([conditions.batch_size / 256 for conditions in points])
        return cls(np.array([conditions.accelerator for conditions in points]), (number, batch), planned)


def system(result: PublishedResult) -> str:
    """Return the name of a result's system, which is the same in all rounds of MLPerf."""
    return f"{result.organisation}/{result.system}".lower()


def conditions(result: PublishedResult) -> Conditions:
    """Return the conditions under which a result was measured. Its ``training_rate`` must not be None."""
    assert result.accelerators and result.recipe.global_batch_size
    name = chips.name(result.accelerator_model)
    return Conditions(name, result.accelerators, result.recipe.global_batch_size / result.accelerators)


def training_rate(result: PublishedResult) -> float | None:
    """Return the images/s of each accelerator while training; None if the table of results lacks a value for
    it. The table's ``images_per_second_per_accelerator`` is lower, because it also counts the time of
    evaluations and start-up."""
    speed, number = result.images_per_second_per_accelerator, result.accelerators
    duration = result.olympic_minutes
    if not (speed and number and duration and result.recipe.global_batch_size and result.accelerator_model):
        return None
    images = speed * number * 60 * duration
    epochs = images / rules.TRAIN_SAMPLES
    count = evaluations(epochs, result.first_evaluation_epoch, result.evaluation_interval)
    return _images(images, count) / (number * (60 * duration - START_UP_SECONDS))


def evaluations(epochs: float, first: float | None, interval: float | None) -> float:
    """Return the number of evaluations in ``epochs`` epochs, which need not be whole. ``first`` is the epoch
    of the first evaluation, by default 3; ``interval`` the epochs to the next one, by default those of the
    rules."""
    return max(1.0, 1 + (epochs - (first or 3)) / (interval or rules.EVAL_PERIOD_EPOCHS))


def minutes(epochs: float, evaluation_count: float, accelerators: int, images_per_second: float) -> float:
    """Return the minutes from ``run_start`` to ``run_stop``. ``images_per_second`` is the rate of one
    accelerator while training."""
    images = _images(epochs * rules.TRAIN_SAMPLES, evaluation_count)
    return (images / (accelerators * images_per_second) + START_UP_SECONDS) / 60


def at_size(size: int, rates: Mapping[str, float]) -> float:
    """Return the images/s of an accelerator with images of ``size`` pixels a side. ``rates`` maps sides, as
    text, to images/s; at least one. It may have ``INPUT``, which no size exceeds.

    Between two sides the time of an image is linear in its pixels. A smaller image than the smallest takes as
    long as that, and a larger one than the largest as much longer as it has more pixels.
    """
    seconds = {int(side) ** 2: 1 / value for side, value in rates.items() if side != INPUT}
    areas = sorted(seconds)
    between = float(np.interp(size**2, areas, [seconds[area] for area in areas]))
    return min(1 / (between * max(1, size**2 / areas[-1])), rates.get(INPUT, math.inf))


def cautions(rates: Mapping[str, float]) -> Iterator[str]:
    """Yield a caution if a rate of ``rates``, which are as in ``at_size``, is more than ``TOO_FAST`` times
    that of the fastest published accelerator. Rates of other sizes are compared by pixels per second."""
    fastest = max(training_rate(result) or 0 for result in published.results() if result.is_closed)
    most = max(rate * (int(side) / rules.IMAGE_SIZE) ** 2 for side, rate in rates.items() if side != INPUT)
    if most > TOO_FAST * fastest:
        times = (
            f"{most:,.0f} images/s are {most / fastest:.1f} times those of the fastest published accelerator"
        )
        yield f"{times}: is it the rate of all ranks together? --images-per-second is of each"


def _images(trained: float, evaluation_count: float) -> float:
    """Return how many images could be trained in the time that ``trained`` images and the evaluations
    take."""
    return trained + evaluation_count * rules.EVAL_SAMPLES / EVALUATION_SPEED

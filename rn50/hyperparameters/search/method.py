"""Method of a search, as a pure function of what the trials so far have shown.

Learning rate comes first, in factors of ten, then in steps of 10 %; then batch size with the learning rate
scaled along; then warm-up, weight decay and length of the schedule. Every stage starts from the best point so
far, tries a step both ways and goes on in the better direction while that helps. After the last stage the
next pass begins with the steps of 10 %, until a pass finds nothing better.

The runs of a point differ by their seeds, so only the mean of several makes it the new best. A point is ruled
out as soon as its mean is worse by more than chance explains for so few runs. The same evidence always gives
the same plan, so a search can be resumed.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rn50.printed import IfKnown

MISSED = 1000.0
"""Value of a run that missed the target: this plus 1 minus its best accuracy. It is worse than any run that
reached the target, and still comparable."""
PASSES = 3
"""Limit of passes, because nothing else ends a series of ever smaller gains."""
NOISE = 0.1
"""Relative standard deviation between runs of one point; of a mean of n runs, NOISE / sqrt(n)."""
DIGITS = 4
"""Significant digits of a learning rate."""


class Point(NamedTuple):
    """Hyperparameters that are searched over, by field of ``Hyperparameters``."""

    learning_rate: float
    """Learning rate."""
    batch_size: int
    """Images per rank and step."""
    warmup_epochs: float
    """Epochs of warm-up."""
    weight_decay: float
    """Weight decay."""
    num_epochs: int
    """Length of the schedule."""
    decay_epochs: IfKnown[float]
    """Length of the decay, where the configuration sets it."""


class Evidence(NamedTuple):
    """Values of a point's runs, and whether it is ruled out because one was stopped."""

    values: tuple[float, ...] = ()
    ruled_out: bool = False

    @property
    def mean(self) -> float:
        """Return the mean value, infinity if the point is ruled out or has no runs."""
        return math.inf if self.ruled_out or not self.values else sum(self.values) / len(self.values)


class Stage(NamedTuple):
    """Stage of a pass. ``step(point, way)`` returns the next point upwards (1) or downwards (-1), None if
    there is none; ``most`` limits the steps in a row."""

    name: str
    step: Callable[[Point, int], Point | None]
    most: int


@dataclass(frozen=True)
class NextRuns:
    """Next runs of a search. ``best`` is the best point and ``value`` its mean, None until the first point is
    decided. ``stage`` waits for the points ``wanted``, none at the end of the search. ``most_runs`` is the
    number of runs to the end if every step helps."""

    stage: str
    best: Point | None
    value: float | None
    wanted: tuple[Point, ...]
    most_runs: int


def stages(learning_rate_unit: float = 0) -> list[Stage]:
    """Return the stages in order; with a unit, learning rates are whole multiples of it."""

    def scaled(point: Point, factor: float) -> Point | None:
        learning_rate = float(f"{point.learning_rate * factor:.{DIGITS}g}")
        if learning_rate_unit:
            learning_rate = round(round(learning_rate / learning_rate_unit) * learning_rate_unit, 10)
        return point._replace(learning_rate=learning_rate) if learning_rate > 0 else None

    def batch_size(point: Point, way: int) -> Point | None:
        if way < 0 and point.batch_size % 2:
            return None
        batch = point.batch_size * 2 if way > 0 else point.batch_size // 2
        return scaled(point._replace(batch_size=batch), 2.0**way)

    def warmup(point: Point, way: int) -> Point | None:
        epochs = point.warmup_epochs + way
        return point._replace(warmup_epochs=epochs) if epochs >= 0 else None

    def weight_decay(point: Point, way: int) -> Point | None:
        return point._replace(weight_decay=point.weight_decay * 2.0**way) if point.weight_decay else None

    return [
        Stage("learning rate x10", lambda point, way: scaled(point, 10**way), 3),
        Stage("learning rate 10 %", lambda point, way: scaled(point, 1.1**way), 5),
        Stage("batch size", batch_size, 3),
        Stage("warm-up", warmup, 3),
        Stage("weight decay", weight_decay, 3),
        Stage("schedule", _schedule, 5),
    ]


def _schedule(point: Point, way: int) -> Point | None:
    """Return the point with a schedule a quarter longer or shorter; a decay with a length of its own is
    scaled along."""
    epochs = point.num_epochs + way * max(1, round(point.num_epochs / 4))
    if epochs < 1:
        return None
    decay = None if point.decay_epochs is None else round(point.decay_epochs * epochs / point.num_epochs, 2)
    return point._replace(num_epochs=epochs, decay_epochs=decay)


def decided(evidence: Evidence, best_value: float, repeats: int) -> float | None:
    """Return the mean of a point's runs once enough are done to compare it with ``best_value``, the best
    mean; None before."""
    runs = len(evidence.values)
    if evidence.ruled_out or runs >= repeats or (runs and max(evidence.values) >= MISSED):
        return evidence.mean
    return evidence.mean if runs and evidence.mean >= _too_much(best_value, runs, repeats) else None


def _too_much(best_value: float, runs: int, repeats: int) -> float:
    """Return the mean of ``runs`` runs that rules out a point."""
    return best_value * (1 + NOISE / math.sqrt(runs)) if runs < repeats else best_value


def limit(evidence: Evidence, best_value: float, repeats: int) -> float:
    """Return the value at which the next run of a point rules it out."""
    runs = len(evidence.values) + 1
    most = _too_much(best_value, runs, repeats) * runs - sum(evidence.values)
    return math.inf if best_value >= MISSED else most


def plan(
    start: Point,
    evidence: Mapping[Point, Evidence],
    repeats: int,
    possible: Callable[[Point], bool] = lambda point: True,
    learning_rate_unit: float = 0,
) -> NextRuns:
    """Return the next runs, given the evidence; ``repeats`` runs decide a point, and only ``possible`` points
    are tried."""
    order = stages(learning_rate_unit)
    runs = [(2 + stage.most - 1) * repeats for stage in order]
    left = repeats + runs[0] + PASSES * sum(runs[1:])
    value = decided(evidence.get(start, Evidence()), math.inf, repeats)
    if value is None:
        return NextRuns("the configuration as it is", None, None, (start,), left)
    left -= repeats
    walk = _Walk(evidence, repeats, possible, start, value)
    for number in range(PASSES):
        before = walk.best
        for stage, of_stage in list(zip(order, runs, strict=False))[min(number, 1) :]:
            waiting = walk.through(stage)
            if waiting:
                return NextRuns(stage.name, walk.best, walk.value, tuple(waiting), left)
            left -= of_stage
        if walk.best == before:
            break
    return NextRuns("the end", walk.best, walk.value, (), 0)


@dataclass
class _Walk:
    """Walk through the stages as far as the evidence goes; it stands at the ``best`` point."""

    evidence: Mapping[Point, Evidence]
    repeats: int
    possible: Callable[[Point], bool]
    best: Point
    value: float

    def through(self, stage: Stage) -> list[Point]:
        """Walk on; return the points that need more runs to be decided, none at the end of the stage.

        If one direction turns out better before the other is decided, the other is compared with it.
        """
        ways: tuple[int, ...] = (1, -1)
        for _ in range(stage.most):
            steps = ((way, stage.step(self.best, way)) for way in ways)
            tried = [(way, step) for way, step in steps if step and step != self.best and self.possible(step)]
            means = [(self._verdict(step), way, step) for way, step in tried]
            better = [
                (mean, way, step) for mean, way, step in means if mean is not None and mean < self.value
            ]
            if better:
                self.value, way, self.best = min(better)
                ways = (way,)
            waiting = [step for _, step in tried if self._verdict(step) is None]
            if waiting or not better:
                return waiting
        return []

    def _verdict(self, point: Point) -> float | None:
        return decided(self.evidence.get(point, Evidence()), self.value, self.repeats)

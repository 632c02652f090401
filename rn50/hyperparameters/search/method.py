"""The method of a search: ``plan`` says which points need runs next, as a pure function of the evidence, the
values of the runs so far. A point is a set of hyperparameters. The value of a run is the number of its epochs
to the target, so lower is better; the value of a point is the mean of its runs.

The stages of a pass are, in this order: the learning rate in factors of ten; the learning rate in steps of 10
%; the batch size, with the learning rate scaled along; the warm-up; the weight decay; the length of the
schedule. A stage starts from the best point so far, tries a step in both directions, and goes on in the
better one while that improves the value. Every later pass leaves out the factors of ten. The search ends when
a pass finds nothing better.

The runs of a point differ in their seeds, so a point becomes the best by the mean of several runs only. A
point is ruled out as soon as its mean is worse than the best by more than chance explains for so few runs.
The same evidence always gives the same plan, so a search can be resumed.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rn50.printed import IfKnown

MISSED = 1000.0
"""A run that missed the target has the value MISSED + 1 - (its best accuracy). That is worse than any run
that reached the target, and still orders the runs that missed it."""
PASSES = 3
"""Limit of passes. Without it a series of ever smaller gains might not end."""
NOISE = 0.1
"""Relative standard deviation of the values of a point's runs. For the mean of n runs it is NOISE /
sqrt(n)."""
DIGITS = 4
"""Significant digits of the learning rates that are tried."""


class Point(NamedTuple):
    """The hyperparameters that a search changes, named as the fields of ``Hyperparameters``."""

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
    """Length of the decay; null: the configuration does not set it, and it is that of the schedule."""


class Evidence(NamedTuple):
    """Evidence on a point: the outcome of its runs so far."""

    values: tuple[float, ...] = ()
    """Values of the finished runs."""
    ruled_out: bool = False
    """True if a run of the point was stopped because the point can no longer beat the best."""

    @property
    def mean(self) -> float:
        """Mean of the values; infinity if the point is ruled out or has no finished run."""
        return math.inf if self.ruled_out or not self.values else sum(self.values) / len(self.values)


class Stage(NamedTuple):
    """Stage of a pass, which changes one hyperparameter."""

    name: str
    step: Callable[[Point, int], Point | None]
    """``step(point, way)`` returns the next point upwards (``way`` 1) or downwards (-1); None: there is
    none."""
    most: int
    """Most steps in a row."""


@dataclass(frozen=True)
class NextRuns:
    """Next runs of a search, and its state."""

    stage: str
    """Name of the stage that the search has reached."""
    best: Point | None
    """Best point so far; None until the initial point is decided."""
    value: float | None
    """Mean value of the best point."""
    undecided: tuple[Point, ...]
    """Points that need more runs before the stage can go on; empty at the end of the search."""
    most_runs: int
    """Largest number of runs until the end of the search: that if every step improves the value."""


def stages(learning_rate_unit: float = 0) -> list[Stage]:
    """Return the stages of a pass in their order. If ``learning_rate_unit`` is not 0, every learning rate
    that they try is a whole multiple of it."""

    def scaled(point: Point, factor: float) -> Point | None:
        """Return the point with ``factor`` times its learning rate, rounded; None if that is rounded to 0."""
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
    """Return the point with a schedule that is a quarter longer or shorter. If the length of the decay is
    set, it is scaled by the same factor."""
    epochs = point.num_epochs + way * max(1, round(point.num_epochs / 4))
    if epochs < 1:
        return None
    decay = None if point.decay_epochs is None else round(point.decay_epochs * epochs / point.num_epochs, 2)
    return point._replace(num_epochs=epochs, decay_epochs=decay)


def decided(evidence: Evidence, best_value: float, repeats: int) -> float | None:
    """Return the mean value of a point if it has enough runs to compare it with ``best_value``, the mean of
    the best point; None: it needs more runs. ``repeats`` runs are enough. Fewer are enough if one of them
    missed the target, or if their mean is so much worse than the best that the point is ruled out."""
    runs = len(evidence.values)
    if evidence.ruled_out or runs >= repeats or (runs and max(evidence.values) >= MISSED):
        return evidence.mean
    return evidence.mean if runs and evidence.mean >= _worst_mean(best_value, runs, repeats) else None


def _worst_mean(best_value: float, runs: int, repeats: int) -> float:
    """Return the lowest mean value that rules a point out after ``runs`` runs: 10 % (``NOISE``) above the
    best after one run, 7 % after two, and the best itself after ``repeats``."""
    return best_value * (1 + NOISE / math.sqrt(runs)) if runs < repeats else best_value


def limit(evidence: Evidence, best_value: float, repeats: int) -> float:
    """Return the lowest value of a point's next run that rules the point out; infinity if the best point has
    missed the target."""
    if best_value >= MISSED:
        return math.inf
    runs = len(evidence.values) + 1
    # With this value of the next run the mean of all of them is ``_worst_mean``.
    return _worst_mean(best_value, runs, repeats) * runs - sum(evidence.values)


def plan(
    start: Point,
    evidence: Mapping[Point, Evidence],
    repeats: int,
    possible: Callable[[Point], bool] = lambda point: True,
    learning_rate_unit: float = 0,
) -> NextRuns:
    """Return the next runs of a search that begins at ``start``, by the evidence on each point. ``repeats``
    runs decide a point, and only points for which ``possible`` is true are tried."""
    all_stages = stages(learning_rate_unit)
    # Most runs of each stage: its first step is tried in both directions, the others in the better one.
    stage_runs = [(2 + (stage.most - 1)) * repeats for stage in all_stages]
    # Most runs of the search: those of ``start``, of the first stage once, of the other stages in each pass.
    runs_left = repeats + stage_runs[0] + PASSES * sum(stage_runs[1:])
    value = decided(evidence.get(start, Evidence()), math.inf, repeats)
    if value is None:  # the search has hardly begun: its first point needs more runs
        return NextRuns("the configuration as it is", None, None, (start,), runs_left)
    runs_left -= repeats
    walk = _Walk(evidence, repeats, possible, start, value)
    for number in range(PASSES):
        before = walk.best
        first = 0 if number == 0 else 1  # only the first pass has the factors of ten
        for stage, most_runs in zip(all_stages[first:], stage_runs[first:], strict=True):
            if undecided := walk.through(stage):
                return NextRuns(stage.name, walk.best, walk.value, tuple(undecided), runs_left)
            runs_left -= most_runs
        if walk.best == before:
            break
    return NextRuns("the end", walk.best, walk.value, (), 0)


@dataclass
class _Walk:
    """A walk from point to better point through the stages, as far as the evidence goes."""

    evidence: Mapping[Point, Evidence]
    repeats: int
    possible: Callable[[Point], bool]
    best: Point
    """Point that the walk has reached."""
    value: float
    """Mean value of the best point."""

    def through(self, stage: Stage) -> list[Point]:
        """Walk through a stage. Return the points that need more runs before the walk can go on; empty at the
        end of the stage.

        If the step in one direction is better than the best before the other step is decided, it becomes the
        best, and the other step is compared with it.
        """
        ways: tuple[int, ...] = (1, -1)
        for _ in range(stage.most):
            steps = []  # the possible points a step away from the best
            better = []  # (mean, way, point) of the steps that improve the value
            for way in ways:
                point = stage.step(self.best, way)
                if point and point != self.best and self.possible(point):
                    steps.append(point)
                    mean = self._decided(point)
                    if mean is not None and mean < self.value:
                        better.append((mean, way, point))
            if better:
                self.value, way, self.best = min(better)  # of two equal means that of way -1, downwards
                ways = (way,)
            undecided = [point for point in steps if self._decided(point) is None]
            if undecided or not better:
                return undecided
        return []

    def _decided(self, point: Point) -> float | None:
        """Return ``decided`` for a point, in comparison with the best."""
        return decided(self.evidence.get(point, Evidence()), self.value, self.repeats)

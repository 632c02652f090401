"""The method of a search, as a pure function of what the trials so far have shown.

Learning rate first in factors of ten, then in steps of 10 %; batch size with the learning rate scaled along; then warm-up, weight
decay and length of the schedule. Every stage starts from the best point so far, tries a step both ways and goes on in the better
direction while that helps. When all are through they begin again with the steps of 10 %, until a pass finds nothing better.

The runs of a point differ by their seeds, so it takes the place of the best one only by the mean of several; it is out as soon as
that mean is worse by more than chance makes of so few. Whoever asks again with the same evidence gets the same plan: so a search
can be resumed, and several workers need nothing but the evidence in common.
"""

import math
from dataclasses import dataclass
from typing import Callable, List, Mapping, NamedTuple, Optional, Tuple

MISSED = 1000.0
"""The value of a run that missed the target is this plus what its best accuracy lacks to 1: worse than any that reached it, and
yet comparable."""
PASSES = 3
"""At most; nothing says that there is no end to ever smaller gains."""
NOISE = 0.1
"""By so much, as a part of their value, runs of the same point differ; the mean of n of them by that over the root of n."""
DIGITS = 4
"""Of a learning rate."""


class Point(NamedTuple):
    """What is searched over; ``batch_size`` is that of a rank."""

    learning_rate: float
    batch_size: int
    warmup_epochs: float
    weight_decay: float
    num_epochs: int
    decay_epochs: Optional[float]


class Evidence(NamedTuple):
    """What is known of a point: the values of its runs, and whether it is out because one was stopped."""

    values: Tuple[float, ...] = ()
    out: bool = False

    @property
    def mean(self) -> float:
        """Infinity where it is out, or nothing is known."""
        return math.inf if self.out or not self.values else sum(self.values) / len(self.values)


class Stage(NamedTuple):
    """``step(point, way)`` is the next point upwards (1) or downwards (-1), None where there is none; at ``most`` so many in a
    row."""

    name: str
    step: Callable[[Point, int], Optional[Point]]
    most: int


@dataclass(frozen=True)
class Plan:
    """``best`` is the best point and ``value`` its mean, None while the first is not decided. ``wanted`` are the points that
    ``stage`` waits for, none where the search is at its end; to that it takes ``most_runs`` more, if everything helps."""

    stage: str
    best: Optional[Point]
    value: Optional[float]
    wanted: Tuple[Point, ...]
    most_runs: int


def stages(learning_rate_unit: float = 0) -> List[Stage]:
    """The stages in their order; where there is a unit, learning rates are whole multiples of it."""

    def rate(value: float) -> float:
        rounded = float(f"{value:.{DIGITS}g}")
        return round(round(rounded / learning_rate_unit) * learning_rate_unit, 10) if learning_rate_unit else rounded

    def scaled(point: Point, factor: float) -> Optional[Point]:
        learning_rate = rate(point.learning_rate * factor)
        return point._replace(learning_rate=learning_rate) if learning_rate > 0 else None

    def learning_rate(factor: float) -> Callable[[Point, int], Optional[Point]]:
        return lambda point, way: scaled(point, factor**way)

    def batch_size(point: Point, way: int) -> Optional[Point]:
        if way < 0 and point.batch_size % 2:
            return None
        batch = point.batch_size * 2 if way > 0 else point.batch_size // 2
        return scaled(point._replace(batch_size=batch), 2.0**way)

    def warmup(point: Point, way: int) -> Optional[Point]:
        return point._replace(warmup_epochs=point.warmup_epochs + way) if point.warmup_epochs + way >= 0 else None

    def weight_decay(point: Point, way: int) -> Optional[Point]:
        return point._replace(weight_decay=point.weight_decay * 2.0**way) if point.weight_decay else None

    return [
        Stage("learning rate x10", learning_rate(10), 3),
        Stage("learning rate 10 %", learning_rate(1.1), 5),
        Stage("batch size", batch_size, 3),
        Stage("warm-up", warmup, 3),
        Stage("weight decay", weight_decay, 3),
        Stage("schedule", _schedule, 5),
    ]


def _schedule(point: Point, way: int) -> Optional[Point]:
    """A quarter longer or shorter; where the decay has a length of its own, that changes along."""
    epochs = point.num_epochs + way * max(1, round(point.num_epochs / 4))
    if epochs < 1:
        return None
    decay = None if point.decay_epochs is None else round(point.decay_epochs * epochs / point.num_epochs, 2)
    return point._replace(num_epochs=epochs, decay_epochs=decay)


def decided(known: Evidence, rival: float, repeats: int) -> Optional[float]:
    """The value of a point against a best one of value ``rival``; None while it takes more runs to tell."""
    runs = len(known.values)
    if known.out or runs >= repeats or (runs and max(known.values) >= MISSED):
        return known.mean
    return known.mean if runs and known.mean >= _too_much(rival, runs, repeats) else None


def _too_much(rival: float, runs: int, repeats: int) -> float:
    """The mean of so many runs from which on a point is out."""
    return rival * (1 + NOISE / math.sqrt(runs)) if runs < repeats else rival


def limit(known: Evidence, rival: float, repeats: int) -> float:
    """The value from which on the next run of a point puts it out."""
    runs = len(known.values) + 1
    return math.inf if rival >= MISSED else _too_much(rival, runs, repeats) * runs - sum(known.values)


def plan(
    start: Point, evidence: Mapping[Point, Evidence], repeats: int, possible: Callable[[Point], bool] = lambda point: True,
    learning_rate_unit: float = 0,
) -> Plan:  # fmt: skip
    """What to run next, given the evidence; ``repeats`` runs decide a point, and only ``possible`` ones are tried."""
    order = stages(learning_rate_unit)
    runs = [(2 + stage.most - 1) * repeats for stage in order]
    left = repeats + runs[0] + PASSES * sum(runs[1:])
    value = decided(evidence.get(start, Evidence()), math.inf, repeats)
    if value is None:
        return Plan("the configuration as it is", None, None, (start,), left)
    left -= repeats
    walk = _Walk(evidence, repeats, possible, start, value)
    for number in range(PASSES):
        before = walk.best
        for stage, of_stage in list(zip(order, runs))[min(number, 1):]:
            waiting = walk.through(stage)
            if waiting:
                return Plan(stage.name, walk.best, walk.value, tuple(waiting), left)
            left -= of_stage
        if walk.best == before:
            break
    return Plan("the end", walk.best, walk.value, (), 0)


@dataclass
class _Walk:
    """A way through the stages as far as the evidence goes; it stands at the ``best`` point."""

    evidence: Mapping[Point, Evidence]
    repeats: int
    possible: Callable[[Point], bool]
    best: Point
    value: float

    def through(self, stage: Stage) -> List[Point]:
        """Walks on; returns the points that it then takes more runs to tell, none at the end of the stage.

        Of two ways one may be told to be better before the other is told at all: the other is up against that then.
        """
        ways: Tuple[int, ...] = (1, -1)
        for _ in range(stage.most):
            steps = [(way, stage.step(self.best, way)) for way in ways]
            tried = [(way, step) for way, step in steps if step is not None and step != self.best and self.possible(step)]
            better = [(value, way, step) for way, step in tried for value in [self._told(step)] if value is not None]
            better = [each for each in better if each[0] < self.value]
            if better:
                self.value, way, best = min(better)
                ways = (way,)
            waiting = [step for _, step in tried if self._told(step) is None]
            if better:
                self.best = best
            if waiting or not better:
                return waiting
        return []

    def _told(self, point: Point) -> Optional[float]:
        return decided(self.evidence.get(point, Evidence()), self.value, self.repeats)

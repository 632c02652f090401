"""Expected epochs of a recipe, from its published runs or else from the reference; ranking of recipes.

Source: the table of published results, and the reference convergence points of the newest ruleset.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from rn50.benchmark import rules
from rn50.hyperparameters import reference
from rn50.printed import prints
from rn50.results import published, recipe
from rn50.results.published import PublishedResult

DISTANCE_EPOCHS = 4.0
"""Epochs that a recipe is assumed to lose at twice or half its own batch size: one evaluation. A choice, not
a measurement; it only orders candidates."""


@prints("basis, runs, missed, missed_share, mean, low, high")
@dataclass(frozen=True)
class Prediction:
    """Expected epochs."""

    basis: str
    """Which runs."""
    runs: int
    """Their number."""
    missed: int
    """Runs that missed the target."""
    mean: float
    """Mean epochs of the others."""
    low: float
    """Fewest epochs."""
    high: float
    """Most epochs."""

    @property
    def missed_share(self) -> float | None:
        """Share of the runs that missed; null: there are no runs."""
        return self.missed / self.runs if self.runs else None

    def __str__(self) -> str:
        spread = f"{self.mean:.1f} epochs ({self.low:g} to {self.high:g})"
        missed = f"; {self.missed} of {self.runs} runs missed ({self.missed_share:.0%})" if self.runs else ""
        return f"{spread}{missed}: {self.basis}"


class Group(TypedDict):
    """Values that every recipe has."""

    global_batch_size: int
    """Values that it logged."""
    optimizer: str
    base_learning_rate: float


class Values(Group, total=False):
    """Values of a recipe."""

    warmup_epochs: float
    decay_epochs: float
    weight_decay: float
    momentum: float
    label_smoothing: float


@prints("name, global_batch_size, values, prediction")
@dataclass(frozen=True)
class Proven:
    """Recipe that may be borrowed, and the results that published it."""

    name: str
    """Source, as `rn50 borrow` takes it."""
    global_batch_size: int
    """Its batch size."""
    values: Annotated[dict[str, Any], Values]
    prediction: Prediction
    results: tuple[PublishedResult, ...] = ()
    """Empty for a reference recipe."""

    def expected(self, global_batch_size: int) -> float:
        """Return the reference's epochs at this batch size, plus the recipe's excess over the reference at
        its own, plus ``DISTANCE_EPOCHS`` for every factor of two between the two.

        Runs that missed do not count: at most one of the five of a published result may miss, so they tell
        little.
        """
        excess = self.prediction.mean - reference.at(self.global_batch_size).mean
        away = abs(math.log2(global_batch_size / self.global_batch_size))
        return reference.at(global_batch_size).mean + excess + DISTANCE_EPOCHS * away


def of_recipe(values: Sequence[Any], epochs: Sequence[float | None]) -> Prediction | None:
    """Predict the epochs of a recipe on ImageNet; None if nothing is known of its optimizer. ``values`` are
    in the order of ``published.GROUP``, ``epochs`` are those of its runs as ``of_own_runs`` takes them."""
    batch, optimizer = values[0], values[1]
    group = published.recipes(optimizer).get(published.recipe_key(*values), ())
    runs = _runs(group)
    if any(run is not None for run in runs):
        return _of_runs(f"{_counted(group)} of this very recipe", runs)
    of_own = of_own_runs(epochs)
    if of_own is not None:
        return of_own
    if optimizer != "lars":
        return None
    point = reference.at(batch)
    return Prediction(
        f"no run of this recipe is known; {reference.beside(batch)}", 0, 0, point.mean, point.low, point.high
    )


def of_own_runs(epochs: Sequence[float | None]) -> Prediction | None:
    """Predict from the epochs of the runs that a recipe is borrowed from, None for a run that missed. Return
    None if no run reached the target."""
    if any(epoch is not None for epoch in epochs):
        return _of_runs("the runs that it was borrowed from", epochs)
    return None


def _counted(group: Sequence[PublishedResult]) -> str:
    return f"{len(group)} published {'result' if len(group) == 1 else 'results'}"


def _runs(group: Sequence[PublishedResult]) -> list[float | None]:
    return [epochs for result in group for epochs in result.runs]


def _of_runs(basis: str, runs: Sequence[float | None]) -> Prediction:
    reached = [run for run in runs if run is not None]
    return Prediction(
        basis, len(runs), len(runs) - len(reached), statistics.mean(reached), min(reached), max(reached)
    )


def candidates(global_batch_size: int, optimizer: str) -> list[Proven]:
    """Return whole recipes of the closed division for a batch size, in the order of ``rank``."""
    return rank([*proven(published.distinct(optimizer)), *_of_reference(optimizer)], global_batch_size)


def rank(recipes: Iterable[Proven], global_batch_size: int) -> list[Proven]:
    """Sort recipes by expected epochs, rounded as they are printed; among equals, the most runs come
    first."""
    return sorted(recipes, key=lambda one: (round(one.expected(global_batch_size), 1), -one.prediction.runs))


def proven(results: Iterable[PublishedResult]) -> Iterator[Proven]:
    """Yield the complete recipes of closed-division results that reached the target in at least one run."""
    groups: dict[tuple[Any, ...], list[PublishedResult]] = {}
    for result in results:
        if result.is_closed:
            groups.setdefault(published.recipe(result), []).append(result)
    for key, group in groups.items():
        runs, values = _runs(group), dict(zip(published.GROUP, key, strict=False))
        if None not in key and any(run is not None for run in runs) and not _departs(values):
            prediction = _of_runs(_counted(group), runs)
            yield Proven(group[0].name, key[0], values, prediction, tuple(group))


def _of_reference(optimizer: str) -> Iterator[Proven]:
    ruleset = rules.RULESETS[-1]
    for point in reference.convergence_points(ruleset).values():
        logged = recipe.of_point(point)
        if logged.values["optimizer"] == optimizer:
            decay = logged.decay_epochs(rules.TRAIN_SAMPLES)
            values = {
                "global_batch_size": point["BS"],
                "optimizer": optimizer,
                "base_learning_rate": logged.values["base_learning_rate"],
                "warmup_epochs": logged.values["learning_rate_warmup_epochs"],
                "decay_epochs": None if decay is None else round(decay, 2),
                "weight_decay": logged.values["weight_decay"],
                "momentum": logged.values["momentum"],
            }
            prediction = _of_runs("the reference, evaluated every epoch", point["Epochs to converge"])
            yield Proven(f"rcp/{ruleset}/{point['BS']}", point["BS"], values, prediction)


def _departs(values: dict[str, Any]) -> bool:
    """Return whether a recipe breaks the closed division's rules. Label smoothing is not stated, so it counts
    as allowed."""
    stated = {name: values[name] for name in ("optimizer", "global_batch_size", "momentum", "weight_decay")}
    rate, smoothing = values["base_learning_rate"], rules.LABEL_SMOOTHING[0]
    return bool(rules.departures(learning_rate=rate, label_smoothing=smoothing, **stated))

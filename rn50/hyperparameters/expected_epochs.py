"""Expected epochs of a recipe, from its published runs or else from the reference; ranking of recipes.

Source: the table of published results, and the reference convergence points of the newest ruleset.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rn50.benchmark import rules
from rn50.benchmark.recipe import Recipe, departures
from rn50.errors import UserError
from rn50.hyperparameters import reference
from rn50.printed import prints
from rn50.results import published
from rn50.results.published import PublishedResult
from rn50.results.recipe import convergence_points, of_point
from rn50.terminal import counted

DISTANCE_EPOCHS = 4.0
"""Epochs that a recipe is assumed to lose at twice or half its own batch size: one evaluation. A choice, not
a measurement; it only orders candidates."""


@dataclass(frozen=True)
class ExpectedEpochs:
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


prints(ExpectedEpochs, lambda r: (r.basis, r.runs, r.missed, r.missed_share, r.mean, r.low, r.high))


@dataclass(frozen=True)
class Proven:
    """Recipe that may be borrowed, and the results that published it."""

    name: str
    """Source, as `rn50 borrow` takes it."""
    values: Recipe
    """Values that it logged."""
    prediction: ExpectedEpochs
    results: tuple[PublishedResult, ...] = ()
    """Empty for a reference recipe."""

    def expected(self, global_batch_size: int) -> float:
        """Return the reference's epochs at this batch size, plus the recipe's excess over the reference at
        its own, plus ``DISTANCE_EPOCHS`` for every factor of two between the two.

        Runs that missed do not count: at most one of the five of a published result may miss, so they tell
        little.
        """
        excess = self.prediction.mean - reference.at(self.values.global_batch_size).mean
        away = abs(math.log2(global_batch_size / self.values.global_batch_size))
        return reference.at(global_batch_size).mean + excess + DISTANCE_EPOCHS * away


prints(Proven, lambda r: (r.name, r.values.global_batch_size, r.values, r.prediction))


def refuse_no_count(option: str, number: float) -> None:
    """Raise UserError unless ``number``, which the command line gives by ``option``, is a whole one from 1
    on."""
    if not number >= 1 or number % 1:
        raise UserError(f"{option} {number}", "no whole number from 1 on", "give one")


def of_recipe(recipe: Recipe, epochs: Sequence[float | None]) -> ExpectedEpochs | None:
    """Predict the epochs of a recipe on ImageNet; None if nothing is known of its optimizer. ``epochs`` are
    those of its runs as ``of_own_runs`` takes them."""
    group = published.by_recipe(published.distinct(recipe.optimizer)).get(recipe.shared, ())
    basis = f"{counted(len(group), 'published result')} of this very recipe"
    prediction = _of_runs(basis, _runs(group)) or of_own_runs(epochs)
    if prediction or recipe.optimizer != "lars":
        return prediction
    point = reference.at(recipe.global_batch_size)
    basis = f"no run of this recipe is known; {reference.beside(point.batch_size)}"
    return ExpectedEpochs(basis, 0, 0, point.mean, point.low, point.high)


def of_own_runs(epochs: Sequence[float | None]) -> ExpectedEpochs | None:
    """Predict from the epochs of the runs that a recipe is borrowed from, None for a run that missed. Return
    None if no run reached the target."""
    return _of_runs("the runs that it was borrowed from", epochs)


def _runs(group: Sequence[PublishedResult]) -> list[float | None]:
    return [epochs for result in group for epochs in result.runs]


def _of_runs(basis: str, runs: Sequence[float | None]) -> ExpectedEpochs | None:
    reached = [run for run in runs if run is not None]
    if not reached:
        return None
    missed = len(runs) - len(reached)
    return ExpectedEpochs(basis, len(runs), missed, statistics.mean(reached), min(reached), max(reached))


def candidates(global_batch_size: int, optimizer: str) -> list[Proven]:
    """Return whole recipes of the closed division for a batch size, in the order of ``rank``."""
    refuse_no_count("--global-batch-size", global_batch_size)
    return rank([*proven(published.distinct(optimizer)), *_of_reference(optimizer)], global_batch_size)


def rank(recipes: Iterable[Proven], global_batch_size: int) -> list[Proven]:
    """Sort recipes by expected epochs, rounded as they are printed; among equals, the most runs come
    first."""
    size = global_batch_size
    return sorted(recipes, key=lambda recipe: (round(recipe.expected(size), 1), -recipe.prediction.runs))


def proven(results: Iterable[PublishedResult]) -> Iterator[Proven]:
    """Yield the complete recipes of closed-division results that reached the target in at least one run."""
    for recipe, group in published.by_recipe(result for result in results if result.is_closed).items():
        prediction = _of_runs(counted(len(group), "published result"), _runs(group))
        if prediction and recipe.is_whole and not departures(recipe):
            yield Proven(group[0].name, recipe, prediction, group)


def _of_reference(optimizer: str) -> Iterator[Proven]:
    ruleset = rules.RULESETS[-1]
    for point in convergence_points(ruleset).values():
        recipe = of_point(point)
        prediction = _of_runs("the reference, evaluated every epoch", point["Epochs to converge"])
        if prediction and recipe.optimizer == optimizer:
            yield Proven(f"rcp/{ruleset}/{recipe.global_batch_size}", recipe.shared, prediction)

"""Epochs that a recipe is expected to need, and a ranking of published recipes by them.

``rn50 borrow`` uses ``of_recipe``, ``rn50 borrow --suggest`` uses ``candidates``, and ``rn50 plan`` ranks
``proven`` recipes. A recipe is a set of hyperparameters with their global batch size.

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
"""Further epochs that a recipe is assumed to need at twice or half its own batch size: those from one
evaluation to the next. This is a choice, not a measurement; it only orders candidates."""


@dataclass(frozen=True)
class ExpectedEpochs:
    """Epochs to expect of a recipe, by the runs that others made with it."""

    basis: str
    """Origin of the runs, in words."""
    runs: int
    """Number of runs; 0: the epochs are those of the reference with another recipe."""
    missed: int
    """Number of runs that missed the target."""
    mean: float
    """Mean epochs of the runs that reached the target."""
    low: float
    """Fewest epochs of a run that reached it."""
    high: float
    """Most epochs of a run that reached it."""

    @property
    def missed_share(self) -> float | None:
        """Share of the runs that missed the target; null: there are no runs."""
        return self.missed / self.runs if self.runs else None

    def __str__(self) -> str:
        spread = f"{self.mean:.1f} epochs ({self.low:g} to {self.high:g})"
        missed = f"; {self.missed} of {self.runs} runs missed ({self.missed_share:.0%})" if self.runs else ""
        return f"{spread}{missed}: {self.basis}"


# What ``--json`` prints of it.
prints(ExpectedEpochs, lambda r: (r.basis, r.runs, r.missed, r.missed_share, r.mean, r.low, r.high))


@dataclass(frozen=True)
class Proven:
    """Recipe that reached the target and may be borrowed, and the results that published it."""

    name: str
    """Name of the source, as an argument of `rn50 borrow`."""
    values: Recipe
    """Values that the source logged."""
    prediction: ExpectedEpochs
    """Epochs at the recipe's own batch size."""
    results: tuple[PublishedResult, ...] = ()
    """Published results with the recipe; empty for a recipe of the reference."""

    def expected(self, global_batch_size: int) -> float:
        """Return the epochs to expect of the recipe at a batch size.

        They are the sum of the reference's epochs at this batch size, the recipe's excess over the reference
        at its own batch size, and ``DISTANCE_EPOCHS`` for every factor of two between the two batch sizes.
        Runs that missed the target are not counted: at most one of the five runs of a published result may
        miss, so their number says little.
        """
        excess = self.prediction.mean - reference.interpolated(self.values.global_batch_size).mean
        away = abs(math.log2(global_batch_size / self.values.global_batch_size))
        return reference.interpolated(global_batch_size).mean + excess + DISTANCE_EPOCHS * away


# What ``--json`` prints of it.
prints(Proven, lambda r: (r.name, r.values.global_batch_size, r.values, r.prediction))


def refuse_no_count(option: str, number: float) -> None:
    """Raise UserError unless ``number``, the value of an ``option`` of the command line, is a whole number
    and at least 1."""
    # ``not`` refuses NaN, too, of which no comparison is true.
    if not number >= 1 or number % 1:
        raise UserError(f"{option} {number}", "no whole number from 1 on", "give one")


def of_recipe(recipe: Recipe, epochs: Sequence[float | None]) -> ExpectedEpochs | None:
    """Return the epochs to expect of a recipe on ImageNet: by published results with this recipe, else by the
    runs that it was borrowed from, else by the reference. ``epochs`` are those of each run that it was
    borrowed from, None for a run that missed the target.

    None: there are no runs with the recipe, and the reference has no runs with its optimizer.
    """
    # ``shared`` has only the fields by which two results count as trained by the same recipe.
    group = published.by_recipe(published.distinct(recipe.optimizer)).get(recipe.shared, ())
    basis = f"{counted(len(group), 'published result')} of this very recipe"
    prediction = _of_runs(basis, _runs(group)) or of_own_runs(epochs)
    if prediction or recipe.optimizer != "lars":
        return prediction
    point = reference.interpolated(recipe.global_batch_size)
    basis = f"no run of this recipe is known; {reference.neighbours(point.batch_size)}"
    return ExpectedEpochs(basis, 0, 0, point.mean, point.low, point.high)


def of_own_runs(epochs: Sequence[float | None]) -> ExpectedEpochs | None:
    """Return the epochs to expect by the runs that a recipe was borrowed from. ``epochs`` are those of each
    run, None for a run that missed the target. Return None if no run reached it."""
    return _of_runs("the runs that it was borrowed from", epochs)


def _runs(group: Sequence[PublishedResult]) -> list[float | None]:
    """Return the epochs of every run of these results, None for a run that missed the target."""
    return [epochs for result in group for epochs in result.runs]


def _of_runs(basis: str, runs: Sequence[float | None]) -> ExpectedEpochs | None:
    """Return the epochs to expect by the epochs of ``runs``; None if no run reached the target."""
    reached = [run for run in runs if run is not None]
    if not reached:
        return None
    missed = len(runs) - len(reached)
    return ExpectedEpochs(basis, len(runs), missed, statistics.mean(reached), min(reached), max(reached))


def candidates(global_batch_size: int, optimizer: str) -> list[Proven]:
    """Return the proven recipes of published results and of the reference with an optimizer, ranked for a
    batch size: the one with the fewest expected epochs first."""
    refuse_no_count("--global-batch-size", global_batch_size)
    return rank([*proven(published.distinct(optimizer)), *_of_reference(optimizer)], global_batch_size)


def rank(recipes: Iterable[Proven], size: int) -> list[Proven]:
    """Return recipes sorted by their expected epochs at a global batch ``size``, rounded as they are printed.
    Among equals the recipe with the most runs comes first."""
    return sorted(recipes, key=lambda recipe: (round(recipe.expected(size), 1), -recipe.prediction.runs))


def proven(results: Iterable[PublishedResult]) -> Iterator[Proven]:
    """Yield the complete recipes of results of the closed division with which at least one run reached the
    target."""
    for recipe, group in published.by_recipe(result for result in results if result.is_closed).items():
        prediction = _of_runs(counted(len(group), "published result"), _runs(group))
        # Only complete recipes whose values the closed division allows may be borrowed.
        if prediction and recipe.is_whole and not departures(recipe):
            yield Proven(group[0].name, recipe, prediction, group)


def _of_reference(optimizer: str) -> Iterator[Proven]:
    """Yield the recipes of the reference with an optimizer, one for each of its convergence points."""
    ruleset = rules.RULESETS[-1]
    for point in convergence_points(ruleset).values():
        recipe = of_point(point)
        prediction = _of_runs("the reference, evaluated every epoch", point["Epochs to converge"])
        if prediction and recipe.optimizer == optimizer:
            yield Proven(f"rcp/{ruleset}/{recipe.global_batch_size}", recipe.shared, prediction)

"""Epochs to the target at a batch size, from the reference convergence points and published runs.

The reference, interpolated between its points, is the trend. Each published result differs from it by some
epochs. The weighted median of those differences is added to the trend; a result weighs less the further its
batch size is away. The reference itself weighs as one result, which is exact to one evaluation: a third each
for the evaluation before, its own mean and the one after. It is a median, not a mean, because epochs come in
steps of an evaluation and badly chosen recipes should not count. The prediction is never below the fewest
epochs that a published result needed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rn50.benchmark import rules
from rn50.benchmark.recipe import Recipe
from rn50.hyperparameters import reference
from rn50.results.published import PublishedResult

CONFIDENCE = 0.8
"""Confidence level of the intervals here and of those made from them."""


_REFERENCE_SPREAD = (-rules.EVAL_PERIOD_EPOCHS, 0.0, rules.EVAL_PERIOD_EPOCHS)
"""Differences from the trend with which the reference itself counts, each with a third of its weight."""


class Weights:
    """Weights of the results.

    ``octaves``: standard deviation of the bell curve that gives the weights, in octaves of batch size.
    ``reference``: weight of the reference convergence points, in results at the very batch size.
    ``other_recipes``: if a recipe is asked for, largest total weight, in such results, of everything with
    other hyperparameters, the reference included.
    """

    octaves = 0.25
    reference = 1.0
    other_recipes = 0.5


class Epochs(NamedTuple):
    """Expected epochs; the mean of a result's runs is in ``low`` to ``high`` with probability
    ``CONFIDENCE``."""

    expected: float
    low: float
    high: float


class EpochModel:
    """Model of the closed-division ``results`` that reached the target; others are ignored. The caller gives
    those of LARS alone."""

    def __init__(self, results: Sequence[PublishedResult]) -> None:
        reached = (result for result in results if result.is_closed and result.epochs_to_target)
        usable = [result for result in reached if result.recipe.global_batch_size]
        self._recipes = [result.recipe.shared for result in usable]
        self._batch_sizes = np.array([result.recipe.global_batch_size for result in usable], dtype=float)
        needed = np.array([mean_epochs(result) for result in usable])
        self._fewest = float(needed.min())
        trend = [reference.at(result.recipe.global_batch_size).mean for result in usable]
        self._differences = np.append(needed - trend, _REFERENCE_SPREAD)

    def predict(self, global_batch_size: int, recipe: Recipe | None = None) -> Epochs:
        """Return the epochs at a batch size; with ``recipe``, a ``Recipe.shared``, if given, else with the
        usual recipes."""
        octaves = np.log2(self._batch_sizes / global_batch_size)
        weights = np.exp(-((octaves / Weights.octaves) ** 2) / 2)
        number = len(_REFERENCE_SPREAD)
        weights = np.append(weights, np.full(number, Weights.reference / number))
        if recipe is not None:
            others = np.array([other != recipe for other in self._recipes] + [True] * number)
            weights[others] *= min(1.0, Weights.other_recipes / weights[others].sum())
        trend = reference.at(global_batch_size).mean
        tail = (1 - CONFIDENCE) / 2
        quantiles = (_quantile(self._differences, weights, share) for share in (tail, 0.5, 1 - tail))
        low, expected, high = (max(self._fewest, trend + difference) for difference in quantiles)
        return Epochs(expected, low, high)


def mean_epochs(result: PublishedResult) -> float:
    """Return the mean epochs of the runs that reached the target."""
    return float(np.mean(result.epochs_to_target))


def _quantile(values: "np.ndarray[Any, Any]", weights: "np.ndarray[Any, Any]", share: float) -> float:
    """Return the smallest value at which the cumulative weight reaches this share of the total. Shapes
    (n,)."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, share * reached[-1])])

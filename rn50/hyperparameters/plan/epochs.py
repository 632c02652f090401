"""``EpochModel`` predicts, for ``planner.py``, the epochs to the target at a batch size, from the reference
convergence points and published runs.

The epochs of the reference, interpolated between its points, are the trend. Each published result differs
from the trend by some epochs. The prediction is the trend plus the weighted median of these differences; a
result weighs less the further its batch size is from the one that is asked for. The reference itself counts
as one more result, with three differences of a third of its weight each: 0, one evaluation less, and one
more.

The median is used instead of the mean because epochs come in steps of an evaluation, and because badly chosen
recipes should not count. The prediction is never below the fewest epochs that a published result needed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rn50.benchmark import rules
from rn50.benchmark.recipe import Recipe
from rn50.hyperparameters import reference
from rn50.results.published import PublishedResult

CONFIDENCE = 0.8
"""Confidence level of the intervals here, and of the intervals of minutes that ``planner.py`` makes of
them."""

_REFERENCE_SPREAD = (-rules.EVAL_PERIOD_EPOCHS, 0.0, rules.EVAL_PERIOD_EPOCHS)
"""Differences from the trend, in epochs, with which the reference itself counts."""


class Weights:
    """Parameters of the weights. A published result at the batch size that is asked for weighs 1."""

    octaves = 0.25
    """A result at another batch size weighs less by a bell curve over the logarithm of the batch size. This
    is its standard deviation, in octaves (factors of 2)."""
    reference = 1.0
    """Weight of the reference."""
    other_recipes = 0.5
    """If a recipe is asked for, the largest total weight of the reference and of all results with other
    hyperparameters."""


class Epochs(NamedTuple):
    """Expected epochs. The mean of a result's runs is between ``low`` and ``high`` with probability
    ``CONFIDENCE``."""

    expected: float
    low: float
    high: float


class EpochModel:
    """Model made of those ``results`` that are of the closed division, reached the target, and state a batch
    size. All must have LARS as optimizer."""

    def __init__(self, results: Sequence[PublishedResult]) -> None:
        reached = (result for result in results if result.is_closed and result.epochs_to_target)
        usable = [result for result in reached if result.recipe.global_batch_size]
        self._recipes = [result.recipe.shared for result in usable]
        self._batch_sizes = np.array([result.recipe.global_batch_size for result in usable], dtype=float)
        needed = np.array([mean_epochs(result) for result in usable])
        self._fewest = float(needed.min())
        trend = [reference.interpolated(result.recipe.global_batch_size).mean for result in usable]
        self._differences = np.append(needed - trend, _REFERENCE_SPREAD)

    def predict(self, global_batch_size: int, recipe: Recipe | None = None) -> Epochs:
        """Return the epochs to expect at a batch size. ``recipe`` (a ``Recipe.shared``) has the
        hyperparameters to train with; None: the usual ones at this batch size."""
        octaves = np.log2(self._batch_sizes / global_batch_size)
        weights = np.exp(-((octaves / Weights.octaves) ** 2) / 2)
        # The weights are in the order of ``_differences``: the published results, then the reference's three.
        number = len(_REFERENCE_SPREAD)
        weights = np.append(weights, np.full(number, Weights.reference / number))
        if recipe is not None:
            # True for results with other hyperparameters, and for the reference.
            others = np.array([other != recipe for other in self._recipes] + [True] * number)
            weights[others] *= min(1.0, Weights.other_recipes / weights[others].sum())
        trend = reference.interpolated(global_batch_size).mean
        tail = (1 - CONFIDENCE) / 2
        quantiles = (_quantile(self._differences, weights, share) for share in (tail, 0.5, 1 - tail))
        low, expected, high = (max(self._fewest, trend + difference) for difference in quantiles)
        return Epochs(expected, low, high)


def mean_epochs(result: PublishedResult) -> float:
    """Return the mean epochs of those runs of a result that reached the target."""
    return float(np.mean(result.epochs_to_target))


def _quantile(values: "np.ndarray[Any, Any]", weights: "np.ndarray[Any, Any]", share: float) -> float:
    """Return the smallest of the values at which their cumulative weight reaches ``share`` of the total. Both
    arrays have the shape (n,)."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, share * reached[-1])])

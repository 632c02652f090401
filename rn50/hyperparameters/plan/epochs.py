"""How many epochs a batch size needs to the target: from the reference convergence points and what published runs needed.

The reference, interpolated between its points, is the trend. Published results differ from it by so many epochs; the median of
those differences, each result weighing the less the further its batch size is away, is added to it. The reference itself weighs
as one result, which is right to an evaluation: a third each for the one before, its own mean and the one after. A median and no
mean: epochs come in steps of an evaluation, and who chose badly has no say. Fewer than anybody ever needed are never predicted.
"""

from dataclasses import dataclass
from typing import Any, Optional, Sequence, Tuple

import numpy as np

from rn50.benchmark import rules
from rn50.hyperparameters import reference
from rn50.results import published
from rn50.results.published import PublishedResult

CONFIDENCE = 0.8
"""Of the intervals here and of those made from them."""


_OF_THE_REFERENCE = (-rules.EVAL_PERIOD_EPOCHS, 0.0, rules.EVAL_PERIOD_EPOCHS)


@dataclass(frozen=True)
class Weights:
    """``octaves``: a result at twice the batch size is 1 / octaves standard deviations of the weight's bell curve away.
    ``reference``: what the reference convergence points weigh, in results of the very batch size. ``other_recipes``: what all
    weigh together, in such results, whose hyperparameters are not those asked for, where they are asked for; the reference is of
    them."""

    octaves: float = 0.25
    reference: float = 1.0
    other_recipes: float = 0.5


@dataclass(frozen=True)
class Epochs:
    """``low`` to ``high`` holds the mean of the runs of a result with ``CONFIDENCE``."""

    expected: float
    low: float
    high: float


class EpochModel:
    """Of closed-division LARS ``results`` that reached the target; others are not looked at."""

    def __init__(self, results: Sequence[PublishedResult], weights: Weights = Weights()) -> None:
        usable = [each for each in results if each.is_closed and each.epochs_to_target and each.global_batch_size]
        self._weights = weights
        self._recipes = [published.recipe(each) for each in usable]
        self._batch_sizes = np.array([each.global_batch_size for each in usable], dtype=float)
        needed = np.array([mean_epochs(each) for each in usable])
        self._fewest = float(needed.min())
        self._differences = np.append(needed - reference.epochs(self._batch_sizes), _OF_THE_REFERENCE)

    def predict(self, global_batch_size: int, recipe: Optional[Tuple[Any, ...]] = None) -> Epochs:
        """The epochs at a batch size, of a ``published.recipe`` where one is given and of the usual ones where not."""
        octaves = np.log2(self._batch_sizes / global_batch_size)
        weights = np.exp(-((octaves / self._weights.octaves) ** 2) / 2)
        weights = np.append(weights, np.full(len(_OF_THE_REFERENCE), self._weights.reference / len(_OF_THE_REFERENCE)))
        if recipe is not None:
            others = np.array([each != recipe for each in self._recipes] + [True] * len(_OF_THE_REFERENCE))
            weights[others] *= min(1.0, self._weights.other_recipes / weights[others].sum())
        trend = reference.at(global_batch_size).mean
        tail = (1 - CONFIDENCE) / 2
        quantiles = (_quantile(self._differences, weights, share) for share in (tail, 0.5, 1 - tail))
        low, expected, high = (max(self._fewest, trend + each) for each in quantiles)
        return Epochs(expected, low, high)


def mean_epochs(result: PublishedResult) -> float:
    """Of the runs that reached the target."""
    return float(np.mean(result.epochs_to_target))


def _quantile(values: "np.ndarray[Any, Any]", weights: "np.ndarray[Any, Any]", share: float) -> float:
    """The smallest value up to which the values have this share of all weight. Shapes (n,)."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, share * reached[-1])])

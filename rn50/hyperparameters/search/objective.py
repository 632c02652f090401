"""The value of a run (``value``), which a search minimises, and the reasons to stop a run early
(``why_stop``).

The value is the number of epochs at which the accuracy crosses the target, interpolated linearly between the
evaluations before and after. In whole epochs most points would be equal, because a run of a search evaluates
after every epoch.
"""

from collections.abc import Iterable, Sequence

from rn50.benchmark import rules
from rn50.hyperparameters.search.method import MISSED
from rn50.results.parse import Evaluation

PATIENCE_EPOCHS = 4
"""Epochs before which no run is stopped for its accuracy, because with a longer warm-up or a larger learning
rate a run starts more slowly and catches up."""


def epochs_to_target(evaluations: Sequence[Evaluation]) -> float | None:
    """Return the interpolated epoch at which the accuracy crosses the target; None: it does not reach it."""
    epoch, accuracy = 0.0, 0.0
    for evaluation in evaluations:
        if evaluation.accuracy >= rules.TARGET_ACCURACY:
            share = (rules.TARGET_ACCURACY - accuracy) / (evaluation.accuracy - accuracy)
            return epoch + share * (evaluation.epoch - epoch)
        epoch, accuracy = evaluation.epoch, evaluation.accuracy
    return None


def value(evaluations: Sequence[Evaluation]) -> float:
    """Return the value of a finished run: its epochs to the target, or if it missed the target ``MISSED``
    plus 1 minus its best accuracy. ``MISSED`` is more than any number of epochs, so such a run is worse than
    every other."""
    epochs = epochs_to_target(evaluations)
    return MISSED + 1 - best_accuracy(evaluations) if epochs is None else epochs


def best_accuracy(evaluations: Iterable[Evaluation]) -> float:
    """Return the best accuracy; without evaluations 0."""
    return max((evaluation.accuracy for evaluation in evaluations), default=0.0)


def why_stop(run: Sequence[Evaluation], limit: float, best: Sequence[Sequence[Evaluation]]) -> str | None:
    """Return why a run can no longer beat the best point of the search; None: it may, or has reached the
    target.

    ``run`` are the evaluations of the run so far, ``best`` those of each run of the best point. A run whose
    value is ``limit`` or more rules out its own point.

    A run is stopped at ``limit``. It is also stopped if every run of the best point had a higher accuracy
    after half as many epochs, but not before ``PATIENCE_EPOCHS``, and not before it is half as long as each
    of these runs. Half is a large margin: a median or percentile of all trials, as other search methods use
    it, would stop every second or fourth run that is just as good.
    """
    if not run or epochs_to_target(run) is not None:
        return None
    last = run[-1].epoch
    if last >= limit:
        return f"after epoch {last:g} it cannot be better than the best any more"
    first_halves = ([evaluation for evaluation in other if evaluation.epoch <= last / 2] for other in best)
    accuracies = list(map(best_accuracy, first_halves))  # of each run of the best point
    patience = max([PATIENCE_EPOCHS, *(other[-1].epoch / 2 for other in best if other)])
    if accuracies and last >= patience and best_accuracy(run) < min(accuracies):
        return f"after epoch {last:g} it was not where the best was after {last / 2:g}"
    return None

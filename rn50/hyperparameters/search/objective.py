"""Value of a run, and the reasons to stop one early.

The value is the number of epochs at which accuracy crosses the target, interpolated linearly between the
evaluations before and after, because with an evaluation every epoch most points would be equal in whole
epochs.
"""

from collections.abc import Iterable, Sequence

from rn50.benchmark import rules
from rn50.hyperparameters.search.method import MISSED
from rn50.results.parse import Evaluation

PATIENCE_EPOCHS = 4
"""Epochs before which no run is hopeless, because a longer warm-up or a larger learning rate starts more
slowly and catches up."""


def epochs_to_target(evaluations: Sequence[Evaluation]) -> float | None:
    """Return the epoch at which the target is crossed, None if it is not."""
    epoch, accuracy = 0.0, 0.0
    for evaluation in evaluations:
        if evaluation.accuracy >= rules.TARGET_ACCURACY:
            share = (rules.TARGET_ACCURACY - accuracy) / (evaluation.accuracy - accuracy)
            return epoch + share * (evaluation.epoch - epoch)
        epoch, accuracy = evaluation.epoch, evaluation.accuracy
    return None


def value(evaluations: Sequence[Evaluation]) -> float:
    """Return the value of a run at its end: epochs to the target, or ``MISSED`` plus 1 minus its best
    accuracy."""
    reached = epochs_to_target(evaluations)
    return MISSED + 1 - best_accuracy(evaluations) if reached is None else reached


def best_accuracy(evaluations: Iterable[Evaluation]) -> float:
    """Return the best accuracy, 0 before the first evaluation."""
    return max((evaluation.accuracy for evaluation in evaluations), default=0.0)


def why_stop(
    evaluations: Sequence[Evaluation], limit: float, best: Sequence[Sequence[Evaluation]]
) -> str | None:
    """Return why a run that has not reached the target can no longer beat the best, None while it may.

    ``limit`` is the value at which it rules out its point; ``best`` are the runs of the best point. From half
    of their length on, a run is hopeless if its accuracy is still below that of each of them at half its
    epoch. Half is a margin, because a median or percentile of all trials would stop every second or fourth
    run that is just as good.
    """
    if not evaluations or epochs_to_target(evaluations) is not None:
        return None
    last = evaluations[-1].epoch
    if last >= limit:
        return f"after epoch {last:g} it cannot be better than the best any more"
    begun = ([evaluation for evaluation in run if evaluation.epoch <= last / 2] for run in best)
    halfway = list(map(best_accuracy, begun))
    patience = max([PATIENCE_EPOCHS, *(run[-1].epoch / 2 for run in best if run)])
    if halfway and last >= patience and best_accuracy(evaluations) < min(halfway):
        return f"after epoch {last:g} it was not where the best was after {last / 2:g}"
    return None

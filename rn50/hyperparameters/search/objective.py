"""What a run is worth, and when it is not worth going on with.

The value is the number of epochs at which accuracy crosses the target, on a straight line between the evaluations before and
behind: with evaluations after every epoch, whole epochs would leave most points even.
"""

from typing import Optional, Sequence

from rn50.benchmark import rules
from rn50.hyperparameters.search.method import MISSED
from rn50.results.parse import Evaluation

PATIENCE_EPOCHS = 4
"""Nothing is hopeless before: a longer warm-up or a larger learning rate begins more slowly, and catches up."""


def epochs_to_target(evaluations: Sequence[Evaluation]) -> Optional[float]:
    """Where the target is crossed; None where it is not."""
    epoch, accuracy = 0.0, 0.0
    for each in evaluations:
        if each.accuracy >= rules.TARGET_ACCURACY:
            return epoch + (rules.TARGET_ACCURACY - accuracy) / (each.accuracy - accuracy) * (each.epoch - epoch)
        epoch, accuracy = each.epoch, each.accuracy
    return None


def value(evaluations: Sequence[Evaluation]) -> float:
    """Of a run that came to its end: epochs to the target, or ``MISSED`` and what its best accuracy lacks."""
    reached = epochs_to_target(evaluations)
    return MISSED + 1 - max((each.accuracy for each in evaluations), default=0.0) if reached is None else reached


def why_stop(evaluations: Sequence[Evaluation], limit: float, best: Sequence[Sequence[Evaluation]]) -> Optional[str]:
    """Why a run that has not reached the target cannot matter any more; None as long as it may.

    ``limit`` is the value from which on it puts its point out, ``best`` are the runs of the best point. Hopeless is what, in the
    second half of the time that those took, never was where each of them was twice as early: a margin rather than a median or
    percentile of all trials, which would stop every second or fourth run that is just as good.
    """
    if not evaluations or epochs_to_target(evaluations) is not None:
        return None
    last = evaluations[-1].epoch
    if last >= limit:
        return f"after epoch {last:g} it cannot be better than the best any more"
    top = max(each.accuracy for each in evaluations)
    halfway = [max((each.accuracy for each in run if each.epoch <= last / 2), default=0.0) for run in best]
    patience = max([PATIENCE_EPOCHS, *(run[-1].epoch / 2 for run in best if run)])
    if halfway and last >= patience and top < min(halfway):
        return f"after epoch {last:g} it was not where the best was after {last / 2:g}"
    return None

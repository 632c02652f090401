"""Evaluate a file of weights (``rn50 evaluate``), and count the predictions of any evaluation.

``rn50 evaluate`` starts the ranks of a configuration, and each calls ``as_rank``. ``timed_run.py`` calls
``count`` with EVAL_TOP5=1.
"""

import functools
import pathlib

from rn50.benchmark import sparsity
from rn50.run import all_reduce
from rn50.run.loop import Rank, opened
from rn50.settings.config import Config
from rn50.weights import counts, display, weights_file
from rn50.weights.counts import Counts
from rn50.weights.display import Density, FileEvaluation

SEED = 1
"""Seed of the initial weights, which those of the file replace."""
ENVIRONMENT = {
    "STEP_MODE": "eager",
    "NVIDIA_TF32_OVERRIDE": "0",  # else convolutions on a GPU keep 10 of the 23 bits of a float32 fraction
}
"""Variables that override the configuration in an evaluation."""


def as_rank(config: Config, file: str, report: str | None, as_json: bool) -> None:
    """Evaluate the weights of ``file`` as one rank. Rank 0 prints the counts, and writes a page to the file
    ``report`` unless that is None.

    Raises UserError unless every image of the validation set was counted.
    """
    weights = weights_file.read(pathlib.Path(file), config.hyperparameters.blur_pool)
    with opened(config) as rank:
        rank.warm_up(SEED)
        rank.assign(weights.arrays)
        totals = count(config, rank, confusion=report is not None)
        if rank.communicator.rank == 0:
            evaluation = FileEvaluation(
                weights=pathlib.Path(file),
                framework=config.run.framework,
                precision=rank.precision.name,
                facts=weights_file.shown(weights.facts),
                class_names=weights_file.class_names(weights.facts, weights.classes),
                counts=totals,
                sparse=sparsity.holds(weights.arrays),
                density=[Density(*layer) for layer in sparsity.densities(weights.arrays).items()],
            )
            display.print_evaluation(evaluation, pathlib.Path(report) if report else None, as_json)


def count(config: Config, rank: Rank, confusion: bool = False) -> Counts:
    """Evaluate the network of ``rank`` on the whole validation set. Return the counts over all ranks, with
    ``confusion`` also those of each pair of classes.

    Raises UserError unless every image was counted.
    """
    add_up = functools.partial(all_reduce.sum_in_pieces, rank.communicator)
    data = config.data
    return counts.evaluate(rank.predictions(), data.classes, data.eval_samples, confusion, add_up)

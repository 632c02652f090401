"""Evaluate a file of weights as one rank, through the evaluation of a timed run (``rn50 evaluate``)."""

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
"""Seed of the initial values, which the weights replace."""
ENVIRONMENT = {
    "STEP_MODE": "eager",
    "NVIDIA_TF32_OVERRIDE": "0",  # else a GPU's float32 has 10 bits of 23 in convolutions
}
"""Variables of an evaluation, whatever its configuration says."""


def as_rank(config: Config, file: str, report: str | None, as_json: bool) -> None:
    """Evaluate as one rank; rank 0 prints the counts and writes the report.

    Raises UserError unless every image of the validation set was counted.
    """
    saved = weights_file.read(pathlib.Path(file))
    with opened(config) as rank:
        rank.warm_up(SEED)
        rank.assign(saved.arrays)
        counted = count(config, rank, confusion=report is not None)
        if rank.communicator.rank == 0:
            facts = {name: value for name, value in sorted(saved.facts.items()) if name != "file"}
            densities = [Density(*layer) for layer in sparsity.densities(saved.arrays).items()]
            sparse, taken = sparsity.holds(saved.arrays), rank.precision.name
            network = pathlib.Path(file), config.run.framework, taken
            evaluation = FileEvaluation(*network, facts, counted, sparse, densities)
            display.print_evaluation(evaluation, pathlib.Path(report) if report else None, as_json)


def count(config: Config, rank: Rank, confusion: bool = False) -> Counts:
    """Return the counts of the whole validation set over all ranks, from the logits.

    Raises UserError unless every image was counted.
    """
    add_up = functools.partial(all_reduce.in_pieces, rank.communicator)
    data, predictions = config.data, rank.predictions()
    return counts.evaluate(predictions, data.classes, data.eval_samples, confusion, add_up)

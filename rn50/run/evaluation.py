"""Evaluate a file of weights as one rank, through the evaluation of a timed run (``rn50 evaluate``)."""

import pathlib

from rn50.benchmark import sparsity
from rn50.errors import UserError
from rn50.run import all_reduce
from rn50.run.loop import Rank, opened
from rn50.settings.config import Config
from rn50.weights import display, weights_file
from rn50.weights.counts import Counts, refuse_other_count
from rn50.weights.display import Density, Evaluation

SEED = 1
"""Seed of the initial values, which the weights replace."""


def environment_for(file: pathlib.Path, config: Config) -> dict[str, str]:
    """Return the variables that the network of a file of weights needs in place of those of ``config``.

    Raises UserError if the file is not ours, or its network is for another number of classes.
    """
    saved = weights_file.read(file)
    if saved.classes != config.data.classes:
        problem = (
            f"it tells {saved.classes} classes apart, and the data set has NUMCLASSES={config.data.classes}"
        )
        raise UserError(file, problem, "name the configuration of its data set")
    return {
        "WIDTH": saved.facts["width"],
        "IMAGE_SIZE": str(saved.image_size),
        "EVAL_RESIZE": str(saved.eval_resize),
        "STEP_MODE": "eager",
        "NVIDIA_TF32_OVERRIDE": "0",  # else a GPU's float32 has 10 bits of 23 in convolutions
    }


def as_rank(config: Config, file: str, report: str | None, as_json: bool) -> None:
    """Evaluate as one rank; rank 0 prints the counts and writes the report.

    Raises UserError unless every image of the validation set was counted.
    """
    saved = weights_file.read(pathlib.Path(file))
    with opened(config) as rank:
        rank.warm_up(SEED)
        rank.assign(saved.arrays)
        counts = count(config, rank, confusion=report is not None)
        if rank.communicator.rank == 0:
            facts = {name: value for name, value in sorted(saved.facts.items()) if name != "file"}
            densities = [Density(*layer) for layer in sparsity.densities(saved.arrays).items()]
            sparse, taken = sparsity.holds(saved.arrays), rank.precision.name
            network = pathlib.Path(file), config.run.framework, taken
            evaluation = Evaluation(*network, facts, counts, sparse, densities)
            display.tell(evaluation, pathlib.Path(report) if report else None, as_json)


def count(config: Config, rank: Rank, confusion: bool = False) -> Counts:
    """Return the counts of the whole validation set over all ranks, from the logits.

    Raises UserError unless every image was counted.
    """
    local = Counts.none(config.data.classes, confusion)
    for logits, labels in rank.predictions():
        local.add(logits, labels)
    summed = all_reduce.in_pieces(rank.communicator, local.numbers)
    counts = Counts(summed, config.data.classes)
    refuse_other_count(counts.images, config.data.eval_samples)
    return counts

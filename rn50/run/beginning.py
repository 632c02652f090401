"""The state that a run begins with: random weights, saved weights (INITIAL_WEIGHTS), or the checkpoint of an
interrupted run (RESUME).

``timed_run.py`` reads it before the ranks connect, and loads it into the rank after the warm-up.
"""

import dataclasses
import pathlib
from typing import NamedTuple

from rn50.benchmark import sparsity
from rn50.errors import UserError
from rn50.run import checkpoint
from rn50.run.checkpoint import Checkpoint
from rn50.run.loop import Rank
from rn50.settings.config import Config
from rn50.weights import weights_file
from rn50.weights.weights_file import Weights


class Beginning(NamedTuple):
    """The state that a run begins with. If both fields are None, it begins with random weights."""

    weights: Weights | None
    """The weights of INITIAL_WEIGHTS."""
    checkpoint: Checkpoint | None
    """The checkpoint that RESUME=1 goes on from."""

    @property
    def epoch(self) -> int:
        """The last epoch that the checkpoint has trained; 0 without a checkpoint."""
        return self.checkpoint.epoch if self.checkpoint else 0

    def configured(self, config: Config) -> Config:
        """Return ``config`` with the seed and the precision of the checkpoint. Otherwise a resumed run would
        draw a new seed, and PRECISION=auto might choose another precision."""
        if self.checkpoint is None:
            return config
        run = dataclasses.replace(config.run, seed=self.checkpoint.seed, precision=self.checkpoint.precision)
        return dataclasses.replace(config, run=run)

    def load_into(self, rank: Rank, config: Config) -> None:
        """Set the weights of a rank, and with a checkpoint its momentum, after the warm-up.

        With SPARSITY=2:4, which needs INITIAL_WEIGHTS, prune those weights, and keep them pruned after every
        update. A checkpoint replaces the weights but not the masks.
        """
        if self.weights is not None:
            arrays = dict(self.weights.arrays)
            if config.run.sparsity == sparsity.NAME:
                masks = sparsity.masks(arrays)
                arrays.update((name, arrays[name] * mask) for name, mask in masks.items())
                rank.engine.keep(masks)
            rank.assign(arrays)
        if self.checkpoint is not None:
            checkpoint.restore(self.checkpoint, rank)


def read(config: Config) -> Beginning:
    """Read the files that a run of ``config`` begins with.

    Raises UserError if rn50 did not write them, or if they are of another network or configuration.
    """
    return Beginning(initial_weights(config), checkpoint.read(config))


def initial_weights(config: Config) -> Weights | None:
    """Return the weights of INITIAL_WEIGHTS; None if it is not set.

    Raises UserError if rn50 did not write the file, or if it is of another network than that of ``config``.
    """
    file, data = config.run.initial_weights, config.data
    if file is None:
        return None
    weights = weights_file.read(pathlib.Path(file), config.hyperparameters.blur_pool)
    sizes = ("NUMCLASSES", weights.classes, data.classes), ("WIDTH", weights.width, data.width)
    for variable, saved, needed in sizes:
        if saved != needed:
            problem = f"it is of a network with {variable}={saved}, the configuration has {variable}={needed}"
            raise UserError(f"INITIAL_WEIGHTS={file}", problem, "give weights of the same network")
    return weights

"""Where a run begins: with random weights, with saved ones (INITIAL_WEIGHTS), or after an epoch that an
interrupted run has trained (RESUME)."""

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
    """Where a run begins. Without weights and checkpoint it begins with random weights."""

    weights: Weights | None
    checkpoint: Checkpoint | None

    @property
    def epoch(self) -> int:
        """The last epoch that is trained already; 0 if there is none."""
        return self.checkpoint.epoch if self.checkpoint else 0

    def configured(self, config: Config) -> Config:
        """Return the configuration with the seed and the precision of the checkpoint, because by default the
        seed is random and PRECISION=auto may become another one."""
        if self.checkpoint is None:
            return config
        run = dataclasses.replace(config.run, seed=self.checkpoint.seed, precision=self.checkpoint.precision)
        return dataclasses.replace(config, run=run)

    def give(self, config: Config, rank: Rank) -> None:
        """Give a warmed-up rank the weights, and the momentum of a checkpoint. With SPARSITY=2:4
        prune the weights, and keep them pruned after every update."""
        if self.weights is not None:
            arrays = dict(self.weights.arrays)
            if config.run.sparsity == sparsity.NAME:
                masks = sparsity.masks(arrays)
                arrays.update((name, arrays[name] * mask) for name, mask in masks.items())
                rank.engine.keep(masks)
            rank.assign(arrays)
        if self.checkpoint is not None:
            checkpoint.restore(self.checkpoint, rank)


def of(config: Config) -> Beginning:
    """Return where a run of ``config`` begins.

    Raises UserError if a file that it begins with is not ours, or of another network or configuration.
    """
    return Beginning(initial_weights(config), checkpoint.read(config))


def initial_weights(config: Config) -> Weights | None:
    """Return the weights of INITIAL_WEIGHTS, None if it is not set.

    Raises UserError if their file is not ours, or is of another network than that of ``config``.
    """
    if config.run.initial_weights is None:
        return None
    saved, data = weights_file.read(pathlib.Path(config.run.initial_weights)), config.data
    sizes = ("NUMCLASSES", saved.classes, data.classes), ("WIDTH", saved.width, data.width)
    for variable, theirs, ours in sizes:
        if theirs != ours:
            subject = f"INITIAL_WEIGHTS={config.run.initial_weights}"
            problem = f"it is of a network with {variable}={theirs}, the configuration has {variable}={ours}"
            raise UserError(subject, problem, "give weights of the same network")
    return saved

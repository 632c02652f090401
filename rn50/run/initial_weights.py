"""Begin a run with saved weights instead of random ones (INITIAL_WEIGHTS), and keep them pruned
(SPARSITY)."""

import pathlib

from rn50.benchmark import sparsity
from rn50.errors import UserError
from rn50.results import weights
from rn50.results.weights import Weights
from rn50.run.implementation import Implementation
from rn50.settings.config import Config


def read(config: Config) -> Weights | None:
    """Return the weights that a run begins with; None if they are random.

    Raises UserError if their file is not ours, or is of another network than that of ``config``.
    """
    if config.run.initial_weights is None:
        return None
    saved, data = weights.read(pathlib.Path(config.run.initial_weights)), config.data
    for variable, theirs, ours in (
        ("NUMCLASSES", saved.classes, data.classes),
        ("WIDTH", saved.width, data.width),
    ):
        if theirs != ours:
            raise UserError(
                f"INITIAL_WEIGHTS={config.run.initial_weights}",
                f"it is of a network with {variable}={theirs}, the configuration has {variable}={ours}",
                "give weights of the same network",
            )
    return saved


def give(config: Config, saved: Weights, implementation: Implementation) -> None:
    """Give the weights to a warmed-up implementation. With SPARSITY=2:4 prune them, and keep them pruned
    after every update."""
    arrays = dict(saved.arrays)
    if config.run.sparsity == sparsity.NAME:
        masks = sparsity.masks(arrays)
        arrays.update((name, arrays[name] * mask) for name, mask in masks.items())
        implementation.keep(masks)
    implementation.assign(arrays)

"""2:4 sparsity: of every four consecutive input channels of a weight, the two of the smaller magnitude are 0.

Mishra et al., "Accelerating Sparse Deep Neural Networks" (arXiv:2104.08378): Ampere's tensor cores multiply
such weights at twice the rate. A trained network is pruned once and then trained again, with its zeros kept.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from rn50.benchmark import network

NAME = "2:4"
"""Value of SPARSITY."""
GROUP, KEPT = 4, 2
"""Weights of a group, and how many of them are kept."""


def pruned(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the pruned weights: every convolution but the first, and the classifier."""
    first = f"{network.stem().name}_weight"
    return tuple(name for name in names if name.endswith("_weight") and name != first)


def mask(weight: np.ndarray) -> np.ndarray:
    """Return 1 where a weight (outputs, inputs, ...) is kept and 0 elsewhere, as float32 of its shape.

    Among equal magnitudes, the lower input channel is kept. ``inputs`` is divisible by ``GROUP``.
    """
    groups = np.abs(_groups(weight))
    kept = np.argsort(-groups, axis=-1, kind="stable")[..., :KEPT]
    grouped_mask = np.zeros_like(groups, np.float32)
    np.put_along_axis(grouped_mask, kept, 1, axis=-1)
    return np.ascontiguousarray(np.moveaxis(grouped_mask.reshape(_last(weight).shape), -1, 1))


def masks(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the masks of a network's pruned weights by name."""
    return {name: mask(weights[name]) for name in pruned(weights)}


def densities(weights: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the fraction of each pruned weight that is not 0."""
    return {name: float(np.count_nonzero(weights[name]) / weights[name].size) for name in pruned(weights)}


def holds(weights: Mapping[str, np.ndarray]) -> bool:
    """Return whether in every group at least two weights are 0."""
    arrays = [weights[name] for name in pruned(weights)]
    divide = all(array.shape[1] % GROUP == 0 for array in arrays)
    return divide and all((np.count_nonzero(_groups(array), axis=-1) <= KEPT).all() for array in arrays)


def _last(weight: np.ndarray) -> np.ndarray:
    """Return the weight with its input channels last."""
    return np.moveaxis(weight, 1, -1)


def _groups(weight: np.ndarray) -> np.ndarray:
    """Return the weight with its input channels in groups of ``GROUP``, which are the last axis."""
    last = _last(weight)
    return last.reshape(*last.shape[:-1], -1, GROUP)

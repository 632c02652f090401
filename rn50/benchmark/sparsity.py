"""2:4 sparsity: of every four consecutive input channels of a weight, the two of smallest magnitude are 0.

Ampere's tensor cores multiply such weights at twice the rate. A trained network is pruned once, and then
trained again while the pruned weights are kept 0: Mishra et al., "Accelerating Sparse Deep Neural Networks"
(arXiv:2104.08378). ``beginning.py`` prunes with ``masks``; the engine keeps the zeros.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from rn50.benchmark import network

NAME = "2:4"
"""The value of SPARSITY that turns it on."""
GROUP, KEPT = 4, 2
"""Number of weights in a group, and how many of them are not pruned."""


def pruned(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the tensors that are pruned, from ``names`` of tensors of a network: the weights of
    every convolution but the first, and of the classifier."""
    first = f"{network.stem().name}_weight"
    return tuple(name for name in names if name.endswith("_weight") and name != first)


def mask(weight: np.ndarray) -> np.ndarray:
    """Return the mask of a weight of shape (outputs, inputs, ...): float32 of the same shape, 1 where a value
    is kept and 0 where it is pruned.

    Of equal magnitudes, the one of the lower input channel is kept. ``inputs`` has to be divisible by
    ``GROUP``.
    """
    groups = np.abs(_groups(weight))
    kept_indices = np.argsort(-groups, axis=-1, kind="stable")[..., :KEPT]
    grouped_mask = np.zeros_like(groups, np.float32)
    np.put_along_axis(grouped_mask, kept_indices, 1, axis=-1)
    inputs_last = grouped_mask.reshape(*groups.shape[:-2], -1)
    return np.ascontiguousarray(np.moveaxis(inputs_last, -1, 1))


def masks(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return name -> mask, for each weight of a network that is pruned."""
    return {name: mask(weights[name]) for name in pruned(weights)}


def densities(weights: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return name -> fraction of the values that are not 0, for each weight that is pruned."""
    return {name: float(np.count_nonzero(weights[name]) / weights[name].size) for name in pruned(weights)}


def holds(weights: Mapping[str, np.ndarray]) -> bool:
    """Return whether a network is 2:4 sparse: at least two weights of every group are 0."""
    arrays = [weights[name] for name in pruned(weights)]
    are_divisible = all(array.shape[1] % GROUP == 0 for array in arrays)
    return are_divisible and all(np.count_nonzero(_groups(array), axis=-1).max() <= KEPT for array in arrays)


def _groups(weight: np.ndarray) -> np.ndarray:
    """Return a weight of shape (outputs, inputs, ...) as (outputs, ..., inputs / GROUP, GROUP)."""
    inputs_last = np.moveaxis(weight, 1, -1)
    return inputs_last.reshape(*inputs_last.shape[:-1], -1, GROUP)

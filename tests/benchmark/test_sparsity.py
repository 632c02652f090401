"""The masks of 2:4 sparsity, against their definition group by group."""

import numpy as np
import pytest

from rn50.benchmark import network, sparsity


@pytest.mark.parametrize("shape", [(5, 8), (3, 12, 1, 1), (4, 8, 3, 3)])
def test_two_of_four_of_the_largest_magnitude_are_kept(shape):
    weight = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    found = sparsity.mask(weight)
    assert found.shape == shape and found.dtype == np.float32 and found.flags.c_contiguous
    for place in np.ndindex(shape[0], shape[1] // 4, *shape[2:]):
        row, group, *rest = place
        at = (row, slice(4 * group, 4 * group + 4), *rest)
        kept = set(np.flatnonzero(found[at]))
        assert kept == set(np.argsort(np.abs(weight[at]))[2:])


def test_of_equal_magnitudes_the_lower_channels_are_kept():
    weight = np.array([[1, -1, 1, -1, 0, 0, 0, 0, 2, -3, 3, 2]], np.float32)
    assert sparsity.mask(weight).tolist() == [[1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0]]


def test_the_first_layer_biases_and_norms_are_not_pruned():
    names = sparsity.pruned(network.shapes(10, 0.125))
    assert len(names) == 53 and "conv0_weight" not in names and "fc1_weight" in names
    assert all(name.endswith("_weight") for name in names)


def test_density_and_whether_every_group_has_two_zeros():
    shapes = network.shapes(10, 0.125)
    weights = {
        name: np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()}
    assert set(sparsity.densities(weights).values()) == {1.0} and not sparsity.holds(weights)
    weights.update((name, weights[name] * mask) for name, mask in sparsity.masks(weights).items())
    assert set(sparsity.densities(weights).values()) == {0.5} and sparsity.holds(weights)
    weights["fc1_weight"][0, :8] = [0, 0, 0, 0, 1, 1, 1, 1]  # as many zeros, not where they should be
    assert sparsity.densities(weights)["fc1_weight"] == 0.5 and not sparsity.holds(weights)

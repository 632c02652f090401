"""The rounding of fake quantisation, against its definition number by number."""

import numpy as np

from rn50.benchmark import quantization


def test_each_output_of_a_weight_has_255_symmetric_levels():
    weight = np.random.default_rng(0).standard_normal((5, 8, 3, 3)).astype(np.float32)
    found = quantization.rounded_weight(weight)
    assert found.shape == weight.shape and found.dtype == np.float32
    for row, rounded in zip(weight, found, strict=False):
        step = np.abs(row).max() / 127
        levels = rounded / step
        np.testing.assert_allclose(levels, np.round(levels), atol=1e-4)
        assert np.abs(rounded - row).max() <= step * 0.5001 and np.abs(np.round(levels)).max() == 127


def test_an_input_has_256_levels_and_its_zeros_stay():
    x = np.random.default_rng(1).standard_normal((4, 3, 9, 9)).astype(np.float32)
    x[0] = 0
    found = quantization.rounded_input(x)
    step = (x.max() - x.min()) / 255
    assert len(np.unique(found)) <= 256 and (found[0] == 0).all() and np.abs(found - x).max() <= step * 1.0001
    only_positive = quantization.rounded_input(np.abs(x))
    assert only_positive.min() == 0 and only_positive.max() == np.abs(x).max()


def test_zeros_stay_zeros():
    assert (quantization.rounded_weight(np.zeros((2, 3), np.float32)) == 0).all()
    assert (quantization.rounded_input(np.zeros((2, 3), np.float32)) == 0).all()


def test_rounding_what_is_rounded_changes_nothing():
    weight = quantization.rounded_weight(np.random.default_rng(2).standard_normal((5, 8)).astype(np.float32))
    np.testing.assert_allclose(quantization.rounded_weight(weight), weight, rtol=1e-6)

"""The oracle itself, against values computed by hand."""

import numpy as np
import pytest

from rn50 import sgd


def test_two_steps_of_a_weight_by_hand():
    # g + wd w = (6.6, 8.8); v = 0.5 * that
    weight, velocity = sgd.update("fc1_weight", np.array([3.0, 4.0]), np.array([6.0, 8.0]), np.zeros(2), 0.5, 0.9, 0.2)
    assert velocity == pytest.approx([3.3, 4.4])
    assert weight == pytest.approx([-0.3, -0.4])
    # g + wd w = (0.54, 0.72), at another learning rate, which is not applied to what the buffer holds
    weight, velocity = sgd.update("fc1_weight", weight, np.array([0.6, 0.8]), velocity, 0.1, 0.9, 0.2)
    assert velocity == pytest.approx([2.97 + 0.054, 3.96 + 0.072])
    assert weight == pytest.approx([-0.3 - 3.024, -0.4 - 4.032])


@pytest.mark.parametrize("name", ["bn0_gamma", "stage4_unit3_bn3_beta", "fc1_bias"])
def test_batch_norm_and_bias_have_no_weight_decay(name):
    weight, velocity = sgd.update(name, np.array([3.0]), np.array([6.0]), np.array([1.0]), 0.5, 0.9, 0.2)
    assert velocity == pytest.approx([0.9 + 0.5 * 6.0])
    assert weight == pytest.approx([3.0 - 3.9])


def test_what_is_skipped():
    assert not sgd.is_skipped("stage1_unit1_conv1sc_weight")
    assert sgd.is_skipped("stage1_unit1_bnsc_gamma")

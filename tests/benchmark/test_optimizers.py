"""The reference optimizers, against values computed by hand."""

import numpy as np
import pytest

from rn50.benchmark import optimizers


def test_trust_ratio_by_hand():
    # ||w|| = 5, ||g|| = 10: 0.001 * 5 / (10 + 0.2 * 5) = 0.005 / 11
    ratio = optimizers.trust_ratio(np.array([3.0, 4.0]), np.array([6.0, 8.0]), eta=0.001, weight_decay=0.2)
    assert ratio == pytest.approx(0.005 / 11)


@pytest.mark.parametrize("weight, gradient", [([0.0, 0.0], [1.0, 2.0]), ([1.0, 2.0], [0.0, 0.0])])
def test_trust_ratio_is_1_where_a_norm_is_0(weight, gradient):
    assert optimizers.trust_ratio(np.array(weight), np.array(gradient), eta=0.001, weight_decay=0.2) == 1.0


def test_two_steps_of_lars_by_hand():
    weight, gradient = np.array([3.0, 4.0]), np.array([6.0, 8.0])
    # g' = g + 0.2 w = (6.6, 8.8); r = 0.005 / 11, so r * g' = (0.003, 0.004)
    weight, velocity = optimizers.update("fc1_weight", weight, gradient, np.zeros(2), 2.0, 0.9, 0.2, 0.001)
    assert velocity == pytest.approx([0.006, 0.008])
    assert weight == pytest.approx([2.994, 3.992])
    # Norm 4.99 now, gradient (0.6, 0.8) of norm 1: r = 0.00499 / (1 + 0.998), g' = (1.1988, 1.5984)
    ratio = 0.00499 / 1.998
    weight, velocity = optimizers.update(
        "fc1_weight", weight, np.array([0.6, 0.8]), velocity, 1.0, 0.9, 0.2, 0.001)
    assert velocity == pytest.approx([0.0054 + ratio * 1.1988, 0.0072 + ratio * 1.5984])
    assert weight == pytest.approx([2.994 - velocity[0], 3.992 - velocity[1]])


@pytest.mark.parametrize("name", ["bn0_gamma", "stage4_unit3_bn3_beta", "fc1_bias"])
def test_batch_norm_and_bias_have_no_trust_ratio(name):
    weight, velocity = optimizers.update(
        name, np.array([3.0]), np.array([6.0]), np.array([1.0]), 0.5, 0.9, 0.2, 0.001)
    assert velocity == pytest.approx([0.9 + 0.5 * 6.0])
    assert weight == pytest.approx([3.0 - 3.9])


def test_two_steps_of_sgd_by_hand():
    # g + wd w = (6.6, 8.8); v = 0.5 * that
    weight, velocity = optimizers.update(
        "fc1_weight", np.array([3.0, 4.0]), np.array([6.0, 8.0]), np.zeros(2), 0.5, 0.9, 0.2)
    assert velocity == pytest.approx([3.3, 4.4])
    assert weight == pytest.approx([-0.3, -0.4])
    # g + wd w = (0.54, 0.72), at another learning rate, which is not applied to what the buffer holds
    weight, velocity = optimizers.update("fc1_weight", weight, np.array([0.6, 0.8]), velocity, 0.1, 0.9, 0.2)
    assert velocity == pytest.approx([2.97 + 0.054, 3.96 + 0.072])
    assert weight == pytest.approx([-0.3 - 3.024, -0.4 - 4.032])


@pytest.mark.parametrize("name", ["bn0_gamma", "stage4_unit3_bn3_beta", "fc1_bias"])
def test_batch_norm_and_bias_have_no_weight_decay_under_sgd(name):
    weight, velocity = optimizers.update(
        name, np.array([3.0]), np.array([6.0]), np.array([1.0]), 0.5, 0.9, 0.2)
    assert velocity == pytest.approx([0.9 + 0.5 * 6.0])
    assert weight == pytest.approx([3.0 - 3.9])


def test_what_has_weight_decay():
    assert optimizers.has_weight_decay("stage1_unit1_conv1sc_weight")
    assert not optimizers.has_weight_decay("stage1_unit1_bnsc_gamma")

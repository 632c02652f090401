"""LARS and SGD of PaddlePaddle against the NumPy oracles, every kind of parameter, 20 steps of changing
learning rate."""

import numpy as np
import pytest

pytest.importorskip("paddle")

from implementations.paddle import paddle
from implementations.paddle.model import ResNet50, flatten_gradients, trainable
from implementations.paddle.optimizer import OPTIMIZERS
from rn50.benchmark import optimizers, schedule
from tests.conftest import with_changes

STEPS, SAMPLES = 20, 32
DECAY = {"warmup_epochs": 5, "decay_epochs": STEPS}  # an epoch a step


def made(name, h, gamma_zero=True):
    """(parameters, optimizer) of a network of an eighth of the width."""
    network = ResNet50(10, 0.125, gamma_zero, "float32", "NCHW")
    network.initialize(0)
    parameters = trainable(network)
    gradients = flatten_gradients(parameters, lambda values: paddle.zeros([values]))
    gradients.zero_()
    return parameters, OPTIMIZERS[name](parameters, gradients, h)


@paddle.no_grad()
def fill(parameter, values):
    """Write a gradient where it is, as backpropagation does."""
    parameter.tensor.grad.zero_()
    parameter.tensor.grad.add_(paddle.to_tensor(np.asarray(values, np.float32)))


def value(parameter):
    return parameter.tensor.numpy().astype(np.float64)


def oracle(h):
    """(name, weight, gradient, velocity, learning rate) -> (weight, velocity) of the optimizer that ``h``
    names."""
    eta = h.lars_eta if h.optimizer == "lars" else None
    return lambda *args: optimizers.update(*args, h.momentum, h.weight_decay, eta)


@pytest.mark.parametrize("name, weight_decay", [("lars", 5e-5), ("lars", 0.0), ("sgd", 0.01), ("sgd", 0.0)])
def test_agrees_with_the_oracle(tiny_config, name, weight_decay):
    values = {"optimizer": name, "weight_decay": weight_decay, **DECAY}
    config = with_changes(tiny_config, hyperparameters=values)
    h = config.hyperparameters
    random = np.random.RandomState(0)
    parameters, optimizer = made(name, h)  # a gamma of 0: a norm of 0
    assert {p.name.rsplit("_", 1)[1] for p in parameters} == {"weight", "gamma", "beta", "bias"}
    update = oracle(h)
    expected = {p.name: (value(p), np.zeros(p.tensor.shape)) for p in parameters}
    for step in range(1, STEPS + 1):
        learning_rate = schedule.learning_rate(step, config.recipe, 1)
        for parameter in parameters:
            gradient = random.standard_normal(parameter.tensor.shape) * 10.0 ** random.uniform(-3, 1)
            fill(parameter, gradient * SAMPLES)  # they arrive summed over the samples
            weight, velocity = expected[parameter.name]
            expected[parameter.name] = update(parameter.name, weight, gradient, velocity, learning_rate)
        optimizer.step(learning_rate, SAMPLES)
    for parameter in parameters:
        weight = expected[parameter.name][0]
        error = np.linalg.norm(value(parameter) - weight) / np.linalg.norm(weight)
        assert error < 1e-5, parameter.name


def test_zero_gradients_leave_a_weight_to_its_decay(tiny_config):
    parameters, optimizer = made("lars", tiny_config.hyperparameters, gamma_zero=False)
    weight = next(p for p in parameters if p.name == "fc1_weight")
    before = value(weight)
    optimizer.step(2.0, SAMPLES)
    decay = 2.0 * tiny_config.hyperparameters.weight_decay  # trust ratio 1, for the gradient's norm is 0
    np.testing.assert_allclose(value(weight), before * (1 - decay), rtol=1e-6)

"""LARS and SGD, by NumPy and on the real kernels, against the oracles in float64, every kind of parameter, 20
steps of changing learning rate."""

import numpy as np
import pytest

pytest.importorskip("implementations.mxnet")
mx = pytest.importorskip("implementations.mxnet").mx

from implementations.mxnet.model import Evaluation, Layout, ResNet50, trainable  # noqa: E402
from implementations.mxnet.optimizer import KERNELS, OnCpu, create  # noqa: E402
from rn50.benchmark import optimizers, schedule  # noqa: E402
from tests.conftest import with_changes  # noqa: E402

STEPS, SAMPLES = 20, 32
DECAY = {"warmup_epochs": 5, "decay_epochs": STEPS}  # an epoch a step
LAYOUT = Layout("NCHW", "float32", fused_relu=True)


def gradients_of(parameters, random):
    return [random.standard_normal(p.shape) * 10.0 ** random.uniform(-3, 1) for p in parameters]


def oracle(h):
    """(name, weight, gradient, velocity, learning rate) -> (weight, velocity) of the optimizer that ``h``
    names."""
    eta = h.lars_eta if h.optimizer == "lars" else None
    return lambda *args: optimizers.update(*args, h.momentum, h.weight_decay, eta)


@pytest.mark.parametrize("on_cpu", [True, False], ids=["numpy", "kernels"])
@pytest.mark.parametrize(
    "name, weight_decay", [("lars", 5e-5), ("sgd", 0.01)]
)  # a decay that 20 steps of SGD show
def test_agrees_with_the_oracle(tiny_config, name, weight_decay, on_cpu):
    values = {"optimizer": name, "weight_decay": weight_decay, **DECAY}
    config = with_changes(tiny_config, hyperparameters=values)
    h = config.hyperparameters
    random = np.random.RandomState(0)
    network = ResNet50(10, 0.125, True, LAYOUT)  # a gamma of 0: a norm of 0
    network.initialize()
    parameters = trainable(network)
    assert {p.name.rsplit("_", 1)[1] for p in parameters} == {"weight", "gamma", "beta", "bias"}
    optimizer, update = (OnCpu if on_cpu else KERNELS[name])(parameters, h), oracle(h)
    evaluation = Evaluation(network)
    evaluation.hybridize(static_alloc=True, static_shape=True)
    expected = {p.name: (p.data().asnumpy().astype(np.float64), np.zeros(p.shape)) for p in parameters}
    for step in range(1, STEPS + 1):
        learning_rate = schedule.learning_rate(step, config.recipe, 1)
        for parameter, gradient in zip(parameters, gradients_of(parameters, random), strict=False):
            parameter.grad()[:] = gradient * SAMPLES  # they arrive summed over the samples
            weight, velocity = expected[parameter.name]
            expected[parameter.name] = update(parameter.name, weight, gradient, velocity, learning_rate)
        if step % 5 == 0:  # an inference pass leaves the weights of convolutions in a layout of oneDNN's own
            evaluation(mx.nd.ones((4, 3, 32, 32)), mx.nd.zeros(4))
        optimizer.step(learning_rate, SAMPLES)
    for parameter in parameters:
        weight = expected[parameter.name][0]
        error = np.linalg.norm(parameter.data().asnumpy() - weight) / np.linalg.norm(weight)
        assert error < 1e-5, parameter.name
    velocities = optimizer.momentum()
    for name, (_, velocity) in expected.items():
        error = np.linalg.norm(velocities[name].asnumpy() + velocity) / np.linalg.norm(velocity)
        assert error < 1e-4, name


@pytest.mark.parametrize("optimizer", [create, KERNELS["lars"]], ids=["numpy", "kernels"])
def test_zero_gradients_leave_a_weight_to_its_decay(tiny_config, optimizer):
    network = ResNet50(10, 0.125, False, LAYOUT)
    network.initialize()
    parameters = trainable(network)
    weight = next(p for p in parameters if p.name == "fc1_weight")
    before = weight.data().asnumpy()
    optimizer(parameters, tiny_config.hyperparameters).step(2.0, SAMPLES)
    decay = 2.0 * tiny_config.hyperparameters.weight_decay  # trust ratio 1, for the gradient's norm is 0
    np.testing.assert_allclose(weight.data().asnumpy(), before * (1 - decay), rtol=1e-6)

"""LARS by kernels against the NumPy oracle: on a GPU compiled, elsewhere by Triton's interpreter."""

import os
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="needs Triton, which PyTorch's builds for CUDA bring")

from implementations.pytorch import model  # noqa: E402
from implementations.pytorch.fused_lars import FusedLars  # noqa: E402
from implementations.pytorch.half_weights import HalfWeights  # noqa: E402
from implementations.pytorch.kernels import lars  # noqa: E402
from implementations.pytorch.model import PRECISIONS, Named, flatten_parameters, views  # noqa: E402
from implementations.pytorch.optimizer import Lars, Sgd, in_order  # noqa: E402
from implementations.pytorch.step import Eager, optimizer_of  # noqa: E402
from rn50.benchmark import optimizers  # noqa: E402
from tests.conftest import HAS_GPU, ON_GPU  # noqa: E402

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
interpreted = pytest.mark.skipif(not INTERPRETED, reason="runs in the process of test_by_the_interpreter")
DEVICES = [pytest.param("cpu", marks=interpreted), pytest.param("cuda", marks=ON_GPU)]
SAMPLES = 32
SIZES = {
    "conv_weight": 3 * lars.CHUNK + 100,
    "gamma": 70,
    "fc1_weight": lars.CHUNK,
    "beta": 64,
    "zero_weight": 65,
    "bias": 1,
}
"""More than one chunk, exactly one, and less, with a gap behind it and without."""


@pytest.mark.skipif(HAS_GPU or INTERPRETED, reason="the tests of this file run here themselves")
def test_by_the_interpreter():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=500, env={**os.environ, "TRITON_INTERPRET": "1"}
    )
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
def test_agrees_with_the_oracle(tiny_config, precision, device):
    """Whatever the precision of the gradients of weights."""
    h, random = tiny_config.hyperparameters, np.random.RandomState(0)
    values = {name: random.standard_normal(size) * (name != "zero_weight") for name, size in SIZES.items()}
    parameters = in_order(
        [
            Named(name, torch.nn.Parameter(torch.tensor(each, dtype=torch.float32, device=device)))
            for name, each in values.items()
        ]
    )
    weights, gradients = flatten_parameters(parameters, lambda count: torch.zeros(count, device=device))
    optimizer = FusedLars(parameters, weights, gradients, h)
    of_weights = views(optimizer.gradients_of_weights(PRECISIONS[precision]), parameters)
    expected = {name: (each, np.zeros(each.shape)) for name, each in values.items()}
    for learning_rate in (0.5, 2.0, 0.1, 1.0):
        for (name, tensor), of_weight in zip(parameters, of_weights, strict=False):
            # The gradient of one parameter is 0 in one step; that of the weight 0 is not, once.
            gradient = random.standard_normal(tensor.shape) * (name != "fc1_weight" or learning_rate != 2.0)
            given = of_weight if optimizers.has_weight_decay(name) else tensor.grad
            given.copy_(torch.from_numpy(gradient * SAMPLES))
            gradient = given.cpu().double().numpy() / SAMPLES  # rounded
            weight, velocity = expected[name]
            expected[name] = optimizers.lars_update(
                name, weight, gradient, velocity, learning_rate, h.lars_eta, h.momentum, h.weight_decay
            )
        optimizer.step(learning_rate, SAMPLES)
    used = torch.zeros_like(weights, dtype=torch.bool)
    for name, tensor in parameters:
        begin = (tensor.data_ptr() - weights.data_ptr()) // 4
        used[begin : begin + tensor.numel()] = True
        found = tensor.detach().cpu().double().numpy()
        assert np.linalg.norm(found - expected[name][0]) < 1e-6 * np.linalg.norm(expected[name][0]), name
    assert (~used).any() and not weights[~used].any()  # what lies between the parameters


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["float16"])
@pytest.mark.usefixtures("comparable_convolutions")
def test_20_steps_with_weights_in_half_precision_are_those_of_separate_operations(
    tiny_config, precision, device, monkeypatch
):
    monkeypatch.setattr(model, "STAGES", ((1, 64),))  # one block, because the interpreter is slow
    h = tiny_config.hyperparameters

    def run(how):
        network = model.ResNet50(10, 0.125, True, precision).to(device)
        network.initialize(0)
        parameters = in_order(model.trainable(network))
        weights, gradients = flatten_parameters(parameters, lambda count: torch.zeros(count, device=device))
        step, optimizer = how(network, parameters, weights, gradients)
        before, losses, random = weights.clone(), [], torch.Generator().manual_seed(1)
        for number in range(20):
            images = torch.randn(8, 3, 16, 16, generator=random).to(device, memory_format=torch.channels_last)
            losses.append(step(images, torch.randint(10, (8,), generator=random).to(device)))
            optimizer.step(0.5 + number / 10, 8)
        return torch.stack(losses), weights - before

    def separate(network, parameters, weights, gradients):
        return Eager(network, gradients, 0.1), Lars(parameters, weights, gradients, h)

    def in_half(network, parameters, weights, gradients):
        optimizer, half = FusedLars(parameters, weights, gradients, h), PRECISIONS[precision]
        of_weights = optimizer.gradients_of_weights(half)
        return HalfWeights(network, parameters, weights, gradients, 0.1, half, of_weights), optimizer

    (expected, changed), (found, change) = run(separate), run(in_half)
    # The norms are added in another order, so a weight may be rounded to half precision another way.
    precise = torch.finfo(PRECISIONS[precision]).eps
    torch.testing.assert_close(found, expected, rtol=precise, atol=precise)
    assert (change - changed).norm() < 0.02 * changed.norm() and changed.norm() > 0


def test_only_lars_has_kernels():
    assert optimizer_of("lars", fused=True) is FusedLars
    assert optimizer_of("sgd", fused=True) is Sgd and optimizer_of("lars", fused=False) is not FusedLars

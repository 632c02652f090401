"""LARS by kernels against the NumPy oracle: on a GPU compiled, elsewhere by Triton's interpreter."""

import os
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="needs Triton, which PyTorch's builds for CUDA bring")

from implementations.pytorch.fused_lars import FusedLars  # noqa: E402
from implementations.pytorch.kernels import lars  # noqa: E402
from implementations.pytorch.model import Named, flatten_parameters  # noqa: E402
from implementations.pytorch.optimizer import Sgd, in_order, optimizer_of  # noqa: E402
from rn50.benchmark import optimizers  # noqa: E402
from tests.conftest import HAS_GPU, ON_GPU  # noqa: E402

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
interpreted = pytest.mark.skipif(not INTERPRETED, reason="runs in the process of test_by_the_interpreter")
DEVICES = [pytest.param("cpu", marks=interpreted), pytest.param("cuda", marks=ON_GPU)]
SAMPLES = 32
SIZES = {"conv_weight": 3 * lars.CHUNK + 100, "gamma": 70, "fc1_weight": lars.CHUNK, "beta": 64, "zero_weight": 65, "bias": 1}
"""More than one chunk, exactly one, and less, with a gap behind it and without."""


@pytest.mark.skipif(HAS_GPU or INTERPRETED, reason="the tests of this file run here themselves")
def test_by_the_interpreter():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env={**os.environ, "TRITON_INTERPRET": "1"})
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("device", DEVICES)
def test_agrees_with_the_oracle(tiny_config, device):
    h, random = tiny_config.hyperparameters, np.random.RandomState(0)
    values = {name: random.standard_normal(size) * (name != "zero_weight") for name, size in SIZES.items()}
    parameters = in_order([Named(name, torch.nn.Parameter(torch.tensor(each, dtype=torch.float32, device=device)))
                           for name, each in values.items()])
    weights, gradients = flatten_parameters(parameters, lambda count: torch.zeros(count, device=device))
    optimizer = FusedLars(parameters, weights, gradients, h)
    expected = {name: (each, np.zeros(each.shape)) for name, each in values.items()}
    for learning_rate in (0.5, 2.0, 0.1, 1.0):
        for name, tensor in parameters:
            # The gradient of one parameter is 0 in one step; that of the weight 0 is not, once.
            gradient = random.standard_normal(tensor.shape) * (name != "fc1_weight" or learning_rate != 2.0)
            tensor.grad.copy_(torch.from_numpy(gradient * SAMPLES))
            weight, velocity = expected[name]
            expected[name] = optimizers.lars_update(
                name, weight, gradient, velocity, learning_rate, h.lars_eta, h.momentum, h.weight_decay)
        optimizer.step(learning_rate, SAMPLES)
    used = torch.zeros_like(weights, dtype=torch.bool)
    for name, tensor in parameters:
        begin = (tensor.data_ptr() - weights.data_ptr()) // 4
        used[begin : begin + tensor.numel()] = True
        found = tensor.detach().cpu().double().numpy()
        assert np.linalg.norm(found - expected[name][0]) < 1e-6 * np.linalg.norm(expected[name][0]), name
    assert (~used).any() and not weights[~used].any()  # what lies between the parameters


def test_only_lars_has_kernels():
    assert optimizer_of("lars", fused=True) is FusedLars
    assert optimizer_of("sgd", fused=True) is Sgd and optimizer_of("lars", fused=False) is not FusedLars

"""Fake quantisation of every framework, against NumPy's; gradients pass through it."""

import importlib

import numpy as np
import pytest

from rn50.benchmark import quantization
from tests.contract.frameworks import FRAMEWORKS, installed

SHAPES = [(6, 5, 3, 3), (7, 9)]


def run(name, function, array):
    """The value of a function of a framework's model, and the gradient of its sum weighted by 1, 2, 3, ..."""
    model = importlib.import_module(f"implementations.{name}.model")
    factors = np.arange(1, array.size + 1, dtype=np.float32).reshape(array.shape)
    if name == "mxnet":
        mx = importlib.import_module("mxnet")
        tensor = mx.nd.array(array)
        tensor.attach_grad()
        with mx.autograd.record():
            value = getattr(model, function)(mx.nd, tensor)
            (value * mx.nd.array(factors)).sum().backward()
        return value.asnumpy(), tensor.grad.asnumpy(), factors
    if name == "pytorch":
        torch = importlib.import_module("torch")
        tensor, factor = torch.tensor(array, requires_grad=True), torch.from_numpy(factors)
    else:
        paddle = importlib.import_module("implementations.paddle").paddle
        tensor, factor = paddle.to_tensor(array, stop_gradient=False), paddle.to_tensor(factors)
    value = getattr(model, function)(tensor)
    (value * factor).sum().backward()
    return value.detach().numpy(), tensor.grad.numpy(), factors


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("function", ["rounded_weight", "rounded_input"])
@pytest.mark.parametrize("name", sorted(FRAMEWORKS))
def test_it_rounds_as_numpy_does_and_passes_gradients_on(name, function, shape):
    installed(name)
    array = (np.random.default_rng(3).standard_normal(shape) * 3).astype(np.float32)
    array.flat[:4] = 0
    value, gradient, factors = run(name, function, array)
    np.testing.assert_allclose(value, getattr(quantization, function)(array), rtol=2e-6, atol=1e-6)
    np.testing.assert_array_equal(gradient, factors)
    assert (value.flat[:4] == 0).all() and not np.allclose(value, array, rtol=1e-3)

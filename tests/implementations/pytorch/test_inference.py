"""Saved weights in PyTorch for inference: cast once, and on a GPU one CUDA graph for each batch size."""

import numpy as np
import pytest

from rn50.errors import UserError
from tests.conftest import HAS_GPU, ON_GPU
from tests.deploy.networks import random_weights

torch = pytest.importorskip("torch")
inference = pytest.importorskip("implementations.pytorch.inference")
model = pytest.importorskip("implementations.pytorch.model")

PRECISIONS = "float32", "float16", "bfloat16"
SIZES = 3, 1, 3, 2, 1
CPU = torch.device("cpu")


def images_of(size):
    return np.random.default_rng(size).standard_normal((size, 3, 32, 32)).astype(np.float32)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_weights_that_are_cast_once_give_what_autocast_gives(precision):
    weights = random_weights()
    network = model.ResNet50(weights.classes, weights.width, False, precision).eval()
    for name, tensor in model.tensors(network).items():
        tensor.copy_(torch.from_numpy(np.array(weights.arrays[name])))
    cast = inference._network(weights, precision, CPU)
    types = {name: tensor.dtype for name, tensor in model.tensors(cast).items()}
    assert types["conv0_weight"] == types["fc1_weight"] == getattr(torch, precision)
    assert {dtype for name, dtype in types.items() if not name.endswith("_weight")} == {torch.float32}
    given = torch.from_numpy(images_of(2)).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        np.testing.assert_array_equal(cast(given).numpy(), network(given).numpy())


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
@pytest.mark.parametrize("way", ["cuda-eager", "cuda-compiled", "cuda-graph"])
def test_without_a_gpu_it_is_one_line(way):
    with pytest.raises(UserError, match=f"^--engines pytorch-{way}: PyTorch sees no GPU; rn50 doctor says"):
        inference.create(random_weights(), way, "float16", 1)


def test_every_batch_size_has_a_graph_of_its_own_and_its_first_images_are_no_constants(monkeypatch):
    """A stand-in for the capture: a replay computes from the tensor of the capture into its result."""
    captures = []

    def captured(run, device):
        captures.append(device)
        result = run()
        return lambda: result.copy_(run()), result.fill_(0)

    monkeypatch.setattr(inference, "captured", captured)
    network = inference._network(random_weights(), "float32", CPU)
    run, plain = inference._on_arrays(inference.Graphs(network), CPU), inference._on_arrays(network, CPU)
    for number, size in enumerate(SIZES):
        given = images_of(size) + number
        np.testing.assert_array_equal(run(given), plain(given))
    assert len(captures) == len(set(SIZES))


@pytest.mark.parametrize("precision", [pytest.param(name, marks=ON_GPU) for name in PRECISIONS])
@pytest.mark.usefixtures("comparable_convolutions")
def test_on_a_gpu_a_graph_gives_what_eager_gives_and_compiled_what_the_cpu_gives(precision):
    weights = random_weights()
    eager, *others = (
        inference.create(weights, f"cuda-{way}", precision, 1) for way in ("eager", "graph", "compiled"))
    on_cpu = inference.create(weights, "eager", "float32", 1)
    near_float32 = {"float32": 1e-4, "float16": 0.02, "bfloat16": 0.1}[precision]
    for number, size in enumerate((64, 1, 64, 2, 1)):
        given = images_of(size) + number
        first, expected = eager(given), on_cpu(given)
        largest = np.abs(expected).max()
        np.testing.assert_allclose(first, expected, rtol=0, atol=largest * near_float32)
        for other in others:
            # Compiled code rounds an intermediate result less often than separate kernels do.
            np.testing.assert_allclose(other(given), expected, rtol=0, atol=largest * near_float32)
        np.testing.assert_allclose(others[0](given), first, rtol=0, atol=largest * near_float32 / 10)
        if precision == "float32":
            for answer in (first, *(other(given) for other in others)):
                np.testing.assert_array_equal(answer.argmax(1), expected.argmax(1))

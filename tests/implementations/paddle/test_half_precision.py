"""Half precision, for which PaddlePaddle has no kernels on a CPU: its operations are computed in float32 here
and rounded.

So the casts of our network are those that run on a GPU, and its numbers are compared with PyTorch's, which
has such kernels.
"""

import collections

import numpy as np
import pytest

pytest.importorskip("paddle")
torch = pytest.importorskip("torch")

from implementations.paddle import model as ours  # noqa: E402
from implementations.paddle import paddle  # noqa: E402
from implementations.pytorch import model as pytorchs  # noqa: E402

HALVES = ("float16", "bfloat16")
CLASSES, WIDTH = 10, 0.125


@pytest.fixture
def seen(monkeypatch):
    """Operation -> the types of the tensors that it was called with; from now on half precision is rounded
    float32."""
    types = collections.defaultdict(set)

    def rounded(name, operation):
        def run(*arguments, **options):
            tensors = [each for each in arguments if isinstance(each, paddle.Tensor)]
            types[name].add(tuple(str(each.dtype).split(".")[-1] for each in tensors))
            result = operation(
                *(
                    ours.cast(each, "float32") if isinstance(each, paddle.Tensor) else each
                    for each in arguments),
                **options)
            return result.astype(tensors[0].dtype)

        return run

    functional = paddle.nn.functional
    for owner, name in [
        *(
            (functional, name)
            for name in ("conv2d", "batch_norm", "relu", "max_pool2d", "adaptive_avg_pool2d")),
        (paddle, "matmul"), (paddle.Tensor, "__add__"),
    ]:
        monkeypatch.setattr(owner, name, rounded(name, getattr(owner, name)))
    return types


def gradients(package, precision, batch, begin, scale=1.0):
    """Gradients by name of ``scale`` times the losses, of our network in a framework, with the values
    ``begin``."""
    array, options = (paddle.to_tensor, ("NCHW",)) if package is ours else (torch.from_numpy, ())
    network = package.ResNet50(CLASSES, WIDTH, True, precision, *options)
    network.initialize(0)
    network.train()
    for name, tensor in package.trainable(network):
        with torch.no_grad():
            (tensor.set_value if package is ours else tensor.copy_)(array(begin[name]))
    losses = package.training_loss(network, *map(array, batch), 0.1)
    (losses.sum() * scale).backward()
    return {name: tensor.grad.numpy() / scale for name, tensor in package.trainable(network)}


def apart(some, others):
    """The median over the parameters of the relative distance of gradients."""
    norms = {name: np.linalg.norm(value) for name, value in others.items()}
    return np.median(
        [np.linalg.norm(some[name] - others[name]) / norm for name, norm in norms.items() if norm])


@pytest.fixture
def batch():
    random = np.random.RandomState(
        1
    )  # of batch 0 one activation is so near to 0 that its sign depends on rounding
    return random.standard_normal((32, 3, 32, 32)).astype(np.float32), random.randint(CLASSES, size=32)


@pytest.fixture
def begin():
    """Initial values, with another gamma where it starts at 0 and leaves no gradient to the convolutions
    before it."""
    network = ours.ResNet50(CLASSES, WIDTH, True, "float32", "NCHW")
    network.initialize(0)
    return {
        name: np.full(tensor.shape, 0.2, np.float32) if name.endswith("bn3_gamma") else tensor.numpy()
        for name, tensor in ours.trainable(network)}


@pytest.mark.parametrize("half", HALVES)
def test_it_loses_no_more_than_in_pytorch(seen, batch, begin, half):
    exact = gradients(pytorchs, "float32", batch, begin)
    ours_off, pytorchs_off = (
        apart(gradients(package, half, batch, begin), exact) for package in (ours, pytorchs))
    assert apart(gradients(ours, "float32", batch, begin), exact) < 1e-4 < ours_off < 1.2 * pytorchs_off


@pytest.mark.parametrize("half", HALVES)
def test_only_products_and_activations_are_in_half_precision(seen, batch, begin, half):
    gradients(ours, half, batch, begin)
    assert seen.pop("batch_norm") == {(half, *["float32"] * 4)}
    assert seen.pop("__add__") == {
        (half, half),
        ("float32", "float32"),
    }  # shortcuts, and the bias of the classifier
    assert seen.pop("conv2d") == seen.pop("matmul") == {(half, half)}
    assert seen == dict.fromkeys(("relu", "max_pool2d", "adaptive_avg_pool2d"), {(half,)})


def test_sums_over_the_batch_need_no_loss_scaling(seen, batch, begin):
    exact = gradients(pytorchs, "float32", batch, begin)
    plain, scaled, small = (
        apart(gradients(ours, "float16", batch, begin, scale), exact) for scale in (1, 128, 1 / 4096))
    assert plain < 1.02 * scaled and small > 1.5 * plain

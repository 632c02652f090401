"""The network is ResNet-50 v1.5, its initial weights and its loss are those of the reference, and a step
learns."""

import itertools

import numpy as np
import pytest
from scipy.ndimage import correlate

torch = pytest.importorskip("torch")

from implementations.pytorch.model import (  # noqa: E402
    Bottleneck,
    ConvNorm,
    LowPass,
    ResNet50,
    tensors,
    trainable,
    training_loss,
)
from rn50.benchmark import rules  # noqa: E402
from rn50.benchmark.network import stem  # noqa: E402
from rn50.run.loop import Rank  # noqa: E402
from tests.conftest import ON_GPU, with_changes  # noqa: E402

DEVICES = ["cpu", pytest.param("gpu", marks=ON_GPU)]


@pytest.fixture(scope="module")
def network():
    network = ResNet50(1000, 1.0, False, "float32")
    network.initialize(0)
    return network


def test_size(network):
    parameters = trainable(network)
    assert len(parameters) == len(list(network.parameters())) == 161
    assert sum(p.tensor.numel() for p in parameters) == rules.PARAMETERS == 25557032


def test_stride_is_in_the_3x3_convolution(network):
    blocks = [layer for layer in network.features if isinstance(layer, Bottleneck)]
    assert len(blocks) == 16
    strided = [b for b in blocks if any(c._stride == 2 for c in b.body)]
    assert len(strided) == 3
    for block in strided:
        assert [(tuple(c.weight.shape[2:]), c._stride) for c in block.body] == [
            ((1, 1), 1), ((3, 3), 2), ((1, 1), 1)]
        assert block.shortcut._stride == 2


def test_initial_weights(network):
    for name, tensor in trainable(network):
        weight = tensor.detach().numpy()
        if name == "fc1_weight":
            assert weight.std() == pytest.approx(0.01, rel=0.02)
        elif name.endswith("weight"):  # He normal, fan in
            assert weight.std() == pytest.approx(np.sqrt(2 / np.prod(weight.shape[1:])), rel=0.1)
            assert abs(weight.mean()) < 0.1 * weight.std()
        else:
            assert (weight == (1 if name.endswith("gamma") else 0)).all()


def test_gamma_zero_makes_every_block_its_shortcut():
    network = ResNet50(10, 0.125, True, "float32")
    network.initialize(0)
    zero = [name for name, tensor in trainable(network) if name.endswith("gamma") and not tensor.any()]
    assert len(zero) == 16 and all(name.endswith("bn3_gamma") for name in zero)


def test_label_smoothing_by_hand():
    logits = torch.log(torch.tensor([[0.7, 0.2, 0.1]]))
    # Target 0.7 * (1, 0, 0) + 0.1 each
    expected = -(0.8 * np.log(0.7) + 0.1 * np.log(0.2) + 0.1 * np.log(0.1))
    assert float(training_loss(torch.nn.Identity(), logits, torch.tensor([0]), 0.3)) == pytest.approx(
        expected, rel=1e-5)


def test_binary_cross_entropy_by_hand():
    logits, target = np.array([[1.5, -2.0, 0.25]]), 0.7 * np.array([1, 0, 0]) + 0.1
    chances = 1 / (1 + np.exp(-logits))
    expected = -(target * np.log(chances) + (1 - target) * np.log(1 - chances)).sum()
    loss = training_loss(torch.nn.Identity(), torch.from_numpy(logits), torch.tensor([0]), 0.3, binary=True)
    assert float(loss) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_blur_pool_comes_before_every_second_pixel_is_left_out(training):
    """Of six convolutions with stride 2 that are not the stem, and of the pooling; the filter by SciPy."""
    network = ResNet50(10, 1.0, False, "float32", blur=True).train(training)
    network.initialize(0)
    assert sum(isinstance(module, LowPass) for module in network.modules()) == 7
    assert tensors(network).keys() == tensors(ResNet50(10, 1.0, False, "float32")).keys()  # no filter
    images = np.random.RandomState(0).standard_normal((1, 20, 9, 12))
    row = np.array([1, 2, 1]) / 4
    for stride in (1, 2):
        found = LowPass(20, stride).double()(torch.from_numpy(images))
        expected = [correlate(image, np.outer(row, row), mode="constant") for image in images[0]]
        np.testing.assert_allclose(found[0], np.stack(expected)[:, ::stride, ::stride], rtol=1e-6, atol=1e-6)
    assert network(torch.zeros(2, 3, 64, 64)).shape == (2, 10)


def test_bfloat16_is_the_same_network():
    images = torch.randn(8, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    logits = []
    for precision in ("float32", "bfloat16"):
        network = ResNet50(10, 0.25, False, precision).eval()
        network.initialize(0)
        with torch.no_grad():
            logits.append(network(images))
        assert logits[-1].dtype == torch.float32
    difference = (logits[0] - logits[1]).norm() / logits[0].norm()
    assert 0 < difference < 0.03  # bfloat16 has 8 bits


def with_a_fourth_channel(images):
    return torch.nn.functional.pad(images, (0, 0, 0, 0, 0, 1)).contiguous(memory_format=torch.channels_last)


def test_a_fourth_channel_of_zeros_changes_no_bit_of_the_first_convolution():
    # Of whole numbers every sum is exact, whatever the order in which a processor's kernel adds.
    random = torch.Generator().manual_seed(0)
    layer = ConvNorm(stem())
    layer.normalise = lambda x, *_, **__: x
    layer.weight.data.copy_(torch.randint(-8, 9, layer.weight.shape, generator=random))
    images = torch.randint(-8, 9, (4, 3, 64, 64), generator=random).float()

    def found(given):
        made = layer(given)
        return made, torch.autograd.grad(made, layer.weight, made.detach().sign())[0]

    (expected, expected_gradient), (made, gradient) = found(images), found(with_a_fourth_channel(images))
    assert torch.equal(made, expected) and made.any()
    assert torch.equal(gradient, expected_gradient) and gradient.shape == layer.weight.shape == (64, 3, 7, 7)


@pytest.mark.parametrize("rounds", [False, True])
def test_the_network_is_the_same_with_a_fourth_channel(rounds):
    random, found = torch.Generator().manual_seed(1), []
    images = torch.randn(8, 3, 64, 64, generator=random).contiguous(memory_format=torch.channels_last)
    for given in (images, with_a_fourth_channel(images)):
        network = ResNet50(10, 0.25, False, "float32", rounds=rounds)
        network.initialize(0)
        losses = training_loss(network, given, torch.arange(8), 0.1)
        losses.sum().backward()
        found.append((losses.detach(), torch.cat([each.grad.flatten() for each in network.parameters()])))
    (expected, expected_gradients), (losses, gradients) = found
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    assert (gradients - expected_gradients).norm() < 1e-3 * expected_gradients.norm()


@pytest.mark.parametrize("device", DEVICES)
def test_one_step_at_full_size(tiny_config, device):
    config = with_changes(
        tiny_config, hyperparameters={"batch_size": 4, "bn_gamma_zero": False},
        data={"image_size": 224, "classes": 1000, "width": 1.0},
        run={"framework": "pytorch", "device": device})
    rank = Rank(config)
    assert len(rank.warm_up(1)) == 161
    batch = rank.engine.synthetic(rank.config.data.image_size)
    assert batch.images.is_contiguous(memory_format=torch.channels_last)
    parameters = trainable(rank.engine.network)
    before = [p.tensor.detach().clone() for p in parameters]
    loss = rank.engine.step(batch, 0.1)
    assert loss.shape == (4,)
    # 1000 classes, a classifier that knows nothing: the cross entropy begins near ln 1000
    assert float(loss.mean()) == pytest.approx(np.log(1000), rel=0.1)
    assert all((old != p.tensor).any() for old, p in zip(before, parameters, strict=False))
    rank.close()


ON_GPUS = [pytest.param("gpu", precision, marks=ON_GPU) for precision in ("float32", "bfloat16", "float16")]


@pytest.mark.parametrize("device, precision", [("cpu", "float32"), ("cpu", "bfloat16"), *ON_GPUS])
def test_one_batch_is_learned_by_heart(tiny_config, device, precision):
    rank = Rank(
        with_changes(tiny_config, run={"framework": "pytorch", "device": device, "precision": precision}))
    rank.warm_up(1)
    losses = [
        float(rank.engine.step(batch, 2.0).mean())
        for batch in itertools.repeat(rank.engine.synthetic(rank.config.data.image_size), 40)]
    floor = -(
        0.91 * np.log(0.91) + 0.09 * np.log(0.01)
    )  # smoothing 0.1 over 10 classes: the loss of a perfect prediction
    assert losses[0] == pytest.approx(np.log(10), rel=0.2)
    assert floor * 0.99 <= losses[-1] < (losses[0] + floor) / 2
    rank.close()

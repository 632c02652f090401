"""The fused kernels against PyTorch's operations in float64: on a GPU compiled, elsewhere by Triton's
interpreter."""

import types

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton", reason="needs Triton, which PyTorch's builds for CUDA bring")

from torch.nn import functional  # noqa: E402

from implementations.pytorch import fused_norm, model  # noqa: E402
from implementations.pytorch.kernels import one_pass, tile  # noqa: E402
from rn50.benchmark import network as geometry  # noqa: E402
from tests.conftest import ON_GPU  # noqa: E402
from tests.support.interpreter import DEVICES, assert_passes, interpreted, starts_it  # noqa: E402

TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
SHAPES = [(3, 5, 4, 6), (2, 130, 7, 7), (4, 64, 12, 9), (2, 8, 1, 1)]
"""Fewer rows or columns than a tile, and more, not divided by it."""
RAGGED = SHAPES[1:2]
"""Several tiles in rows and in columns, and the last of either not full."""
MOMENTUM, EPSILON = 0.1, 1e-5


@starts_it
def test_by_the_interpreter():
    assert_passes(__file__)


@pytest.fixture()
def few_programs(monkeypatch):
    """Small matrices, and yet several tiles a program, and a last part of fewer."""
    monkeypatch.setattr(tile, "multiprocessors", lambda device: 1)


def test_a_pass_has_as_many_programs_as_the_gpu_runs_at_once(monkeypatch):
    asked = []

    def properties(device):
        asked.append(device)
        return types.SimpleNamespace(multi_processor_count={0: 82, 1: 148}[device.index])

    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)

    def parts(index, columns):
        x = torch.empty(64, columns, 56, 56, device="meta")
        given = types.SimpleNamespace(shape=x.shape, numel=x.numel, device=torch.device("cuda", index))
        return tile.divide(given).parts(4)

    tile.multiprocessors.cache_clear()
    try:
        # An RTX 3090 and a B200; of more than 64 columns each block has its share.
        assert [parts(*each) for each in ((0, 64), (0, 256), (1, 64))] == [82 * 4, 82, 148 * 4]
        assert asked == [torch.device("cuda", 0), torch.device("cuda", 1)]  # each once
    finally:
        tile.multiprocessors.cache_clear()


def tensors(shape, dtype, device, mean=0.5, deviation=2.0):
    """x, shortcut, gamma, beta, running mean and variance, and the gradient that arrives; images
    channels-last."""
    random = torch.Generator().manual_seed(0)
    x, shortcut, gradient = (torch.randn(shape, generator=random) for _ in range(3))
    x, columns = x * deviation + mean, shape[1]
    gamma, beta, running_mean = (torch.randn(columns, generator=random) for _ in range(3))
    images = [
        each.to(device, dtype).contiguous(memory_format=torch.channels_last)
        for each in (x, shortcut, gradient)]
    vectors = [each.to(device) for each in (gamma, beta, running_mean, torch.rand(columns, generator=random))]
    return [*images[:2], *vectors, images[2]]


def reference(x, shortcut, gamma, beta, running_mean, running_var, momentum, eps, relu, twice=False):
    y = functional.batch_norm(x, running_mean, running_var, gamma, beta, True, momentum, eps)
    y = y if shortcut is None else y + shortcut
    y = functional.relu(y) if relu else y
    return (y, y) if twice else y


def computed(function, given, add, relu, readers=1):
    """Output, running statistics, and gradients of all that has one, in float64 on the CPU."""
    x, shortcut, gamma, beta, running_mean, running_var, gradient = (each.clone() for each in given)
    wanted = [x, gamma, beta, *([shortcut] if add else [])]
    for each in wanted:
        each.requires_grad_(True)
    y = function(
        x, shortcut if add else None, gamma, beta, running_mean, running_var, MOMENTUM, EPSILON, relu,
        readers == 2)
    outputs, gradients = (y, [gradient, 0.5 * gradient.roll(1, 0)]) if readers == 2 else ([y], [gradient])
    assert all(
        (each.shape, each.dtype, each.data_ptr()) == (gradient.shape, x.dtype, outputs[0].data_ptr())
        for each in outputs)
    found = {"output": outputs[0].detach(), "running mean": running_mean, "running variance": running_var}
    found.update(
        zip(("x", "gamma", "beta", "shortcut"), torch.autograd.grad(outputs, wanted, gradients), strict=False)
    )
    return {name: each.cpu().double() for name, each in found.items()}


def assert_agrees(given, add, relu, tolerance, readers=1):
    expected = computed(reference, [each.cpu().double() for each in given], add, relu, readers)
    found = computed(fused_norm.normalise, given, add, relu, readers)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        error = (found[name] - value).norm() / value.norm().clamp(min=1e-6)
        assert error < tolerance, f"{name}: off by {error:.1e}"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize(
    "add, relu, readers", [(False, False, 1), (False, True, 1), (True, True, 1), (True, True, 2)])
def test_agrees_with_float64(device, dtype, add, relu, readers, few_programs):
    for shape in (
        SHAPES[:3] if dtype == torch.float32 else RAGGED
    ):  # dtypes differ in what is read and written
        assert_agrees(tensors(shape, dtype, device), add, relu, TOLERANCE[dtype], readers)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reader", [0, 1])
def test_the_gradient_of_either_reader_may_be_missing(device, reader):
    *given, gradient = tensors(SHAPES[0], torch.float32, device)
    given[0].requires_grad_(True)

    def found(y):
        return torch.autograd.grad(y, given[0], gradient)[0]

    both = fused_norm.normalise(*given, MOMENTUM, EPSILON, True, twice=True)
    torch.testing.assert_close(
        found(both[reader]), found(reference(*given, MOMENTUM, EPSILON, True)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_two_values_a_channel_are_enough(device):
    given = tensors(SHAPES[3], torch.float32, device)
    expected, found = (computed(each, given, False, True) for each in (reference, fused_norm.normalise))
    for name in ("output", "running mean", "running variance"):
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_a_mean_far_from_zero_does_not_spoil_the_variance(device, few_programs):
    # The difference of two sums of squares would lose all of its digits here.
    assert_agrees(
        tensors((4, 64, 12, 9), torch.float32, device, mean=3000.0, deviation=1.0), False, False, 1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_the_variance_bears_a_first_row_far_from_the_others(device, few_programs):
    # What is summed are differences from the first row of a part.
    given = tensors((2, 5, 40, 30), torch.float32, device, mean=1.0, deviation=1.0)
    given[0][0, :, 0, 0] = -1000.0
    assert_agrees(given, False, False, 1e-3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("add", [False, True])
def test_not_a_number_is_not_hidden_by_relu(device, add):
    given = tensors((2, 5, 4, 6), torch.float32, device)
    given[0][0, 3, 1, 1] = float("inf")  # an overflow in float16, say
    output = computed(fused_norm.normalise, given, add, True)["output"]
    assert output[:, 3].isnan().all() and output[:, :3].isfinite().all()


@pytest.mark.parametrize("device", DEVICES)
def test_other_layouts_are_taken_too(device):
    given = tensors((3, 5, 4, 6), torch.float32, device)
    assert_agrees([each.contiguous() for each in given], True, True, 2e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "precision, of_losses, of_gradients", [("float32", 1e-4, 0.1), ("bfloat16", 0.1, None)])
@pytest.mark.usefixtures("comparable_convolutions")
def test_a_network_has_the_losses_and_gradients_of_float64(
    device, precision, of_losses, of_gradients, monkeypatch
):
    if device == "cpu":  # two units are enough for the interpreter, which is slow
        monkeypatch.setattr(geometry, "STAGES", ((2, 64),))
    side = 16 if device == "cpu" else 64
    # So many layers make much of roundings: PyTorch's own gradients are off by 0.02 here in float32, in
    # bfloat16 by all of it.
    random = torch.Generator().manual_seed(0)
    images = torch.randn(4, 3, side, side, generator=random).contiguous(memory_format=torch.channels_last)
    labels, sides = torch.arange(4), []
    for given, to in ((fused_norm.normalise, device), (model.separate_normalise, "cpu")):
        network = model.ResNet50(10, 0.125, False, precision, given)
        network.initialize(0)
        network.to(to)
        exact = given is model.separate_normalise
        layers = network.double().features if exact else network  # without the casts of a network
        losses = model.training_loss(
            layers, images.to(to, torch.float64 if exact else torch.float32), labels.to(to), 0.1)
        losses.sum().backward()
        gradients = torch.cat([parameter.grad.flatten() for parameter in network.parameters()])
        sides.append((losses.detach().cpu().double(), gradients.cpu().double()))
    (losses, gradients), (expected, expected_gradients) = sides
    assert (losses - expected).norm() < of_losses * expected.norm()
    assert gradients.isfinite().all()
    assert (
        of_gradients is None
        or (gradients - expected_gradients).norm() < of_gradients * expected_gradients.norm())


@pytest.mark.parametrize(
    "device, dtype",  # Triton's interpreter multiplies no matrices in bfloat16
    [pytest.param("cpu", torch.float16, marks=interpreted),
     *(pytest.param("cuda", dtype, marks=ON_GPU) for dtype in (torch.float16, torch.bfloat16))],
)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("layer", sorted(one_pass.SHAPES), ids=str)
def test_both_gradients_of_a_convolution_agree_with_float64(device, dtype, relu, layer, few_programs):
    inputs, outputs = layer
    size = (2, 13, 8)  # 208 rows: several tiles, and the last one not full
    random = torch.Generator().manual_seed(inputs + outputs)

    def image(channels):
        made = torch.randn(size[0], channels, *size[1:], generator=random).to(device, dtype)
        return made.contiguous(memory_format=torch.channels_last)

    gradient, y, x = image(outputs), image(outputs), image(inputs)
    weight = (torch.randn(outputs, inputs, 1, 1, generator=random) * inputs**-0.5).to(device, dtype)
    mean, gamma, beta, for_beta, for_gamma = (
        torch.randn(outputs, generator=random).to(device) for _ in range(5))
    scale = 0.5 + torch.rand(outputs, generator=random).to(device)
    for_beta, for_gamma = for_beta * 10, for_gamma * 10
    columns = [each[None, :, None, None].double() for each in (mean, scale, gamma, beta, for_beta, for_gamma)]
    mean_of, scale_of, gamma_of, beta_of, for_beta_of, for_gamma_of = columns
    value = (y.double() - mean_of) * scale_of * gamma_of + beta_of
    if relu:  # rounding does not decide the mask
        y = torch.where(value.abs() < 0.02, y + 0.25, y)
    standardised = (y.double() - mean_of) * scale_of
    g = (
        torch.where(standardised * gamma_of + beta_of > 0, gradient.double(), 0) if relu
        else gradient.double())
    dy = gamma_of * scale_of * (g - (for_beta_of + standardised * for_gamma_of) / 208)
    exact = torch.ops.aten.convolution_backward(
        *(dy.cpu(), x.double().cpu(), weight.double().cpu(), None),
        *([1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False]))
    assert one_pass.applies_to(x, weight, 1) or device == "cuda"
    given = mean, scale, gamma, beta, for_beta, for_gamma
    found = one_pass.both_gradients(gradient, y, x, weight, given, relu)
    for name, each, expected, like in zip(("dx", "dW"), found, exact, (x, weight), strict=False):
        assert (each.shape, each.dtype, each.stride()) == (like.shape, like.dtype, like.stride())
        error = (each.cpu().double() - expected).norm() / expected.norm()
        assert error < TOLERANCE[dtype], f"{name}: off by {error:.1e}"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("layer", [(64, 64, 1, 1), (16, 24, 3, 2), (32, 16, 1, 2)], ids=str)
def test_a_norm_gives_its_convolution_the_gradients_too(device, add, layer, few_programs):
    inputs, outputs, kernel, stride = layer
    random = torch.Generator().manual_seed(0)
    x = torch.randn(3, inputs, 9, 7, generator=random).half()
    weight = (
        torch.randn(outputs, inputs, kernel, kernel, generator=random) * (inputs * kernel**2) ** -0.5).half()
    shape = functional.conv2d(x.float(), weight.float(), stride=stride, padding=kernel // 2).shape
    shortcut, gradient = (torch.randn(shape, generator=random).half() for _ in range(2))
    gamma, beta, mean, var = (torch.rand(outputs, generator=random) + 0.5 for _ in range(4))

    def computed_by(convolve, normalise, to, dtype):
        images = [
            each.to(to, dtype).contiguous(memory_format=torch.channels_last) for each in (x, weight, shortcut)
        ]
        vectors = [each.to(to, torch.float64 if dtype == torch.float64 else None) for each in (gamma, beta)]
        wanted = [each.requires_grad_(True) for each in (*images[: 2 + add], *vectors)]
        statistics = [each.to(vectors[0], copy=True) for each in (mean, var)]
        y, known = convolve(images[0], images[1], stride, kernel // 2)
        assert ("source" in known) == (dtype == torch.float16) and y.requires_grad == (dtype == torch.float64)
        given = images[2] if add else None
        out = normalise(y, given, *vectors, *statistics, MOMENTUM, EPSILON, True, **known)
        found = torch.autograd.grad(out, wanted, gradient.to(out))
        return [each.detach().cpu().double() for each in (out, *statistics, *found)]

    exact = computed_by(model.plain_convolution, model.separate_normalise, "cpu", torch.float64)
    found = computed_by(fused_norm.convolve, fused_norm.normalise, device, torch.float16)
    for number, (each, expected) in enumerate(zip(found, exact, strict=True)):
        error = (each - expected).norm() / expected.norm()
        # The mask of ReLU differs where rounding decides it.
        assert error < 0.02, f"{number}: off by {error:.1e}"


def test_only_layers_that_were_measured_take_one_pass():
    def takes(inputs, outputs, kernel=1, stride=1, dtype=torch.float16):
        x = torch.empty(2, inputs, 8, 8, dtype=dtype)
        return one_pass.applies_to(x, torch.empty(outputs, inputs, kernel, kernel, dtype=dtype), stride)

    assert takes(64, 256) and takes(64, 256, dtype=torch.bfloat16)
    assert not any(
        (takes(64, 256, stride=2), takes(64, 64, kernel=3), takes(64, 256, dtype=torch.float32),
         takes(1024, 256)))


def stem(function):
    """The function that takes what ``computed`` gives, and pools."""

    def pooled(x, shortcut, gamma, beta, running_mean, running_var, momentum, eps, relu, twice):
        return function(x, None, gamma, beta, running_mean, running_var, momentum, eps, relu, pool=True)

    return pooled


def assert_stem_agrees(shape, dtype, device):
    given = tensors(shape, dtype, device)
    given[2][1] = 0.0  # gamma: all values of a channel are equal, and the first of a window is its maximum
    given[3][1] = 1.0
    given[-1] = given[-1][:, :, ::2, ::2].contiguous(memory_format=torch.channels_last)
    exact = [each.cpu().double() for each in given]
    expected = computed(stem(model.separate_normalise), exact, False, True)
    found = computed(stem(fused_norm.normalise), given, False, True)
    for name, value in expected.items():
        error = (found[name] - value).norm() / value.norm()
        assert error < TOLERANCE[dtype], f"{name}: off by {error:.1e}"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_batch_norm_relu_and_pooling_agree_with_float64(device, dtype, few_programs):
    for shape in SHAPES[:3] if dtype == torch.float32 else RAGGED:
        assert_stem_agrees(shape, dtype, device)


@pytest.mark.parametrize("device", DEVICES)
def test_pooling_hides_no_value_that_is_not_a_number(device):
    given = tensors((2, 5, 4, 6), torch.float32, device)
    given[0][0, 3, 1, 1] = float("inf")
    output = stem(fused_norm.normalise)(*given[:-1], MOMENTUM, EPSILON, True, False)
    assert output[:, 3].isnan().all() and output[:, :3].isfinite().all()


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=ON_GPU)])
def test_pooling_agrees_at_full_size(device):
    assert_stem_agrees((16, 64, 112, 112), torch.float16, device)


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=ON_GPU)])
@pytest.mark.parametrize("shape", [(16, 64, 112, 112), (128, 2048, 7, 7)])
def test_agrees_at_full_size(device, shape):
    for add, readers in ((False, 1), (True, 1), (True, 2)):
        assert_agrees(tensors(shape, torch.float16, device), add, True, TOLERANCE[torch.float16], readers)

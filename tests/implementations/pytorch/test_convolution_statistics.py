"""Convolutions that add up their outputs: the sums in the kernels of batch norm, the choice of a plan, and a
step with plans that compute as cuDNN's do."""

import importlib.util
import re
import types

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton", reason="needs Triton, which PyTorch's builds for CUDA bring")

from torch.nn import functional  # noqa: E402

from implementations.pytorch import convolution_statistics, fused_norm, model  # noqa: E402
from implementations.pytorch.convolution_statistics import convolve  # noqa: E402
from implementations.pytorch.kernels import tile  # noqa: E402
from implementations.pytorch.kernels.moments import moments  # noqa: E402
from implementations.pytorch.layers import layers_of  # noqa: E402
from implementations.pytorch.traits import TRAITS  # noqa: E402
from rn50.benchmark import network as geometry  # noqa: E402
from tests.conftest import HAS_GPU  # noqa: E402
from tests.support.fused_steps import given_to, images_of, network_of, summing  # noqa: E402
from tests.support.interpreter import DEVICES, assert_passes, interpreted, starts_it  # noqa: E402

EPSILON = 1e-5
BFLOAT16 = 2.0**-8
"""The relative error of rounding to bfloat16."""


@starts_it
def test_by_the_interpreter():
    assert_passes(__file__)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """No plans of other tests, and several tiles a program of the kernels."""
    monkeypatch.setattr(convolution_statistics, "_FASTEST", {})
    convolution_statistics._warn_once.cache_clear()
    if not HAS_GPU:
        monkeypatch.setattr(tile, "multiprocessors", lambda device: 1)


def added_as_cudnn_does(x):
    """Sums and sums of squares in float32 of ``x`` of shape (rows, columns): those of tiles of 32 rows, one
    row after another, and then of the tiles, one after another."""
    x = x.float()
    return torch.stack([one_by_one(one_by_one(each.view(-1, 32, x.shape[1]), 1), 0) for each in (x, x * x)])


def one_by_one(x, dim):
    total = torch.zeros_like(x.select(dim, 0))
    for each in x.unbind(dim):
        total += each
    return total


def errors(x, sums, read):
    """Errors of mean, in standard deviations, and of 1 / deviation, relative; for each column of ``x`` of
    shape (rows, columns). ``read`` is what the kernel may read of it."""
    exact = x.double()
    mean, deviation = exact.mean(0), (exact.var(0, correction=0) + EPSILON).sqrt()
    found, scale = moments(read, *torch.zeros(2, x.shape[1], device=x.device), 1.0, EPSILON, sums)
    assert found.isfinite().all() and scale.isfinite().all()
    return (found - mean).abs() / deviation, (scale * deviation - 1).abs()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sums_of_the_largest_layer_lose_less_than_bfloat16(device, dtype):
    # 400 images of 56x56, of means of up to 5.4 of the 5.6 standard deviations of the bound.
    rows, random = 400 * 56 * 56, torch.Generator().manual_seed(0)
    far = torch.tensor([0.0, 0.1, 1.0, -2.0, 4.0, 5.4, -5.4, 5.4])
    deviations = torch.tensor([1.0, 3.0, 1.0, 0.1, 1.0, 1.0, 30.0, 0.01])
    x = ((torch.randn(rows, 8, generator=random) + far) * deviations).to(device, dtype)
    # Nothing of x is read.
    unread = torch.full((400, 56, 56, 8), float("nan"), dtype=dtype, device=device).permute(0, 3, 1, 2)
    of_mean, of_scale = errors(x, added_as_cudnn_does(x), unread)
    assert of_mean.max() < BFLOAT16 / 4 and of_scale.max() < BFLOAT16 / 2
    assert of_scale.max() > 1e-6  # less than a kernel that reads them all loses, and the test would see it


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("far", [6.0, 30.0, -1000.0])
def test_where_sums_of_squares_would_lose_more_the_values_are_read(device, far):
    random = torch.Generator().manual_seed(0)
    x = torch.randn(40 * 128, 130, generator=random) / 8
    x[:, 70] += far / 8  # the only one of its block of columns
    x = x.to(device)
    sums = added_as_cudnn_does(x)
    sums[1] *= 1 + 2e-5  # what the largest layer may lose
    of_mean, of_scale = errors(x, sums, x.view(40, 16, 8, 130).permute(0, 3, 1, 2))
    assert of_mean.max() < BFLOAT16 / 4 and of_scale[70] < 1e-5 and of_scale.max() < 3e-5
    mean, square = sums[:, 70].double() / len(x)
    lost = ((square - mean**2).clamp(min=0) / x[:, 70].double().var(correction=0) - 1).abs()
    assert lost > 3e-4  # by the difference


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("value", [0.0, 0.011, 3.0, 60000.0])
def test_the_variance_of_a_constant_is_0(device, value):
    x = torch.full((2, 8, 12, 9), value, device=device).contiguous(memory_format=torch.channels_last)
    rows = x.permute(0, 2, 3, 1).reshape(-1, 8)
    sums = torch.stack([rows.sum(0), (rows * rows).sum(0) * (1 - 1e-4)])  # less than the square of the mean
    running, variance = torch.zeros(2, 8, device=device)
    found, scale = moments(x, running, variance, 1.0, EPSILON, sums)
    torch.testing.assert_close(found, rows[0])
    torch.testing.assert_close(scale, torch.full((8,), EPSILON**-0.5, device=device))
    assert (variance == 0).all() and torch.equal(running, found)


@pytest.mark.parametrize("device", DEVICES)
def test_an_overflow_is_not_hidden(device):
    x = torch.ones(2, 8, 12, 9, device=device).contiguous(memory_format=torch.channels_last)
    sums = torch.stack([x.sum((0, 2, 3)), x.square().sum((0, 2, 3))])
    sums[:, 3] = float("inf")
    _, scale = moments(x, *torch.zeros(2, 8, device=device), 1.0, EPSILON, sums)
    assert scale[3].isnan() and scale[:3].isfinite().all()


def sums_of(y):
    y = y.float()
    return torch.stack([y.sum((0, 2, 3)), y.square().sum((0, 2, 3))])


class Summing:
    """Computes what a plan of cuDNN computes, anywhere; counts."""

    def __init__(self, stride, padding):
        self.around, self.calls = {"stride": stride, "padding": padding}, 0

    def __call__(self, x, weight):
        self.calls += 1
        y = functional.conv2d(x, weight, **self.around)
        y = y.contiguous(memory_format=torch.channels_last)
        return y, sums_of(y)


@interpreted
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_step_with_sums_gives_the_losses_gradients_and_statistics_of_one_without(precision, monkeypatch):
    monkeypatch.setattr(geometry, "STAGES", ((2, 64),))
    asked = {}

    def fastest(x, weight, stride, padding):
        shape = x.shape, weight.shape, stride
        assert shape not in asked and x.dtype == weight.dtype == model.PRECISIONS[precision]
        return asked.setdefault(shape, Summing(stride, padding))

    monkeypatch.setattr(convolution_statistics, "fastest", fastest)
    batch, sides = images_of(4, 16, "cpu"), []
    for convolution in (summing(4), model.plain_convolution):
        network, step, gradients = network_of(convolution, precision, 0.125, "cpu")
        losses = step(*batch)
        sides.append((losses, gradients, torch.cat(list(network.buffers()))))
    assert sum(plan.calls for plan in asked.values()) == 7  # all but the first
    assert [weight[2] for _, weight, _ in asked] == [1, 1, 3, 1]  # three recur
    for found, expected in zip(*sides, strict=True):
        assert (found - expected).norm() < 0.02 * expected.norm() and expected.norm() > 0


@interpreted
def test_other_batches_evaluation_and_float32_never_ask_for_a_plan(monkeypatch):
    monkeypatch.setattr(geometry, "STAGES", ((2, 64),))

    def fastest(*_):
        raise AssertionError("asked")

    monkeypatch.setattr(convolution_statistics, "fastest", fastest)
    images, _ = images_of(4, 16, "cpu")
    for precision in ("float16", "float32"):
        network, _, _ = network_of(summing(4), precision, 0.125, "cpu")
        if precision == "float32":
            network(images)
        else:
            with pytest.raises(AssertionError, match="asked"):
                network(images)
        network(images[:3])
        network.eval()(images)


class Failing(Summing):
    """A plan that does not run."""

    def __call__(self, x, weight):
        raise RuntimeError("no memory\nfor a workspace")


class Wrong(Summing):
    """A plan whose sums are those of other channels."""

    def __call__(self, x, weight):
        y, sums = super().__call__(x, weight)
        return y, sums.roll(1, 1)


class Uncaptured(Summing):
    """A plan that does what no capture allows."""


UNBUILT = None
"""A plan that cannot be built."""


@interpreted
@pytest.mark.parametrize(
    "plans, times, chosen, said",
    [
        ([Summing, Summing, Summing], [5.0, 4.0, 2.0, 3.0], 1, None),
        ([Summing], [5.0, 6.0], None, None),  # slower
        ([UNBUILT, Failing, Wrong, Summing], [5.0, 4.0], 3, None),
        ([UNBUILT, Wrong], [5.0], None, "engine 7 has no kernel"),
        ([Failing], [5.0], None, "no memory"),
        ([Uncaptured, Summing], [5.0, 2.0, 3.0], 1, None),
        ([Uncaptured], [5.0, 2.0], None, "not while a stream is captured"),
        ([Wrong], [5.0], None, "a plan gives other results than a convolution"),
        (None, [5.0], None, "no valid engine"),
    ],
)
def test_the_fastest_plan_of_right_results_is_taken(plans, times, chosen, said, monkeypatch, capsys):
    given, left = given_to((8, 16, 3, 2, 8), 4, "cpu"), list(times)
    x, weight, stride, padding = given

    class Planned:
        def get_execution_plan_count(self):
            return len(plans)

        def build_plan_at_index(self, index):
            if plans[index] is UNBUILT:
                raise Exception("engine 7 has no kernel")

    def graph_of(*asked, handle):
        assert [each is other for each, other in zip(asked, given, strict=True)]
        if plans is None:
            raise Exception("no valid engine\nand much more")
        return Planned(), []

    def execute(graph, tensors, index, x, weight):
        chosen_last.append(index)
        return plans[index](stride, padding)(x, weight)

    def milliseconds(action):
        action()
        return left.pop(0)

    def captured(run, device):
        run()
        if plans[chosen_last[-1]] is Uncaptured:
            raise RuntimeError("not while a stream is captured")

    chosen_last = []
    for fake in (graph_of, execute, milliseconds, captured):
        monkeypatch.setattr(convolution_statistics, fake.__name__, fake)
    monkeypatch.setattr(convolution_statistics, "_handle", lambda device: None)
    for _ in range(2):  # the second time what was found is known
        y, sums = convolve(x, weight, stride, padding, 4)
        assert (sums is not None) == (chosen is not None)
        assert chosen is None or chosen_last[-1] == chosen
        torch.testing.assert_close(y, functional.conv2d(x, weight, stride=2, padding=1))
    assert not left
    text = " ".join(capsys.readouterr().err.split())
    assert text.count("warning") == (said is not None)
    assert said is None or f"all convolutions: {said}; batch norm" in text


@pytest.mark.parametrize("mode, device", [("graph", "cuda"), ("eager", "cuda"), ("fused", "cpu")])
def test_other_modes_and_devices_convolve_as_ever(mode, device, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)  # installed
    assert layers_of(mode, torch.device(device), 4) == {}


@pytest.mark.parametrize("installed", [None, True])
def test_without_the_package_no_sums_are_added_up(installed, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: installed)
    gpu = types.SimpleNamespace(active=types.SimpleNamespace(get_current_device=lambda: 0))
    monkeypatch.setattr(triton.runtime, "driver", gpu)
    layers = layers_of("fused", torch.device("cuda"), 4)
    assert layers["normalise"] is fused_norm.normalise
    assert (layers["convolve"] is fused_norm.convolve) != bool(installed)
    assert not installed or layers["convolve"].func is fused_norm.convolve


def test_the_version_of_the_package_is_kept_with_a_result():
    assert re.fullmatch(TRAITS.packages, "nvidia-cudnn-frontend")

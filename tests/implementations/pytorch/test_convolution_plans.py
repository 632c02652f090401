"""cuDNN's plans of convolutions with sums: built for every shape without a GPU, and run on one."""

import itertools
import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="needs Triton, which PyTorch's builds for CUDA bring")
cudnn = pytest.importorskip("cudnn", reason="needs nvidia-cudnn-frontend")

from torch.nn import functional  # noqa: E402

from benchmarks.step_floor import convolutions  # noqa: E402
from implementations.pytorch import convolution_statistics, model  # noqa: E402
from implementations.pytorch.convolution_statistics import PLANS, execute, graph_of  # noqa: E402
from implementations.pytorch.kernels.moments import moments  # noqa: E402
from implementations.pytorch.layers import layers_of  # noqa: E402
from implementations.pytorch.step import Graph  # noqa: E402
from tests.conftest import ON_GPU  # noqa: E402
from tests.support.fused_steps import given_to, images_of, network_of  # noqa: E402

on_gpu = pytest.mark.parametrize("device", [pytest.param("cuda", marks=ON_GPU)])
EPSILON = 1e-5
LAYERS = sorted({each[1:6] for each in convolutions(224) if each.kernel < 7})
"""Inputs, outputs, kernel, stride and side of the 22 different convolutions."""
H200 = {
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "deviceVer": 900,
    "driverVer": 13000, "cudaDeviceId": 0, "regsPerBlock": 65536, "multiProcessorCount": 132,
    "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "l2CacheSize": 62914560, "warpSize": 32,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
    "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "pciDeviceId": 0, "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "isTccDriver": 0, "supportCoopLaunch": 1,
    "totalGlobalMem": 150754820096, "name": "NVIDIA H200", "deviceName": "NVIDIA H200"}
A100 = {
    **H200, "deviceVer": 800, "multiProcessorCount": 108, "smClockRateKHz": 1410000,
    "memClockRateKHz": 1512000, "l2CacheSize": 41943040, "maxSharedMemoryPerBlockOptin": 166912,
    "totalGlobalMem": 85041283072, "name": "NVIDIA A100-SXM4-80GB", "deviceName": "NVIDIA A100-SXM4-80GB"}


@pytest.mark.parametrize("batch", [400, 256, 408])
@pytest.mark.parametrize("properties", [H200, A100], ids=lambda properties: properties["name"])
def test_cudnn_has_plans_for_every_convolution_but_the_first(properties, batch):
    device = cudnn.create_device_properties(json.dumps(properties))
    assert len(LAYERS) == 22
    for layer in LAYERS:
        graph, tensors = graph_of(*given_to(layer, batch), device_property=device)
        _, outputs, _, stride, side = layer
        after = side // stride
        assert tensors[2].get_dim() == [batch, outputs, after, after]
        assert tensors[2].get_stride() == [outputs * after**2, 1, outputs * after, outputs]
        assert [each.get_dim() for each in tensors[3:]] == [[1, outputs, 1, 1]] * 2
        for plan in range(min(PLANS, graph.get_execution_plan_count())):
            graph.build_plan_at_index(plan)  # raises if it cannot
            # The bound of kernels/moments.py takes two numbers for a channel and a tile of 32 rows or more.
            tiles = graph.get_workspace_size_plan_at_index(plan) / 8 / outputs
            assert tiles < 1.01 * batch * after**2 / 32 + 64, layer


@pytest.mark.parametrize("layer", [(4, 64, 7, 2, 224), (12, 20, 1, 1, 8)])
def test_where_cudnn_has_no_plan_it_says_why(layer):
    device = cudnn.create_device_properties(json.dumps(H200))
    with pytest.raises(Exception, match="engine"):
        graph_of(*given_to(layer, 16), device_property=device)


def plans_of(given):
    graph, tensors = graph_of(*given, handle=convolution_statistics._handle(given[0].device))
    for index in range(min(PLANS, graph.get_execution_plan_count())):
        graph.build_plan_at_index(index)
        yield index, execute(graph, tensors, index, *given[:2])


@on_gpu
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_plans_give_convolution_and_moments(layer, device):
    x, weight, stride, padding = given = given_to(layer, 16, device)
    expected = functional.conv2d(x.double(), weight.double(), stride=stride, padding=padding)
    mean, scale = expected.mean((0, 2, 3)), (expected.var((0, 2, 3), correction=0) + EPSILON).rsqrt()
    ran = 0
    for index, (y, sums) in plans_of(given):
        assert y.is_contiguous(memory_format=torch.channels_last) and y.shape == expected.shape
        assert (y - expected).norm() < 2e-3 * expected.norm(), index
        found = moments(y, *torch.zeros(2, y.shape[1], device="cuda"), 0.0, EPSILON, sums)
        assert ((found[0] - mean) * scale).abs().max() < 1e-3, index
        assert (found[1] / scale - 1).abs().max() < 1e-3, index
        ran += 1
    assert ran


@on_gpu
def test_sums_of_the_largest_layer_are_as_exact_as_the_bound_takes_them(device):
    given = given_to((64, 64, 1, 1, 56), 400, device)
    for index, (y, sums) in plans_of(given):
        exact = y.double()
        wanted = torch.stack([exact.sum((0, 2, 3)), exact.square().sum((0, 2, 3))])
        most = torch.stack([exact.abs().sum((0, 2, 3)), wanted[1]])
        assert ((sums - wanted).abs() / most).max() < 5.9e-5, index


@on_gpu
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.usefixtures("comparable_convolutions")
def test_a_captured_step_with_plans_gives_what_one_without_gives(precision, device, monkeypatch):
    monkeypatch.setattr(convolution_statistics, "_FASTEST", {})
    faster = itertools.count(0, -1)  # whatever is tried is faster than what was tried before
    monkeypatch.setattr(convolution_statistics, "milliseconds", lambda action: next(faster))
    sides, (images, labels) = [], images_of(16, 64, device)
    ways = [
        (precision, layers_of("fused", images.device, 16)["convolve"]), (precision, model.plain_convolution),
        ("float32", model.plain_convolution)]
    for how, convolution in ways:
        network, step, gradients = network_of(convolution, how, 1.0, device)
        graph = Graph(step, images, labels)
        for parameter in (0.5, 1.0):  # other images than those of the capture, twice
            losses = graph(images * parameter, labels)
        sides.append((losses, gradients.clone(), torch.cat(list(network.buffers()))))
    plans = list(convolution_statistics._FASTEST.values())
    assert len(plans) >= 20
    assert precision == "bfloat16" or all(plans)  # of bfloat16 cuDNN may have none
    for found, other, exact in zip(*sides, strict=True):
        # Both round as they must, so many layers make much of that, and neither is much farther from float32.
        assert (found - exact).norm() < 1.5 * (other - exact).norm() + 1e-3 * exact.norm()

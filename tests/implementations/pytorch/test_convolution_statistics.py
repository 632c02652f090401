"""Convolutions that add up their outputs: cuDNN's plans for every shape, their sums in the kernels of batch
norm, and a step with them."""

import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="needs Triton, which PyTorch's builds for CUDA bring")

from benchmarks.step_floor import convolutions  # noqa: E402
from implementations.pytorch import convolution_statistics, fused_norm, model  # noqa: E402
from implementations.pytorch.convolution_statistics import Shape, convolve, graph_of  # noqa: E402
from implementations.pytorch.half_weights import HalfWeights  # noqa: E402
from implementations.pytorch.kernels.moments import moments  # noqa: E402
from implementations.pytorch.optimizer import in_order  # noqa: E402
from implementations.pytorch.step import Graph, convolution_of  # noqa: E402
from tests.conftest import HAS_GPU, ON_GPU  # noqa: E402

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
interpreted = pytest.mark.skipif(not INTERPRETED, reason="runs in the process of test_by_the_interpreter")
DEVICES = [pytest.param("cpu", marks=interpreted), pytest.param("cuda", marks=ON_GPU)]
EPSILON = 1e-5
BFLOAT16 = 2.0**-8
"""The relative error of rounding to bfloat16."""
LAYERS = sorted({each[1:6] for each in convolutions(224) if each.kernel < 7})
"""Inputs, outputs, kernel, stride and side of the 22 different convolutions."""
H200 = {
    "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64],
    "deviceVer": 900,
    "driverVer": 13000,
    "cudaDeviceId": 0,
    "regsPerBlock": 65536,
    "multiProcessorCount": 132,
    "smClockRateKHz": 1980000,
    "memClockRateKHz": 3201000,
    "l2CacheSize": 62914560,
    "warpSize": 32,
    "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448,
    "reservedSharedMemoryPerBlock": 1024,
    "maxRegistersPerSM": 65536,
    "pciDeviceId": 0,
    "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048,
    "isTccDriver": 0,
    "supportCoopLaunch": 1,
    "totalGlobalMem": 150754820096,
    "name": "NVIDIA H200",
    "deviceName": "NVIDIA H200",
}
A100 = {
    **H200,
    "deviceVer": 800,
    "multiProcessorCount": 108,
    "smClockRateKHz": 1410000,
    "memClockRateKHz": 1512000,
    "l2CacheSize": 41943040,
    "maxSharedMemoryPerBlockOptin": 166912,
    "totalGlobalMem": 85041283072,
    "name": "NVIDIA A100-SXM4-80GB",
    "deviceName": "NVIDIA A100-SXM4-80GB",
}


@pytest.mark.skipif(HAS_GPU or INTERPRETED, reason="the tests of this file run here themselves")
def test_by_the_interpreter():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=500, env={**os.environ, "TRITON_INTERPRET": "1"}
    )
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr


def shape_of(layer, batch, dtype=torch.float16):
    inputs, outputs, kernel, stride, side = layer
    images, weights = (batch, inputs, side, side), (outputs, inputs, kernel, kernel)
    return Shape(torch.Size(images), torch.Size(weights), stride, kernel // 2, dtype)


@pytest.mark.parametrize("batch", [400, 256, 408])
@pytest.mark.parametrize("properties", [H200, A100], ids=lambda properties: properties["name"])
def test_cudnn_has_plans_for_every_convolution_but_the_first(properties, batch):
    cudnn = pytest.importorskip("cudnn", reason="needs nvidia-cudnn-frontend")
    device = cudnn.create_device_properties(json.dumps(properties))
    assert len(LAYERS) == 22
    for layer in LAYERS:
        graph, tensors = graph_of(shape_of(layer, batch), device_property=device)
        _, outputs, _, stride, side = layer
        built = [graph.build_plan_at_index(plan) for plan in range(min(4, graph.get_execution_plan_count()))]
        assert len(built) == 4
        after = side // stride
        assert tensors[2].get_dim() == [batch, outputs, after, after]
        assert tensors[2].get_stride() == [outputs * after**2, 1, outputs * after, outputs]
        assert [each.get_dim() for each in tensors[3:]] == [[1, outputs, 1, 1]] * 2
        # What the bound of kernels/moments.py counts: two numbers for each channel and tile of 256 or 128 rows.
        rows, numbers = batch * after**2, graph.get_workspace_size_plan_at_index(0) / 8 / outputs
        assert rows / 256 <= numbers + 1 <= rows / 128 + 100, (layer, rows, numbers)


@pytest.mark.parametrize("layer", [(4, 64, 7, 2, 224), (12, 20, 1, 1, 8)])
def test_where_cudnn_has_no_plan_it_says_why(layer):
    cudnn = pytest.importorskip("cudnn", reason="needs nvidia-cudnn-frontend")
    device = cudnn.create_device_properties(json.dumps(H200))
    with pytest.raises(Exception, match="engine"):
        graph_of(shape_of(layer, 16), device_property=device)

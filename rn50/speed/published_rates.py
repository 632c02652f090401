"""Published images/s of training ResNet-50, to compare with measured ones."""

from collections.abc import Mapping
from typing import NamedTuple


class Figure(NamedTuple):
    """Published throughput of one network; None: the source does not say."""

    device: str
    framework: str
    precision: str | None
    """Precision in the source's words; XLA: with that compiler."""
    batch_size: int | None
    """Per device."""
    images_per_second: Mapping[int, float]
    """Number of devices -> images/s of all together."""
    source: str


def _nvidia(readme: str, commit: str) -> str:
    return (
        f"NVIDIA, repository DeepLearningExamples, {readme}/README.md (commit {commit}), training "
        "performance results"
    )


_COMPARISON = (
    "PaddlePaddle, repository Perf, ResNet50V1.5/README.md (commit ec8b8cca), the other frameworks in "
    "NVIDIA's containers"
)
_PADDLE = _nvidia("PaddlePaddle/Classification/RN50v1.5", "38934f9f")
_PYTORCH = _nvidia("PyTorch/Classification/ConvNets/resnet50v1.5", "291f0d02")
_MXNET = _nvidia("MxNet/Classification/RN50v1.5", "134510b4")
_TENSORFLOW = _nvidia("TensorFlow/Classification/ConvNets/resnet50v1.5", "1d4211fe")
_MLPERF = (
    "results of NVIDIA in MLPerf Training with its own build of MXNet, on real data, evaluation included"
)

TENSORFLOW = "TensorFlow 1.15"
FIGURES: tuple[Figure, ...] = (
    Figure("V100 16GB", "PyTorch", "FP32", None, {1: 367, 8: 2855}, _PYTORCH),
    Figure("V100 16GB", "PyTorch", "AMP", None, {1: 1200, 8: 8322}, _PYTORCH),
    Figure("V100 16GB", "MXNet", "FP32", 96, {1: 384, 8: 3005}, _MXNET),
    Figure("V100 16GB", "MXNet", "AMP", 192, {1: 1376, 8: 10723}, _MXNET),
    Figure("V100 16GB", TENSORFLOW, "FP32, XLA", 128, {1: 412, 8: 3170}, _TENSORFLOW),
    Figure("V100 16GB", TENSORFLOW, "AMP, XLA", 256, {1: 1270, 8: 9510}, _TENSORFLOW),
    Figure("V100 32GB", "Paddle", "FP32", 256, {1: 393.561, 8: 3019.361, 32: 10984.436}, _COMPARISON),
    Figure("V100 32GB", "Paddle", "AMP O2", 256, {1: 1438.518, 8: 10936.815, 32: 39972.131}, _COMPARISON),
    Figure("V100 32GB", "PyTorch", "FP32", 256, {1: 370.194, 8: 2791.98, 32: 10523.32}, _COMPARISON),
    Figure("V100 32GB", "PyTorch", "AMP", 256, {1: 790.033, 8: 5889.05, 32: 21259.81}, _COMPARISON),
    Figure("V100 32GB", "MXNet", "FP32", 256, {1: 389.54, 8: 2957.8}, _COMPARISON),
    Figure("V100 32GB", "MXNet", "AMP", 256, {1: 1471.9, 8: 10336}, _COMPARISON),
    Figure("V100 32GB", TENSORFLOW, "FP32, XLA", 256, {1: 415.786, 8: 3273.03, 32: 12671.9}, _COMPARISON),
    Figure("V100 32GB", TENSORFLOW, "AMP, XLA", 256, {1: 1218.82, 8: 9405.36, 32: 33317.67}, _COMPARISON),
    Figure("A100 40GB", "Paddle", "FP32", 256, {1: 908.244, 8: 5333.558}, _COMPARISON),
    Figure("A100 40GB", "Paddle", "AMP O2", 256, {1: 2602.629, 8: 17587.654}, _COMPARISON),
    Figure("A100 40GB", "PyTorch", "FP32", 256, {1: 924.989, 8: 7020.9}, _COMPARISON),
    Figure("A100 40GB", "PyTorch", "AMP", 256, {1: 1449.65, 8: 10744.6}, _COMPARISON),
    Figure("A100 40GB", "MXNet", "FP32", 256, {1: 1015.8, 8: 7848.2}, _COMPARISON),
    Figure("A100 40GB", "MXNet", "AMP", 256, {1: 3046.4, 8: 22690}, _COMPARISON),
    Figure("A100 40GB", TENSORFLOW, "FP32, XLA", 256, {1: 975.374}, _COMPARISON),
    Figure("A100 40GB", TENSORFLOW, "AMP, XLA", 256, {1: 2064.8}, _COMPARISON),
    Figure("A100 40GB", TENSORFLOW, "TF32, XLA", 256, {1: 909, 8: 7000}, _TENSORFLOW),
    Figure("A100 40GB", TENSORFLOW, "AMP, XLA", 256, {1: 2375, 8: 17400}, _TENSORFLOW),
    Figure("A100 80GB", "Paddle", "TF32", 256, {1: 1024, 8: 8013}, _PADDLE),
    Figure("A100 80GB", "Paddle", "AMP", 256, {1: 2897, 8: 23874}, _PADDLE),
    Figure("A100 80GB", "PyTorch", "TF32", None, {1: 938, 8: 7248}, _PYTORCH),
    Figure("A100 80GB", "PyTorch", "AMP", None, {1: 2470, 8: 16621}, _PYTORCH),
    Figure("A100 80GB", "MXNet", "TF32", 256, {1: 1022, 8: 8001}, _MXNET),
    Figure("A100 80GB", "MXNet", "AMP", 256, {1: 2180, 8: 16925}, _MXNET),
    Figure("A100", "MXNet", None, None, {8: 8 * 3552}, _MLPERF),
    Figure("H100", "MXNet", None, None, {8: 8 * 7097}, _MLPERF),
    Figure("H200", "MXNet", None, None, {8: 8 * 7768}, _MLPERF),
)

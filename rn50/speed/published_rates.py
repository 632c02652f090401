"""Published images/s of training ResNet-50, for comparison with those that are measured here."""

from typing import NamedTuple, Optional, Tuple


class Figure(NamedTuple):
    """Published throughput; ``batch_size`` is per device. None: the source does not say."""

    framework: str
    device: str
    devices: int
    precision: Optional[str]
    batch_size: Optional[int]
    images_per_second: float
    source: str


_COMPARISON = "comparison of frameworks that the documents of this project quote"
_MLPERF = "results of NVIDIA in MLPerf Training, on real data, evaluation included"
FIGURES: Tuple[Figure, ...] = (
    Figure("PaddlePaddle", "NVIDIA A100", 1, "AMP", 256, 2603, _COMPARISON),
    Figure("PaddlePaddle", "NVIDIA A100", 8, "AMP", 256, 17588, _COMPARISON),
    Figure("PyTorch", "NVIDIA A100", 1, "AMP", 256, 1450, _COMPARISON),
    Figure("PyTorch", "NVIDIA A100", 8, "AMP", 256, 10745, _COMPARISON),
    Figure("MXNet", "NVIDIA A100", 1, "AMP", 256, 3046, _COMPARISON),
    Figure("MXNet", "NVIDIA A100", 8, "AMP", 256, 22690, _COMPARISON),
    Figure("MXNet of NVIDIA's container", "NVIDIA A100", 8, None, None, 8 * 3552, _MLPERF),
    Figure("MXNet of NVIDIA's container", "NVIDIA H100", 8, None, None, 8 * 7097, _MLPERF),
    Figure("MXNet of NVIDIA's container", "NVIDIA H200", 8, None, None, 8 * 7768, _MLPERF),
)

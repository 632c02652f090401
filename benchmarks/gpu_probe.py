"""Report the versions of a GPU machine, and the rates of its memory and its matrix products, which
step_floor.py takes as options.

    python benchmarks/gpu_probe.py

Every line is printed as soon as its values are measured.
"""

import importlib.metadata
import os
import pathlib
import statistics
import sys
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from rn50.errors import UserError
from rn50.terminal import say

PACKAGES = "torch triton numpy nvidia-dali-cuda130 nvidia-dali-cuda120 nvidia-nvimgcodec-cu13"


def require_gpu() -> None:
    """Raise UserError unless PyTorch can use a GPU."""
    import torch

    if not torch.cuda.is_available():
        raise UserError(
            "bench-gpu", "PyTorch sees no GPU here", "install an NVIDIA driver and PyTorch's build for CUDA"
        )


def milliseconds(action: Callable[[], Any], repeats: int = 30) -> float:
    """Return the median time of ``action`` on the GPU, without the first third of ``repeats`` calls."""
    import torch

    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        action()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[repeats // 3 :])


def device_rates() -> dict[str, float]:
    """Measure GPU 0: return the bytes/s of a copy, which reads and writes every byte, and the operations/s of
    a product of float16 matrices."""
    import torch

    require_gpu()
    source = torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    left, right = (torch.randn(8192, 8192, dtype=torch.float16, device="cuda") for _ in range(2))
    return {
        "bytes": 2 * source.numel() / milliseconds(lambda: target.copy_(source)) * 1e3,
        "operations": 2 * 8192**3 / milliseconds(lambda: torch.mm(left, right)) * 1e3,
    }


def versions() -> str:
    """Return the versions of Python and of those of ``PACKAGES`` that are installed."""
    installed = []
    for name in PACKAGES.split():
        try:
            installed.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join([f"Python {sys.version.split()[0]}", *installed])


def main() -> None:
    import torch

    say(f"{versions()}; {len(os.sched_getaffinity(0))} CPUs")
    require_gpu()
    gpu = torch.cuda.get_device_properties(0)
    say(
        f"{gpu.name}: {gpu.multi_processor_count} multiprocessors, {gpu.total_memory / 2**30:.0f} GiB, "
        f"{gpu.L2_cache_size >> 20} MiB of L2, cuDNN {torch.backends.cudnn.version()}"
    )
    rates = device_rates()
    say(
        f"benchmarks/step_floor.py --terabytes {rates['bytes'] / 1e12:.2f} --teraflops "
        f"{rates['operations'] / 1e12:.0f}"
    )


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"rn50: {error}") from None

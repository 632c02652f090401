"""PyTorch's profiler."""

import pathlib
from collections.abc import Callable, Iterable

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEventAvg

from rn50.run.loop import EpochResult
from rn50.speed.measured_steps import Operator


def profile(
    run: Callable[[], EpochResult], trace: pathlib.Path, on_gpu: bool
) -> tuple[EpochResult, list[Operator]]:
    """Run steps under the profiler."""
    activity = torch.profiler.ProfilerActivity
    activities = [activity.CPU, activity.CUDA] if on_gpu else [activity.CPU]
    with torch.profiler.profile(activities=activities) as profiler:
        result = run()
    profiler.export_chrome_trace(str(trace))
    return result, (kernels if on_gpu else operators)(profiler.key_averages())


def operators(averages: Iterable[FunctionEventAvg]) -> list[Operator]:
    """Return the operators that took time on a CPU."""
    return _that_took_time((row, row.self_cpu_time_total) for row in averages)


def kernels(averages: Iterable[FunctionEventAvg]) -> list[Operator]:
    """Return the kernels and copies that a GPU ran, each once.

    PyTorch lists the time of a kernel twice: in the kernel's row and in the row of the operator that started
    it. A kernel of a CUDA graph has no operator. The row of an annotation repeats all kernels in its range.
    PyTorch's own total leaves out operators and annotations.
    """
    ran = (row for row in averages if row.device_type == DeviceType.CUDA and not row.is_user_annotation)
    return _that_took_time((row, row.self_device_time_total) for row in ran)


def _that_took_time(rows: Iterable[tuple[FunctionEventAvg, float]]) -> list[Operator]:
    return [Operator(row.key, row.count, microseconds / 1e6) for row, microseconds in rows if microseconds]

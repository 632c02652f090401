"""PyTorch's profiler, for ``rn50 profile``: the seconds of every operator or kernel in a few steps."""

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
    """Call ``run``, which runs steps, under the profiler. Write the profiler's trace to ``trace``; return the
    result of ``run``, and the kernels on a GPU or the operators on a CPU."""
    activity = torch.profiler.ProfilerActivity
    activities = [activity.CPU, activity.CUDA] if on_gpu else [activity.CPU]
    with torch.profiler.profile(activities=activities) as profiler:
        result = run()
    profiler.export_chrome_trace(str(trace))
    averages = profiler.key_averages()
    return result, kernels(averages) if on_gpu else operators(averages)


def operators(averages: Iterable[FunctionEventAvg]) -> list[Operator]:
    """Return the operators that took time on a CPU, without the time of operators that they called."""
    return _nonzero((row, row.self_cpu_time_total) for row in averages)


def kernels(averages: Iterable[FunctionEventAvg]) -> list[Operator]:
    """Return the kernels and copies that a GPU ran, each once.

    PyTorch lists the time of a kernel in several rows: in the kernel's own row; in the row of the operator
    that started the kernel, except in a CUDA graph, which has no operators; and in the row of each annotation
    around it. Only the first of these is counted, as in the total that PyTorch prints.
    """
    rows = (row for row in averages if row.device_type == DeviceType.CUDA and not row.is_user_annotation)
    return _nonzero((row, row.self_device_time_total) for row in rows)


def _nonzero(rows: Iterable[tuple[FunctionEventAvg, float]]) -> list[Operator]:
    """Return the rows of the profiler whose microseconds are not 0."""
    return [Operator(row.key, row.count, microseconds / 1e6) for row, microseconds in rows if microseconds]

"""PyTorch's training steps to be measured: on any batches, under its profiler, and on torchvision's
models."""

import pathlib
from collections.abc import Iterable
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEventAvg

from implementations.pytorch import zoo
from implementations.pytorch.train import PytorchImplementation
from rn50.data.pipeline.batches import Batches
from rn50.run.implementation import EpochResult
from rn50.settings.config import Config
from rn50.speed.measurable import Operator, TrainingSteps


def create(config: Config, model: str | None = None) -> "PytorchMeasurable":
    """Return the measurable implementation; ``model`` names one of torchvision to time instead of ours."""
    return PytorchMeasurable(config, model)


class PytorchMeasurable(PytorchImplementation, TrainingSteps):
    """See ``rn50.speed.measurable.Measurable``."""

    def __init__(self, config: Config, model: str | None):
        super().__init__(config)
        self._model = model
        if model is not None:  # torchvision's take three channels
            self.batch_format = self.batch_format._replace(channels=3)

    def _untrained(self) -> Any:
        if self._model is None:
            return super()._untrained()
        return zoo.ZooNetwork(self._model, self.config.data.classes, self.precision.name)

    def profile(
        self, batches: Batches, steps: int, trace: pathlib.Path
    ) -> tuple[EpochResult, list[Operator]]:
        """Run steps under PyTorch's profiler."""
        activity = torch.profiler.ProfilerActivity
        on_gpu = self.device.type == "cuda"
        with torch.profiler.profile(
            activities=[activity.CPU, activity.CUDA] if on_gpu else [activity.CPU]
        ) as profiler:
            result = self.train_steps(batches, 0, steps)
        profiler.export_chrome_trace(str(trace))
        return result, (kernels if on_gpu else operators)(profiler.key_averages())


def operators(averages: Iterable[FunctionEventAvg]) -> list[Operator]:
    """Return the operators that took time on a CPU."""
    return [
        Operator(row.key, row.count, row.self_cpu_time_total / 1e6)
        for row in averages
        if row.self_cpu_time_total
    ]


def kernels(averages: Iterable[FunctionEventAvg]) -> list[Operator]:
    """Return the kernels and copies that a GPU ran, each once.

    PyTorch lists the time of a kernel twice: in the kernel's row and in the row of the operator that started
    it. A kernel of a CUDA graph has no operator. The row of an annotation repeats all kernels in its range.
    PyTorch's own total leaves out operators and annotations.
    """
    ran = (row for row in averages if row.device_type == DeviceType.CUDA and not row.is_user_annotation)
    return [
        Operator(row.key, row.count, row.self_device_time_total / 1e6)
        for row in ran
        if row.self_device_time_total
    ]

"""PaddlePaddle's training steps to be measured: on any batches, under its profiler, and on the models of
paddle.vision."""

import collections
import json
import pathlib
import re
from collections.abc import Container, Iterable
from typing import Any

from paddle import profiler

from implementations.paddle import zoo
from implementations.paddle.train import PaddleImplementation
from rn50.data.pipeline.batches import Batches
from rn50.run.implementation import EpochResult
from rn50.settings.config import Config
from rn50.speed.measurable import Operator, TrainingSteps

OPERATORS, KERNELS = ("Operator",), ("Kernel", "Memcpy", "Memset")
"""Kinds of events on the host, and those of a GPU, whose traces this project has never seen."""


def create(config: Config, model: str | None = None) -> "PaddleMeasurable":
    """Return the measurable implementation; ``model`` names one of paddle.vision to time instead of ours."""
    return PaddleMeasurable(config, model)


class PaddleMeasurable(PaddleImplementation, TrainingSteps):
    """See ``rn50.speed.measurable.Measurable``."""

    def __init__(self, config: Config, model: str | None):
        super().__init__(config)
        self._model = model
        if model is not None:
            self.batch_format = self.batch_format._replace(
                layout="CHW"
            )  # paddle.vision's models are never channels-last

    def _untrained(self) -> Any:
        if self._model is None:
            return super()._untrained()
        return zoo.ZooNetwork(self._model, self.config.data.classes, self.precision.name)

    def profile(
        self, batches: Batches, steps: int, trace: pathlib.Path
    ) -> tuple[EpochResult, list[Operator]]:
        """Run steps under PaddlePaddle's profiler."""

        def export(running: profiler.Profiler) -> None:
            running.export(str(trace), format="json")

        targets = [profiler.ProfilerTarget.CPU, *([profiler.ProfilerTarget.GPU] if self._on_gpu else [])]
        with profiler.Profiler(targets=targets, on_trace_ready=export):
            result = self.train_steps(batches, 0, steps)
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
        return result, operators(events, KERNELS if self._on_gpu else OPERATORS)


def operators(events: Iterable[dict[str, Any]], kinds: Container[str]) -> list[Operator]:
    """Return the events of ``kinds`` in a trace of the profiler, each with the time of the events within
    it."""
    ran = sorted(
        (span for span in events if span.get("cat") in kinds), key=lambda span: (span["ts"], -span["dur"])
    )
    seconds: dict[str, list[float]] = collections.defaultdict(list)
    end = 0.0
    for event in ran:
        ends = event["ts"] + event["dur"]
        if ends >= end + 1:  # not inside the one before; ``ts`` is rounded down to whole microseconds
            end = ends
            name, *_ = re.split(r" dygraph|\[", event["name"])  # "conv2d dygraph[1.234 ms]"
            seconds[name].append(event["dur"] / 1e6)
    return [Operator(name, len(durations), sum(durations)) for name, durations in seconds.items()]

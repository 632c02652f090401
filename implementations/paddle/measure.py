"""PaddlePaddle's profiler."""

import collections
import json
import pathlib
import re
from collections.abc import Callable, Container, Iterable
from typing import Any

from paddle import profiler

from rn50.run.loop import EpochResult
from rn50.speed.measured_steps import Operator

OPERATORS, KERNELS = ("Operator",), ("Kernel", "Memcpy", "Memset")
"""Kinds of events on the host, and those of a GPU, whose traces this project has never seen."""


def profile(
    run: Callable[[], EpochResult], trace: pathlib.Path, on_gpu: bool
) -> tuple[EpochResult, list[Operator]]:
    """Run steps under the profiler."""
    targets = [profiler.ProfilerTarget.CPU, *([profiler.ProfilerTarget.GPU] if on_gpu else [])]
    with profiler.Profiler(targets=targets, on_trace_ready=lambda p: p.export(str(trace), "json")):
        result = run()
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    return result, operators(events, KERNELS if on_gpu else OPERATORS)


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

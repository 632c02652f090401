"""PaddlePaddle's profiler, for ``rn50 profile``: the seconds of every operator or kernel in a few steps."""

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
"""Values of the field ``cat`` of an event in a trace: those of operators on the host, and those of a GPU's
kernels and copies. This project has never seen the trace of a GPU."""


def profile(
    run: Callable[[], EpochResult], trace: pathlib.Path, on_gpu: bool
) -> tuple[EpochResult, list[Operator]]:
    """Call ``run``, which runs some training steps, under the profiler, and write the profiler's trace to
    ``trace``. Return the result of ``run``, and the kernels on a GPU or the operators on a CPU."""
    targets = [profiler.ProfilerTarget.CPU, *([profiler.ProfilerTarget.GPU] if on_gpu else [])]
    with profiler.Profiler(targets=targets, on_trace_ready=lambda p: p.export(str(trace), "json")):
        result = run()
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    return result, operators(events, KERNELS if on_gpu else OPERATORS)


def operators(events: Iterable[dict[str, Any]], kinds: Container[str]) -> list[Operator]:
    """Return the operators or kernels of a profiler's trace, from its events whose ``cat`` is in ``kinds``.
    An event within another event is not counted, because its time is part of the outer event's."""
    chosen = (event for event in events if event.get("cat") in kinds)
    ordered = sorted(chosen, key=lambda event: (event["ts"], -event["dur"]))
    seconds: dict[str, list[float]] = collections.defaultdict(list)
    outer_end = 0.0
    for event in ordered:
        end = event["ts"] + event["dur"]
        # Events are sorted by their start, so an event that ends by ``outer_end`` is inside the last counted
        # one. ``ts`` is in us, rounded down, so the end of an inner event may seem up to 1 us late.
        if end >= outer_end + 1:
            outer_end = end
            name, *_ = re.split(r" dygraph|\[", event["name"])  # "conv2d dygraph[1.234 ms]" -> "conv2d"
            seconds[name].append(event["dur"] / 1e6)
    return [Operator(name, len(durations), sum(durations)) for name, durations in seconds.items()]

"""MXNet's profiler, for ``rn50 profile``: the seconds of every operator in a few steps."""

import json
from collections.abc import Callable
from pathlib import Path

import mxnet as mx

from rn50.run.loop import EpochResult
from rn50.speed.measured_steps import Operator


def profile(run: Callable[[], EpochResult], trace: Path, on_gpu: bool) -> tuple[EpochResult, list[Operator]]:
    """Call ``run``, which runs steps, under the profiler. Write the profiler's trace to ``trace``; return the
    result of ``run``, and the operators.

    ``rn50 profile`` sets MXNET_EXEC_BULK_EXEC_TRAIN=0. Without it MXNet runs, and counts, several operators
    as one.
    """
    mx.profiler.set_config(
        profile_symbolic=True, profile_imperative=True, aggregate_stats=True, filename=str(trace)
    )
    mx.profiler.set_state("run")
    result = run()
    mx.profiler.set_state("stop")
    table = json.loads(mx.profiler.dumps(reset=True, format="json"))["Time"]
    mx.profiler.dump()
    rows = table["operator"].items()  # "Total" is in milliseconds
    return result, [Operator(name, row["Count"], row["Total"] / 1e3) for name, row in rows]

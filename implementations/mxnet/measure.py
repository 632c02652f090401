"""MXNet's profiler."""

import json
import pathlib
from collections.abc import Callable

import mxnet as mx

from rn50.run.loop import EpochResult
from rn50.speed.measured_steps import Operator


def profile(
    run: Callable[[], EpochResult], trace: pathlib.Path, on_gpu: bool
) -> tuple[EpochResult, list[Operator]]:
    """Run steps under the profiler.

    Without MXNET_EXEC_BULK_EXEC_TRAIN=0, operators that the engine runs in one piece count as one.
    """
    mx.profiler.set_config(
        profile_symbolic=True, profile_imperative=True, aggregate_stats=True, filename=str(trace)
    )
    mx.profiler.set_state("run")
    result = run()
    mx.profiler.set_state("stop")
    table = json.loads(mx.profiler.dumps(reset=True, format="json"))["Time"]
    mx.profiler.dump()
    return result, [
        Operator(name, row["Count"], row["Total"] / 1e3) for name, row in table["operator"].items()
    ]

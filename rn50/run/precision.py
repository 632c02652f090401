"""The precision of a run's matrix products, PRECISION. On a CPU "auto" is decided by timing steps.

``loop.py`` calls ``before_warm_up`` when a rank is made, and ``choose`` in its warm-up.
"""

import ctypes
import gc
import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rn50 import frameworks
from rn50.errors import UserError
from rn50.machine.hardware import BFLOAT16, cpu_flags
from rn50.run import provenance
from rn50.run.all_reduce import total
from rn50.run.engine import Communicator
from rn50.settings.config import Config

TIMED = ("float32", "bfloat16")
"""The precisions that PRECISION=auto chooses from on a CPU."""
WORTH = 1.05
"""bfloat16 is taken only if its step is at least this many times as fast as the step of float32.

Two trials of one precision differ by some per cent, so a smaller lead may be chance. float32 then costs next
to nothing and keeps more digits, and the runs of a campaign do not differ in precision by chance."""
TURNS = 4
"""Number of turns in which each precision is timed. The two precisions take turns, so that a short load on
the machine does not slow all turns of one of them."""
TURN_S = 0.1
"""Least time of a turn in seconds. A turn has one step or more."""


class Precision(NamedTuple):
    """The precision of the matrix products."""

    name: str
    """"float32", "float16" or "bfloat16"."""
    reason: str = ""
    """A line that says why PRECISION=auto became this precision. Empty if configuration and device leave no
    choice."""


def before_warm_up(config: Config) -> Precision:
    """Return the precision as far as it is decided before the warm-up. It is float32 if ``choose`` has still
    to compare float32 with bfloat16. Raises UserError if the framework does not compute in PRECISION on this
    processor."""
    if config.run.precision == "bfloat16" and config.run.device == "cpu":
        traits = frameworks.traits(config.run.framework)
        if not traits.bfloat16_flags <= cpu_flags():
            problem = f"{traits.name} needs AVX-512, which the processor lacks or DNNL_MAX_CPU_ISA denies"
            raise UserError("PRECISION=bfloat16", problem, "set PRECISION=auto")
    if config.run.precision != "auto":
        return Precision(config.run.precision)
    if config.run.quantization != "none":
        reason = f"PRECISION=auto is float32, in which QUANTIZATION={config.run.quantization} rounds"
        return Precision("float32", reason)
    return Precision("float16" if config.run.device == "gpu" else "float32")


def choose(
    config: Config, communicator: Communicator, trial: Callable[[str], Callable[[], None]]
) -> Precision:
    """Return the precision of the run, the same on all ranks. For "auto" on a CPU it is that of an earlier
    run. If there is none, all ranks time steps in float32 and bfloat16, and the means over the ranks decide.

    ``trial(precision)`` builds a network for the trial, and returns a function that runs one step and waits
    for its end. The networks of both precisions are in memory at the same time. They are freed before this
    function returns, after which the network of the run is built.
    """
    choice = before_warm_up(config)
    cpu_precisions = frameworks.traits(config.run.framework).precisions.get("cpu", ())
    # ``choice`` has a reason if QUANTIZATION has decided.
    is_open = config.run.precision == "auto" and config.run.device == "cpu" and not choice.reason
    if not is_open or "bfloat16" not in cpu_precisions:
        return choice
    # A processor without instructions for bfloat16 computes in bfloat16 correctly, but never faster.
    ranks_with_instructions = total(communicator, bool(BFLOAT16 & cpu_flags()))
    if ranks_with_instructions < communicator.size:
        lack = "not every rank's processor has" if ranks_with_instructions else "the processor has no"
        return Precision("float32", f"PRECISION=auto is float32: {lack} instructions for bfloat16")
    # Take the precision of an earlier run, if rank 0 finds one: the runs of a campaign must not differ in
    # precision by chance, and a trial takes 2 s. The other ranks learn its number, 1 + the index in TIMED, by
    # a sum over all ranks to which only rank 0 adds it; 0: there is none.
    earlier = provenance.earlier_precision(config) if communicator.rank == 0 else None
    if number := total(communicator, TIMED.index(earlier) + 1 if earlier in TIMED else 0):
        name = TIMED[number - 1]
        return Precision(name, f"PRECISION=auto is {name}, as in earlier runs of this configuration")
    steps = {name: trial(name) for name in TIMED}
    for step in steps.values():
        step()  # the first step compiles
    fastest = dict.fromkeys(TIMED, math.inf)
    for name in TIMED * TURNS:
        communicator.barrier()  # ranks that share cores or memory time the same precision at a time
        fastest[name] = min(fastest[name], _fastest_step(steps[name]))
    del step, steps  # they hold the networks of the trials
    _free_memory()
    # ``all_reduce`` sums whole numbers, so sum microseconds; ``decide`` takes mean milliseconds.
    microseconds = communicator.all_reduce(np.array([round(fastest[name] * 1e6) for name in TIMED], np.int64))
    return decide(*(microseconds / communicator.size / 1e3))


def decide(float32: float, bfloat16: float) -> Precision:
    """Return the precision to take, given the milliseconds of a step in each of the two."""
    ratio = float32 / bfloat16
    times = f"a step timed at warm-up takes {bfloat16:.1f} ms in bfloat16, {float32:.1f} ms in float32"
    if ratio >= WORTH:
        return Precision("bfloat16", f"PRECISION=auto is bfloat16: {times} ({ratio:.2f} times as fast)")
    reason = f"PRECISION=auto is float32: {times} (bfloat16 is taken if {WORTH} times as fast)"
    return Precision("float32", reason)


def label(config: Config, precision: Precision) -> str:
    """Return the text that tables show for the precision of a rank after its warm-up."""
    return f"{precision.name} (auto)" if config.run.precision == "auto" else precision.name


def _fastest_step(step: Callable[[], None]) -> float:
    """Run steps for ``TURN_S`` seconds. Return the seconds of the fastest step, which other load on the
    machine has delayed least."""
    times = [time.perf_counter()]
    while times[-1] - times[0] < TURN_S:
        step()
        times.append(time.perf_counter())
    return min(after - before for before, after in zip(times, times[1:], strict=False))


def _free_memory() -> None:
    """Return the memory of deleted networks to the system. Without ``malloc_trim`` the C library keeps freed
    memory that lies between blocks in use."""
    gc.collect()  # networks have reference cycles
    getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)  # not in every C library

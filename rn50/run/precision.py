"""The precision of the matrix products: PRECISION, or what "auto" becomes, which on a CPU is timed at
warm-up."""

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
WORTH = 1.05
"""Take bfloat16 only if its step is at least this many times as fast.

Two trials of one precision differ by some per cent, so a smaller lead may be chance. float32 then costs next
to nothing and keeps more digits, and the runs of a campaign do not differ in precision by chance."""
VISITS = 4
"""Turns of each precision. They alternate, so that a short load on the machine does not slow all turns of one
of them."""
VISIT_S = 0.1
"""Fewest seconds of a turn, which has a step at least."""


class Precision(NamedTuple):
    """The precision of the matrix products."""

    name: str
    """"float32", "float16" or "bfloat16"."""
    reason: str = ""
    """A line that says why PRECISION=auto became it; empty where configuration and device leave no choice."""


def before_warm_up(config: Config) -> Precision:
    """Return the precision as far as it is known before warm-up: float32 where ``choose`` may find bfloat16
    faster. Raises UserError if the framework does not compute in PRECISION on this processor."""
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
    """Return the precision of the run, the same on all ranks; for "auto" on a CPU, the one whose step is
    faster here.

    ``trial(precision)`` builds a network that is discarded, and returns a function that runs one step and
    waits for its end. Both networks are in memory at once, and gone before the one that is trained is built.
    """
    choice = before_warm_up(config)
    on_cpu = frameworks.traits(config.run.framework).precisions.get("cpu", ())
    is_open = config.run.precision == "auto" and config.run.device == "cpu" and not choice.reason
    if not is_open or "bfloat16" not in on_cpu:
        return choice
    # Without these instructions it is right, but never faster.
    able = total(communicator, bool(BFLOAT16 & cpu_flags()))
    if able < communicator.size:
        lacking = "the processor has no" if able == 0 else "not every rank's processor has"
        return Precision("float32", f"PRECISION=auto is float32: {lacking} instructions for bfloat16")
    # The runs of a campaign shall not differ in precision by chance, and a trial takes 2 s.
    earlier = provenance.earlier_precision(config) if communicator.rank == 0 else None
    if number := total(communicator, TIMED.index(earlier) + 1 if earlier in TIMED else 0):
        name = TIMED[number - 1]
        return Precision(name, f"PRECISION=auto is {name}, as in earlier runs of this configuration")
    steps = {name: trial(name) for name in TIMED}
    for step in steps.values():
        step()  # compiles
    fastest = dict.fromkeys(TIMED, math.inf)
    for name in TIMED * VISITS:
        communicator.barrier()  # ranks that share cores or memory time the same precision
        fastest[name] = min(fastest[name], _fastest_step(steps[name]))
    del step, steps
    _free_memory()
    microseconds = np.array([round(fastest[name] * 1e6) for name in TIMED], np.int64)
    return decide(*(communicator.all_reduce(microseconds) / communicator.size / 1e3))


def decide(float32: float, bfloat16: float) -> Precision:
    """Return the precision to take, from the milliseconds of a step in each."""
    ratio = float32 / bfloat16
    times = f"a step timed at warm-up takes {bfloat16:.1f} ms in bfloat16, {float32:.1f} ms in float32"
    if ratio >= WORTH:
        return Precision("bfloat16", f"PRECISION=auto is bfloat16: {times} ({ratio:.2f} times as fast)")
    reason = f"PRECISION=auto is float32: {times} (bfloat16 is taken if {WORTH} times as fast)"
    return Precision("float32", reason)


def shown(config: Config, taken: Precision) -> str:
    """Return the precision that warm-up took, as tables show it."""
    return f"{taken.name} (auto)" if config.run.precision == "auto" else taken.name


def _fastest_step(step: Callable[[], None]) -> float:
    """Return the seconds of the fastest step, which other load on the machine delays least."""
    times = [time.perf_counter()]
    while times[-1] - times[0] < VISIT_S:
        step()
        times.append(time.perf_counter())
    return min(after - before for before, after in zip(times, times[1:], strict=False))


def _free_memory() -> None:
    """Return the memory of discarded networks to the system; the C library would keep what lies between other
    blocks."""
    gc.collect()  # the blocks of a network refer to each other
    getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)  # not in every C library

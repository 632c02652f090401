"""``rn50 profile``: the rate of training, the time of each operator by the framework's own profiler, the
bottleneck, and the gain of a change.

``measure`` runs two jobs, whose ranks call ``as_rank``, and returns a ``Profile``. ``read`` returns an
earlier profile, ``gain`` compares two, ``show`` prints.
"""

import pathlib
from typing import Any, NamedTuple

from rn50 import files, frameworks
from rn50.errors import UserError, excerpt
from rn50.printed import Inline, as_json, of_json, prints
from rn50.progress import counting
from rn50.run.loop import opened
from rn50.settings.config import Config
from rn50.speed import input_pipeline, measured_steps, worker
from rn50.speed.input_pipeline import InputSpeed
from rn50.speed.meter import Meter
from rn50.terminal import WIDEST, Terminal, table

REPORT_FILE = "profile.json"
TOP = 12
"""Number of operators that a terminal shows."""
JOBS = ("rate", "operators")
"""The two jobs: the rate without a profiler, the time of the operators under it."""


class OperatorPerStep(NamedTuple):
    """Calls and time of an operator in a step, on the mean."""

    name: str
    """Name of the operator."""
    calls: float
    """Calls a step."""
    milliseconds: float
    """Milliseconds a step."""


class Profile(NamedTuple):
    """Rate of training and time of its operators, and the gain over an earlier profile."""

    rate: Inline[InputSpeed]
    """Output of ``rn50 bench input --json``."""
    steps: int
    """Number of profiled steps."""
    profiled_step_seconds: float
    """Seconds of a step under the profiler, which slows it down."""
    operators: list[OperatorPerStep]
    """Operators, those with the most time first."""
    gain: str | None = None
    """Sentence on the gain over the profile of `--baseline`; null: there is no baseline."""

    @property
    def idle(self) -> float:
        """Share of the time in which no operator ran. It is too low if operators ran at the same time,
        because their times are added."""
        return max(0.0, 1 - self.milliseconds() / (1e3 * self.profiled_step_seconds))

    def milliseconds(self, name: str | None = None) -> float:
        """Return the milliseconds per step of the operator ``name``; None: of all operators together."""
        return sum(operator.milliseconds for operator in self.operators if name in (None, operator.name))


# What ``--json`` prints: not the number of steps, but the property ``idle``.
prints(Profile, lambda r: (r.rate, r.profiled_step_seconds, r.idle, r.operators, r.gain))


def as_rank(config: Config, what: str, seconds: float, rounds: int, steps: int, folder: str) -> None:
    """Do the job ``what``, one of ``JOBS``, as one rank; rank 0 reports the result. The job "rate" lasts
    about ``seconds`` in ``rounds`` rounds; the job "operators" profiles ``steps`` steps and writes its traces
    into ``folder``."""
    with opened(config) as rank:
        if what == "rate":
            reported = as_json(input_pipeline.measure(config, rank, seconds, rounds))
        else:
            batches = Meter(config, rank).open(config.input_pipeline).batches
            # Three steps to warm up, because ``profile`` makes none before; their result is not used.
            measured_steps.train(rank, batches, 2, 1)
            trace = pathlib.Path(folder, f"trace_{rank.communicator.rank}.json")
            result, operators = measured_steps.profile(rank, batches, steps, trace)
            operators.sort(key=lambda operator: -operator.seconds)
            per_step = [(row.name, row.calls / steps, 1e3 * row.seconds / steps) for row in operators]
            reported = {"steps": steps, "step_seconds": result.seconds / steps, "operators_a_step": per_step}
        rank.communicator.barrier()  # the report ends the job, so all ranks must be done
        if rank.communicator.rank == 0:
            worker.report(reported)


def rate(config: Config, seconds: float, rounds: int, log: pathlib.Path) -> InputSpeed | None:
    """Measure the rate alone, in a job whose log is ``log``; None: the job failed."""
    arguments = {"what": "rate", "seconds": seconds, "rounds": rounds, "steps": 0, "folder": log.parent}
    reported, failure = worker.run("speed.profile", config, log, **arguments)
    return None if failure else _rate(reported)


def measure(config: Config, seconds: float, rounds: int, steps: int, folder: pathlib.Path) -> Profile:
    """Measure the rate in one job and the operators in another, because the profiler slows training down.
    Write ``REPORT_FILE``, traces and logs into ``folder``.

    Raises UserError if one of the jobs fails or ``folder`` cannot be written.
    """
    files.make_folder(folder, worker.REMEDY)
    reported: dict[str, Any] = {}
    duration = {"seconds": seconds, "rounds": rounds, "steps": steps}
    profiler_settings = frameworks.traits(config.run.framework).profiling
    unset = {name: value for name, value in profiler_settings.items() if name not in config.environment}
    with counting("profiling") as progress:
        for done, what in enumerate(JOBS, start=1):
            log = folder / f"{what}.log"
            outcome = worker.run("speed.profile", config, log, what=what, folder=folder, **duration)
            if outcome.failure:
                raise UserError(outcome.failure, None, f"see {log}")
            reported[what] = outcome.reported
            # The rate has been measured; the operators are measured with the profiler's variables in effect.
            # With "auto" the warm-up of the second job might choose another precision.
            precision = str(reported["rate"]["precision"]).split()[0]  # without "(auto)"
            config = config.replaced(**unset, PRECISION=precision)
            progress(done, len(JOBS))
    worker.write_json(folder / REPORT_FILE, reported)
    return _profile(reported)


def read(folder: pathlib.Path) -> Profile:
    """Return the profile that an earlier call has written into ``folder``. Raises UserError if it holds no
    profile."""
    file = folder / REPORT_FILE
    try:
        earlier = _profile(files.read_json(file, remedy="give a folder of `rn50 profile`"))
        # Compute what a comparison will read, so that a missing value raises here.
        gain(earlier, earlier), earlier.idle
        return earlier
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        raise UserError(file, "not what `rn50 profile` writes", "give a folder of `rn50 profile`") from None


def _profile(reported: dict[str, Any]) -> Profile:
    """Return the profile made of ``reported``: job of ``JOBS`` -> what ``as_rank`` reported in it."""
    profiled = reported["operators"]
    operators = [OperatorPerStep(*row) for row in profiled["operators_a_step"]]
    return Profile(_rate(reported["rate"]), profiled["steps"], profiled["step_seconds"], operators)


def _rate(reported: dict[str, Any]) -> InputSpeed:
    """Return the rate made of ``reported``, the JSON that ``as_rank`` reported in the job "rate". The JSON of
    an overlap has no device, so that of the rate is put in."""
    overlap = {**reported["overlap"], "device": reported["device"]}
    return of_json(InputSpeed, {**reported, "overlap": overlap})


def gain(before: Profile, now: Profile) -> str:
    """Return the gain from one profile to another, in words."""
    first, second = (profile.rate.images_per_second.real for profile in (before, now))
    comparison = f"{second.median:,.0f} images/s for {first.median:,.0f} before: "
    comparison += f"{second.median / first.median:.3f} times as fast"
    if second.lowest > first.highest or second.highest < first.lowest:
        return f"{comparison}; no round of the one reached those of the other"
    return f"{comparison}; rounds of both overlap, so it may be chance"


def show(now: Profile, before: Profile | None, folder: pathlib.Path, console: Terminal) -> None:
    """Print rate, operators, bottleneck and gain, a numbered paragraph each. ``before`` is the profile of
    --baseline; None: there is none."""
    real, synthetic = now.rate.images_per_second.real, now.rate.images_per_second.synthetic
    waiting = now.rate.waiting
    console.print(
        f"1 rate, {now.rate.precision}: {real.median:,.0f} images/s ({real.lowest:,.0f} to "
        f"{real.highest:,.0f}) on real data, {synthetic.median:,.0f} on synthetic; reader ratio "
        f"{waiting.reader_ratio:.1%}, reader cost {waiting.reader_cost_s * 1e3:.2f} ms, batch cost "
        f"{waiting.batch_cost_s * 1e3:.2f} ms, ips {waiting.images_per_second:,.0f} images/s"
    )
    steps = f"{now.steps} steps of {now.profiled_step_seconds * 1e3:.1f} ms under the profiler"
    idle = f"no operator ran in {now.idle:.1%} of the time"
    console.print(f"2 profile: {steps}; {idle}; timeline: {folder}/trace_*.json")
    rows = table(("operator", "calls", "ms a step", "share", *(("before",) if before else ())), ("operator",))
    # Cut off long names, because that of a GPU's kernel may have hundreds of characters. 44 characters of a
    # line are left to the other columns.
    rows.columns[0].no_wrap = True
    rows.columns[0].max_width = max(20, min(console.width - 44, WIDEST))
    for name, calls, milliseconds in now.operators[:TOP]:
        row = [name, f"{calls:g}", f"{milliseconds:.2f}", f"{milliseconds / now.milliseconds():.1%}"]
        if before:
            row.append(f"{before.milliseconds(name):.2f}")
        rows.add_row(*row)
    console.print(rows)
    top = now.operators[0]
    console.print(f"3 bottleneck: {now.rate.bottleneck}; of the operators {excerpt(top.name)} takes most")
    if now.gain:
        console.print(f"4 gain: {now.gain}")
    else:
        console.print(f"4 after a change: rn50 profile CONFIG --baseline {folder} -o ANOTHER")

"""``read``: the state of a campaign (several runs of one configuration), from the logs in its folder."""

import pathlib
import re
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from rn50.benchmark import rules, schedule
from rn50.errors import UserError
from rn50.printed import prints
from rn50.results import sidecar
from rn50.results.parse import UNFINISHED, Evaluation, ResultLog, epoch_number, finite, partial_name, read_log
from rn50.results.run import Run
from rn50.settings import header
from rn50.settings.parsers import EPOCHS

WAITING, RUNNING, STOPPED, ENDED = "waiting", "running", "stopped", "ended"


@dataclass(frozen=True)
class RunState:
    """One run."""

    number: int
    """Number of the run, from 1."""
    state: str = WAITING
    """waiting: it has no log; running: its log grows; stopped: it was ended early; ended: its log is
    complete."""
    log: ResultLog | None = None
    epoch: int = 0
    """Last epoch that has ended; 0 before the first."""
    images_per_second: float | None = None
    """Training rate of the last epoch over all ranks."""
    loss: float | None = None
    """Mean training loss of the last epoch."""
    evaluations: tuple[Evaluation, ...] = ()
    """Evaluations so far."""
    reached: Evaluation | None = None
    """The first evaluation at the target."""
    minutes: float | None = None
    """Minutes from run_start to run_stop."""
    epoch_seconds: float | None = None
    """Mean time of an epoch with its share of the evaluations, in seconds."""

    @property
    def reached_target(self) -> bool:
        """True if the run reached the target."""
        return bool(self.reached)

    @property
    def silent_s(self) -> float:
        """Seconds since the last record of the log; 0 if there is no log."""
        return time.time() - self.log.events[-1].time_ms / 1000 if self.log else 0.0


# What ``--json`` prints of a run.
prints(
    RunState,
    lambda r: ({"run": r.number}, r.state, r.epoch, r.images_per_second, r.loss, r.minutes),
    lambda r: (r.reached_target, r.evaluations),
)


class SecondsLeft(NamedTuple):
    """Seconds probably left; None before an epoch has ended."""

    of_run: float | None
    """Seconds until the end of the run in progress."""
    of_campaign: float | None
    """Seconds until the end of the last run."""


@dataclass(frozen=True)
class Campaign:
    """The state of a campaign, from its logs."""

    results: pathlib.Path
    """Folder of the logs."""
    runs: tuple[RunState, ...]
    system: str = ""
    """DGXSYSTEM, empty before the first log."""
    label: str | None = None
    """Text that says in what the runs differ from the benchmark; null: they do not."""
    expected: str = ""
    """Line of the configuration's file on what to expect of a run; empty before a run has begun."""
    curve: Mapping[Annotated[int, "epoch"], tuple[float, float]] = field(default_factory=dict)
    """Lowest and highest top-1 of earlier runs after an epoch."""
    target: str = str(rules.TARGET_ACCURACY)
    """Value of TARGET: an accuracy, or none."""
    evaluated: tuple[int, ...] = ()
    """Epochs after which a run may end; empty before a run has begun."""
    others_s: float | None = 0.0
    """Seconds probably left of a campaign whose runs are made in turn with these; None: not known."""

    @property
    def current(self) -> RunState | None:
        """The run that is going on."""
        return next((run for run in self.runs if run.state == RUNNING), None)

    @property
    def ended(self) -> tuple[RunState, ...]:
        """The runs that are complete."""
        return tuple(run for run in self.runs if run.state == ENDED)

    @property
    def is_over(self) -> bool:
        """True if all runs are complete."""
        return len(self.ended) == len(self.runs)

    @property
    def last_epoch(self) -> int:
        """The epoch after which a run probably ends: the one at which earlier runs reached the target, else
        the last one that is evaluated; 0 before a run has begun."""
        if not self.evaluated:
            return 0
        if self.target == "none":
            return self.evaluated[-1]
        reached = [int(run.reached.epoch) for run in self.ended if run.reached]
        means = {epoch: statistics.mean(top1) for epoch, top1 in self.curve.items()}
        in_curve = [epoch for epoch, mean in means.items() if mean >= rules.TARGET_ACCURACY]
        # Runs of this campaign tell more than the curve.
        usual = statistics.median_high(reached) if reached else min(in_curve, default=0)
        if not usual:  # neither reached the target
            return self.evaluated[-1]
        least = max(usual, self.current.epoch) if self.current else usual
        # The first evaluation at or after the usual epoch, and not before the epoch of the current run.
        return next((epoch for epoch in self.evaluated if epoch >= least), self.evaluated[-1])

    @property
    def left(self) -> "SecondsLeft":
        """Seconds probably left, counted from the end of the last epoch."""
        return self.seconds_left(self.current.epoch if self.current else 0)

    def seconds_left(self, epochs: float) -> "SecondsLeft":
        """Return the seconds probably left after ``epochs`` epochs of the current run, which may be a
        fraction."""
        newest_first = (self.current, *reversed(self.ended))
        times = [run.epoch_seconds for run in newest_first if run and run.epoch_seconds]
        if not times:
            return SecondsLeft(None, None)
        of_run = max(0.0, self.last_epoch - epochs) * times[0] if self.current else 0.0
        minutes = [run.minutes for run in self.ended if run.minutes]
        of_each = statistics.mean(minutes) * 60 if minutes else self.last_epoch * times[0]
        others = sum(run.state in (WAITING, STOPPED) for run in self.runs)  # a stopped run is made again
        of_all = None if self.others_s is None else of_run + of_each * others + self.others_s
        return SecondsLeft(of_run, of_all)


# What ``--json`` prints of a campaign.
prints(
    Campaign,
    lambda r: (r.results, r.system, r.label, r.curve, r.runs),
    lambda r: {"seconds_left_of_run": r.left.of_run, "seconds_left": r.left.of_campaign},
)


def _number_of_runs(results: pathlib.Path) -> int:
    """Return the number of runs of a campaign, as its newest run has saved it; else that of a result."""
    newest = max(results.glob("result_*.json"), key=lambda file: file.stat().st_mtime, default=None)
    runs = str(sidecar.read(newest).get("runs")) if newest else ""
    return int(runs) if re.fullmatch(r"[1-9]\d{0,4}", runs, re.ASCII) else rules.RUNS


def read(results: pathlib.Path, runs: int | None) -> Campaign:
    """Return the state of the campaign of ``runs`` runs whose logs are in the folder ``results``. None: take
    the number of runs that the newest run has saved.

    Raises UserError if a log cannot be read.
    """
    runs = runs or _number_of_runs(results)
    states = tuple(_run(number, _log(results, number)) for number in range(1, runs + 1))
    last = next((state for state in reversed(states) if state.log), None)
    saved = sidecar.read(_log(results, last.number)) if last else {}
    if not (last and last.log and saved):  # nothing tells the configuration of the campaign
        return Campaign(results, states)
    run = Run(last.log, saved)
    section = sidecar.section(saved, "run")
    target = str(section.get("target", rules.TARGET_ACCURACY))
    return Campaign(
        results,
        states,
        system=str(section.get("system", "")),
        label=run.label,
        expected=run.header.get("expected", ""),
        curve=header.curve(run.header),
        target=target,
        evaluated=_evaluated(sidecar.section(saved, "hyperparameters"), target),
    )


def _log(results: pathlib.Path, number: int) -> pathlib.Path:
    """Return the path of the log of run ``number``. Runs are counted from 1, and their files from 0."""
    return results / f"result_{number - 1}.txt"


def _run(number: int, file: pathlib.Path) -> RunState:
    """Return the state of run ``number``. ``file`` is its log, which has a partial name while it grows."""
    path = next((path for path in (file, partial_name(file)) if path.exists()), None)
    if path is None:
        return RunState(number)
    state = ENDED if path == file else RUNNING
    try:
        log = read_log(path)
    except UserError:
        if state == ENDED:
            raise
        return RunState(number, RUNNING)  # its first record is being written
    # A run that was ended early has stopped its clock, but its log keeps the partial name.
    if state == RUNNING and log.run_stop_ms is not None and log.status != UNFINISHED:
        state = STOPPED
    stops = log.by_key.get("epoch_stop", ())
    # A resumed run does not begin with epoch 1: its epochs are counted only if the last has no number.
    epoch = epoch_number(stops[-1].metadata.get("epoch_num")) if stops else None
    # rn50 logs {"throughput": ..., "train_loss": ...} after each epoch.
    logged = [event.value for event in log.by_key.get("tracked_stats", ())]
    stats = logged[-1] if logged and isinstance(logged[-1], dict) else {}
    begin, end = log.run_start_ms, log.events[-1].time_ms
    seconds = (end - begin) / 1000 / len(stops) if stops and begin is not None else None
    return RunState(
        number,
        state,
        log,
        epoch=int(epoch or len(stops)),
        images_per_second=finite(stats.get("throughput")),
        loss=finite(stats.get("train_loss")),
        minutes=log.minutes,
        evaluations=log.evaluations,
        reached=log.reached,
        epoch_seconds=seconds,
    )


def _evaluated(h: Mapping[str, Any], target: str) -> tuple[int, ...]:
    """Return the epochs after which a run with the saved hyperparameters ``h`` evaluates. Empty: ``h`` lacks
    one of the three numbers, or has an impossible one."""
    values = [h.get(name) for name in ("num_epochs", "eval_offset", "eval_period")]
    # An offset of 0 is common. A period of 0 is impossible, and refused below.
    numbers = [value for value in values if isinstance(value, int) and (value == 0 or EPOCHS.holds(value))]
    if len(numbers) < len(values) or not numbers[2]:
        return ()
    return tuple(schedule.evaluation_epochs(numbers[0], numbers[1], numbers[2], target))

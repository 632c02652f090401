"""Compute accuracy over time, throughput of each epoch and the parts of a run's time from the times in its
log.

The source is the intervals that every framework logs (``epoch_start/stop``, ``eval_start/stop``), so that the
figures of any two results are comparable. Logs without epochs give them by blocks of epochs
(``block_start/stop``).
"""

import bisect
import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rn50.gathered import gathered
from rn50.results.parse import ResultLog, epoch_number, finite

Interval = tuple[int, int]
"""Begin and end in ms since the epoch."""


@dataclass(frozen=True)
class RunTimes:
    """Parts of a run's time, in seconds, with their names on displays; those from ``first_epoch`` on add up
    to the time of the run.

    ``blocks`` is the training of a log without epochs, including evaluations that it does not log separately.
    ``gaps`` is the time outside all intervals.
    """

    initialisation: float | None
    """Initialisation, before the clock."""
    first_epoch: float
    """First epoch."""
    later_epochs: float
    """Training after it."""
    evaluation: float
    """Evaluation."""
    blocks: float
    """Blocks of epochs."""
    gaps: float
    """Gaps."""


@dataclass(frozen=True)
class Throughput:
    """(epoch, images/s) of every epoch; with ``in_blocks``, of every block up to that epoch."""

    epochs: tuple[tuple[float, float], ...]
    in_blocks: bool


def accuracies(log: ResultLog) -> list[tuple[float, float, float]]:
    """Return (epoch, minutes after run_start, top-1) of each evaluation; none where the clock never
    started."""
    start = log.run_start_ms
    evaluations = log.evaluations if start is not None else ()
    return [(e.epoch, (e.time_ms - (start or 0)) / 60_000, e.accuracy) for e in evaluations]


def run_times(log: ResultLog) -> RunTimes | None:
    """Return the parts of a run's time; None for a run whose clock did not both start and stop."""
    if log.run_start_ms is None or log.run_stop_ms is None:
        return None
    begin, end = log.run_start_ms, log.run_stop_ms
    init = log.first("init_start")
    intervals, in_blocks = _training(log)
    evaluations = list(_intervals(log, "eval").values())
    evaluating = _covered_by(evaluations)(begin, end)

    def trained(training: Iterable[Interval]) -> int:
        return _covered_by([*training, *evaluations])(begin, end) - evaluating

    whole = trained(intervals.values())
    first = trained([intervals[min(intervals)]]) if intervals and not in_blocks else 0
    return RunTimes(
        initialisation=(begin - init.time_ms) / 1000 if init and init.time_ms <= begin else None,
        first_epoch=first / 1000,
        later_epochs=0.0 if in_blocks else (whole - first) / 1000,
        evaluation=evaluating / 1000,
        blocks=whole / 1000 if in_blocks else 0.0,
        gaps=(end - begin - evaluating - whole) / 1000,
    )


def throughput(log: ResultLog) -> Throughput:
    """Return the images per second: training samples over the time of an epoch or block, less the evaluations
    within it."""
    samples = log.epoch_samples
    if not samples:
        return Throughput((), False)
    intervals, in_blocks = _training(log)
    evaluated_ms = _covered_by(_intervals(log, "eval").values())
    counts: dict[Any, Any] = dict.fromkeys(intervals, 1)
    for event in log.by_key.get("block_start", ()) if in_blocks else ():
        if epoch_number(event.metadata.get("first_epoch_num")) is not None:
            counts[event.metadata["first_epoch_num"]] = event.metadata.get("epoch_count")
    rates = []
    for number, (first, last) in sorted(intervals.items()):
        trained_ms = last - first - evaluated_ms(first, last)
        if epoch_number(counts[number]) and trained_ms > 0:
            rates.append((number + counts[number] - 1, counts[number] * samples / trained_ms * 1000))
    return Throughput(tuple(rates), in_blocks)


def without_time(log: ResultLog) -> list[float]:
    """Return every epoch, or block in a log without epochs, that stops in the millisecond of its start."""
    return [number for number, (first, last) in _training(log)[0].items() if first == last]


def training_rate(logs: Sequence[ResultLog]) -> float | None:
    """Return the images/s in training: the median over the epochs or blocks of all ``logs``, without the
    first of each, which warms up. A log that has only one gives that one."""
    per_log = [throughput(log).epochs for log in logs]
    rates = [rate for epochs in per_log for _, rate in epochs[1:] or epochs]
    return statistics.median(rates) if rates else None


def losses(log: ResultLog) -> list[tuple[float, float]]:
    """Return (epoch, mean training loss) of every epoch that logs it, as our runs do."""
    points = []
    for event in log.by_key.get("tracked_stats", ()):
        epoch = epoch_number(event.metadata.get("step"))
        loss = finite(event.value.get("train_loss")) if isinstance(event.value, dict) else None
        if epoch is not None and loss is not None:
            points.append((epoch, loss))
    return points


def _training(log: ResultLog) -> tuple[dict[float, Interval], bool]:
    """Return the intervals of the epochs; in a log without epochs those of its blocks, and True."""
    epochs = _intervals(log, "epoch")
    return epochs or _intervals(log, "block"), not epochs


def _intervals(log: ResultLog, name: str) -> dict[float, Interval]:
    """Return the intervals ``<name>_start`` to ``<name>_stop`` by epoch, of a block its first. Where several
    ranks log one, the first start and the last stop count. An interval that is not closed is left out."""

    def times(end: str) -> dict[float, list[int]]:
        key = "first_epoch_num" if name == "block" else "epoch_num"
        events = log.by_key.get(f"{name}_{end}", ())
        numbered: Any = ((event.metadata.get(key), event.time_ms) for event in events)
        return gathered((number, at) for number, at in numbered if epoch_number(number) is not None)

    starts, stops = times("start"), times("stop")
    return {number: (min(first), max(stops[number])) for number, first in starts.items() if number in stops}


def _covered_by(intervals: Iterable[Interval]) -> Callable[[int, int], int]:
    """Return a function from two times to the milliseconds between them that ``intervals`` cover, in
    logarithmic time; overlaps count once."""
    merged: list[Interval] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        elif first < last:
            merged.append((first, last))
    firsts = [first for first, _ in merged]
    before = list(itertools.accumulate((last - first for first, last in merged), initial=0))

    def until(time_ms: int) -> int:
        begun = bisect.bisect_right(firsts, time_ms)
        return before[begun] - (max(0, merged[begun - 1][1] - time_ms) if begun else 0)

    return lambda begin, end: until(end) - until(begin)

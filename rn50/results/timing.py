"""Compute accuracy over time, throughput of each epoch and the parts of a run's time from the times in its
log.

The source is the intervals that every framework logs (``epoch_start/stop``, ``eval_start/stop``), so that the
figures of any two results are comparable. Logs without epochs give them by blocks of epochs
(``block_start/stop``).
"""

import bisect
import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rn50.results.parse import ResultLog, epoch_number, finite

Interval = tuple[int, int]
"""Begin and end in ms since the epoch."""


@dataclass(frozen=True)
class AccuracyPoint:
    """Top-1 ``accuracy`` as a fraction after ``epoch`` epochs, ``minutes`` after ``run_start``."""

    epoch: float
    minutes: float
    accuracy: float


@dataclass(frozen=True)
class RunTimes:
    """Parts of a run's time, in seconds; those from ``first_epoch`` on add up to the time of the run.

    ``initialisation`` is everything before the clock. ``blocks`` is the training of a log without epochs,
    including evaluations that it does not log separately. ``gaps`` is the time outside all intervals.
    """

    initialisation: float | None
    first_epoch: float
    later_epochs: float
    evaluation: float
    blocks: float
    gaps: float


@dataclass(frozen=True)
class Throughput:
    """(epoch, images/s) of every epoch; with ``in_blocks``, of every block up to that epoch."""

    epochs: tuple[tuple[float, float], ...]
    in_blocks: bool


def accuracy_points(log: ResultLog) -> list[AccuracyPoint]:
    """Return the evaluations with their times; none where the clock never started."""
    start = log.run_start_ms
    if start is None:
        return []
    return [AccuracyPoint(e.epoch, (e.time_ms - start) / 60_000, e.accuracy) for e in log.evaluations]


def run_times(log: ResultLog) -> RunTimes | None:
    """Return the parts of a run's time; None for a run whose clock did not both start and stop."""
    if log.run_start_ms is None or log.run_stop_ms is None:
        return None
    begin, end = log.run_start_ms, log.run_stop_ms
    init = log.first("init_start")

    def clipped(intervals: dict[float, Interval]) -> dict[float, Interval]:
        inside = {number: (max(begin, first), min(end, last)) for number, (first, last) in intervals.items()}
        return {number: (first, last) for number, (first, last) in inside.items() if first < last}

    epochs = clipped(_intervals(log, "epoch", "epoch_num"))
    evaluations = list(clipped(_intervals(log, "eval", "epoch_num")).values())
    blocks = list(clipped(_intervals(log, "block", "first_epoch_num")).values()) if not epochs else []
    evaluating = _length(evaluations)
    first = _length([epochs[min(epochs)], *evaluations]) - evaluating if epochs else 0
    trained = _length([*epochs.values(), *evaluations]) - evaluating
    in_blocks = _length([*blocks, *evaluations]) - evaluating
    return RunTimes(
        initialisation=(begin - init.time_ms) / 1000 if init and init.time_ms <= begin else None,
        first_epoch=first / 1000,
        later_epochs=(trained - first) / 1000,
        evaluation=evaluating / 1000,
        blocks=in_blocks / 1000,
        gaps=(end - begin - evaluating - trained - in_blocks) / 1000,
    )


def throughput(log: ResultLog) -> Throughput:
    """Return the images per second: training samples over the time of an epoch or block, less the evaluations
    within it."""
    samples = log.epoch_samples
    if not samples:
        return Throughput((), False)
    epochs = _intervals(log, "epoch", "epoch_num")
    evaluated_ms = _covered_by(list(_intervals(log, "eval", "epoch_num").values()))

    def trained_ms(interval: Interval) -> int:
        return interval[1] - interval[0] - evaluated_ms(interval)

    # By the number of its first epoch: an interval, and the number of its epochs.
    intervals = epochs or _intervals(log, "block", "first_epoch_num")
    counts: dict[Any, Any] = dict.fromkeys(epochs, 1)
    for event in log.by_key.get("block_start", ()) if not epochs else ():
        if epoch_number(event.metadata.get("first_epoch_num")) is not None:
            counts[event.metadata["first_epoch_num"]] = event.metadata.get("epoch_count")
    rates = (
        (first + counts[first] - 1, counts[first] * samples / trained_ms(interval) * 1000)
        for first, interval in sorted(intervals.items())
        if epoch_number(counts.get(first)) and trained_ms(interval) > 0
    )
    return Throughput(tuple(rates), not epochs)


def without_time(log: ResultLog) -> list[float]:
    """Return every epoch, or block in a log without epochs, that stops in the millisecond of its start."""
    closed = _closed(log, "epoch", "epoch_num")
    if "epoch_start" not in log.by_key:
        closed = _closed(log, "block", "first_epoch_num")
    return [number for number, (first, last) in closed.items() if first == last]


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


def _intervals(log: ResultLog, name: str, numbered_by: str) -> dict[float, Interval]:
    """Return the intervals of ``_closed`` that end after their start."""
    closed = _closed(log, name, numbered_by)
    return {number: (first, last) for number, (first, last) in closed.items() if first < last}


def _closed(log: ResultLog, name: str, numbered_by: str) -> dict[float, Interval]:
    """Return the intervals ``<name>_start`` to ``<name>_stop`` by number. Where several ranks log one, the
    first start and the last stop count. An interval that is not closed is left out."""

    def times(end: str) -> dict[float, list[int]]:
        by_number: dict[float, list[int]] = {}
        for event in log.by_key.get(f"{name}_{end}", ()):
            number: Any = event.metadata.get(numbered_by)
            if epoch_number(number) is not None:
                by_number.setdefault(number, []).append(event.time_ms)
        return by_number

    starts, stops = times("start"), times("stop")
    return {number: (min(first), max(stops[number])) for number, first in starts.items() if number in stops}


def _length(intervals: Sequence[Interval]) -> int:
    """Return the milliseconds that the intervals cover together; overlaps count once."""
    return sum(last - first for first, last in _merged(intervals))


def _merged(intervals: Sequence[Interval]) -> list[Interval]:
    """Return sorted intervals that cover the same time without overlaps."""
    merged: list[Interval] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged


def _covered_by(intervals: Sequence[Interval]) -> Callable[[Interval], int]:
    """Return a function from an interval to the milliseconds of it that ``intervals`` cover, in logarithmic
    time."""
    merged = _merged(intervals)
    firsts = [first for first, _ in merged]
    before = list(itertools.accumulate((last - first for first, last in merged), initial=0))

    def until(time_ms: int) -> int:
        begun = bisect.bisect_right(firsts, time_ms)
        return before[begun] - (max(0, merged[begun - 1][1] - time_ms) if begun else 0)

    return lambda interval: until(interval[1]) - until(interval[0])

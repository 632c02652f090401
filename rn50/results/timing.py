"""Compute accuracy over time, throughput of each epoch and the parts of a run's time from the times in its
log.

The source are the intervals that the programs of all submitters log (``epoch_start/stop``,
``eval_start/stop``), so that the figures of any two results are comparable. In a log without epochs, the
intervals of blocks of epochs (``block_start/stop``) take their place.
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
"""Begin and end in milliseconds since 1970 (UTC)."""


@dataclass(frozen=True)
class RunTimes:
    """Parts of a run's time, in seconds. All but the initialisation add up to the time from run_start to
    run_stop. The docstring of a field is its name on the report.

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
    """Training throughput over the course of a run."""

    epochs: tuple[tuple[float, float], ...]
    """(epoch, images/s) of every epoch; or (last epoch, images/s) of every block."""
    in_blocks: bool
    """True if the log has blocks of epochs in place of epochs."""


def accuracies(log: ResultLog) -> list[tuple[float, float, float]]:
    """Return (epoch, minutes after run_start, top-1) of each evaluation; empty if the clock never started."""
    start = log.run_start_ms
    return [(e.epoch, (e.time_ms - start) / 60_000, e.accuracy) for e in log.evaluations if start is not None]


def run_times(log: ResultLog) -> RunTimes | None:
    """Return the parts of a run's time; None if run_start or run_stop is missing."""
    if log.run_start_ms is None or log.run_stop_ms is None:
        return None
    begin, end = log.run_start_ms, log.run_stop_ms
    init = log.first("init_start")
    intervals, in_blocks = _training(log)
    evaluations = list(_intervals(log, "eval").values())
    evaluating = _covered_by(evaluations)(begin, end)

    def training_ms(training: Iterable[Interval]) -> int:
        """Return the milliseconds of training intervals without the evaluations in them."""
        return _covered_by([*training, *evaluations])(begin, end) - evaluating

    training = training_ms(intervals.values())
    first = training_ms([intervals[min(intervals)]]) if intervals and not in_blocks else 0
    return RunTimes(
        initialisation=(begin - init.time_ms) / 1000 if init and init.time_ms <= begin else None,
        first_epoch=first / 1000,
        later_epochs=0.0 if in_blocks else (training - first) / 1000,
        evaluation=evaluating / 1000,
        blocks=training / 1000 if in_blocks else 0.0,
        gaps=(end - begin - evaluating - training) / 1000,
    )


def throughput(log: ResultLog) -> Throughput:
    """Return the throughput of each epoch or block: its training samples divided by its time, from which the
    evaluations within it are subtracted."""
    samples = log.epoch_samples
    if not samples:
        return Throughput((), False)
    intervals, in_blocks = _training(log)
    evaluated_ms = _covered_by(_intervals(log, "eval").values())
    # First epoch of an interval -> number of its epochs: 1, or the ``epoch_count`` that a log states for a
    # block. A block whose count is no number of epochs is left out below.
    epoch_counts: dict[Any, Any] = dict.fromkeys(intervals, 1)
    block_starts = log.by_key.get("block_start", ()) if in_blocks else ()
    for event in block_starts:
        if epoch_number(event.metadata.get("first_epoch_num")) is not None:
            epoch_counts[event.metadata["first_epoch_num"]] = event.metadata.get("epoch_count")
    rates = []
    for number, (begin, end) in sorted(intervals.items()):
        count = epoch_counts[number]
        trained_ms = end - begin - evaluated_ms(begin, end)
        if epoch_number(count) and trained_ms > 0:
            rates.append((number + count - 1, count * samples / trained_ms * 1000))  # (last epoch, images/s)
    return Throughput(tuple(rates), in_blocks)


def without_time(log: ResultLog) -> list[float]:
    """Return the numbers of the epochs that stop in the millisecond in which they start; in a log without
    epochs, those of the blocks."""
    return [number for number, (begin, end) in _training(log)[0].items() if begin == end]


def training_rate(logs: Sequence[ResultLog]) -> float | None:
    """Return the images/s in training: the median over the epochs or blocks of all ``logs``. The first of
    each log, which warms up, counts only if the log has no other. Return None without any."""
    per_log = [throughput(log).epochs for log in logs]
    rates = [rate for epochs in per_log for _, rate in epochs[1:] or epochs]
    return statistics.median(rates) if rates else None


def losses(log: ResultLog) -> list[tuple[float, float]]:
    """Return (epoch, mean training loss) of every epoch whose ``tracked_stats`` have a ``train_loss``, as
    those of our runs have."""
    points = []
    for event in log.by_key.get("tracked_stats", ()):
        epoch = epoch_number(event.metadata.get("step"))
        loss = finite(event.value.get("train_loss")) if isinstance(event.value, dict) else None
        if epoch is not None and loss is not None:
            points.append((epoch, loss))
    return points


def _training(log: ResultLog) -> tuple[dict[float, Interval], bool]:
    """Return (epoch -> its interval, False), or, for a log without epochs, (first epoch of a block -> the
    block's interval, True)."""
    epochs = _intervals(log, "epoch")
    return epochs or _intervals(log, "block"), not epochs


def _intervals(log: ResultLog, name: str) -> dict[float, Interval]:
    """Return the intervals from ``<name>_start`` to ``<name>_stop`` by the number of their epoch, for blocks
    by that of their first epoch. ``name`` is epoch, block or eval. If several ranks log an interval, the
    first start and the last stop count. An interval without start or stop is left out."""

    def times(end: str) -> dict[float, list[int]]:
        """Return the times in ms of the records ``<name>_<end>``, by number."""
        key = "first_epoch_num" if name == "block" else "epoch_num"
        events = log.by_key.get(f"{name}_{end}", ())
        numbered: Any = ((event.metadata.get(key), event.time_ms) for event in events)
        return gathered((number, time_ms) for number, time_ms in numbered if epoch_number(number) is not None)

    starts, stops = times("start"), times("stop")
    return {number: (min(first), max(stops[number])) for number, first in starts.items() if number in stops}


def _covered_by(intervals: Iterable[Interval]) -> Callable[[int, int], int]:
    """Return a function of two times, begin and end, that returns how many of the milliseconds between them
    the ``intervals`` cover. Overlaps count once. The function takes logarithmic time."""
    merged: list[Interval] = []
    # Merge intervals that overlap or touch; drop empty ones.
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif begin < end:
            merged.append((begin, end))
    begins = [begin for begin, _ in merged]
    # totals[i]: milliseconds that the first i intervals cover.
    totals = list(itertools.accumulate((end - begin for begin, end in merged), initial=0))

    def covered_until(time_ms: int) -> int:
        """Return how many of the milliseconds before a time are covered."""
        begun = bisect.bisect_right(begins, time_ms)  # the number of intervals that begin until then
        # The last of them may go on beyond this time.
        return totals[begun] - (max(0, merged[begun - 1][1] - time_ms) if begun else 0)

    return lambda begin, end: covered_until(end) - covered_until(begin)

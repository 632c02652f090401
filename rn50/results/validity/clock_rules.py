"""Check the times of a log: its time stamps, their order, the intervals of the run and its end.

``timeline_rules`` checks that a run can be as fast as these times say.

Source: MLPerf Training rules, sections "Run Results" and "Quality measure"; the logging specification of
mlperf_logging, in which ``time_ms`` counts milliseconds since the epoch.
"""

import itertools
from collections.abc import Iterator, Sequence

from rn50.results.parse import Event, ResultLog, epoch_number
from rn50.results.validity.findings import ERROR, WARNING, Finding
from rn50.results.validity.log_rules import finding

CLOCK_SKEW_MS = 1000
"""Tolerance of the order of times: where several ranks log, their records are a few ms apart."""
EARLIEST_MS, LATEST_MS = 1_514_764_800_000, 4_102_444_800_000
"""Bounds of times: the start of 2018, the year of the first MLPerf round, and that of 2100."""
COURSE: tuple[str, ...] = ("run_start", "block_start", "epoch_start", "epoch_stop", "eval_start")
COURSE += ("eval_accuracy", "eval_stop", "block_stop", "run_stop")
"""Keys of the clock events, whose times make the course of a run."""
_TRAINING = ("block_start", "epoch_start", "eval_start")
"""Keys that must not be logged before run_start."""


def check(log: ResultLog) -> Iterator[Finding]:
    """Yield every finding on the times of a log."""
    for checker in (_stamps, _order, _before, _intervals, _after, _status):
        yield from checker(log)


def _stamps(log: ResultLog) -> Iterator[Finding]:
    """Yield a finding on times that are out of bounds."""
    if wrong := [event for event in log.events if not EARLIEST_MS <= event.time_ms <= LATEST_MS]:
        rule = "time stamps are milliseconds since the epoch"
        message = f"time_ms of {wrong[0].key} is {wrong[0].time_ms:,}, no time from 2018 on ({len(wrong)} of "
        message += f"{len(log.events)} are none)"
        remedy = "submit the log as mlperf_logging.mllog writes it"
        severity = ERROR if any(event.key in COURSE for event in wrong) else WARNING
        yield finding(log, wrong[0].line, rule, message, remedy, severity)


def _order(log: ResultLog) -> Iterator[Finding]:
    """Yield a finding on records that are earlier than a record above them."""
    rule = "the records stand in the order of their times"
    remedy = "submit the log as the run wrote it, from one machine's clock"
    late_clock_events = list(_late([event for event in log.events if event.key in COURSE]))
    # Records other than clock events may come from another program, so they only cause a warning.
    severity = ERROR if late_clock_events else WARNING
    if pairs := late_clock_events or list(_late(log.events)):
        event, before = pairs[0]
        seconds = (before.time_ms - event.time_ms) / 1000
        message = f"{event.key} is {seconds:,.1f} s earlier than {before.key} of line {before.line} "
        message += f"({len(pairs)} records are earlier than one above them)"
        yield finding(log, event.line, rule, message, remedy, severity)


def _late(events: Sequence[Event]) -> Iterator[tuple[Event, Event]]:
    """Yield (event, latest event above it) for the events that are earlier than an event above them."""
    latest: Event | None = None
    for event in events:
        if latest is not None and event.time_ms < latest.time_ms - CLOCK_SKEW_MS:
            yield event, latest
        elif latest is None or event.time_ms > latest.time_ms:
            latest = event


def _before(log: ResultLog) -> Iterator[Finding]:
    """Yield findings on records before run_start that belong behind it."""
    start = log.first("run_start")
    if start is None:
        return
    rule = "the clock starts before any part of the system touches the data set"
    before = log.events[: log.events.index(start)]
    if trained := next((event for event in before if event.key in _TRAINING), None):
        message = f"{trained.key} comes before run_start"
        yield finding(log, trained.line, rule, message, "start the clock before the first epoch")
    samples = log.first("train_samples", "eval_samples")
    if samples and samples.line < start.line:
        message = f"{samples.key} comes before run_start, as if the data set had been opened"
        remedy = "open the data set, and log its size, after run_start"
        yield finding(log, samples.line, rule, message, remedy, WARNING)


def _intervals(log: ResultLog) -> Iterator[Finding]:
    """Yield findings on intervals of blocks, epochs and evaluations that are incomplete or out of order."""
    rule = "every block, epoch and evaluation starts and stops once, in order"
    remedy = "log each start and each stop once, on rank 0 only, and submit the file as it was written"
    for event, message in (*_unpaired(log), *_unordered(log)):
        yield finding(log, event.line, rule, message, remedy)


def _unpaired(log: ResultLog) -> Iterator[tuple[Event, str]]:
    """Yield (event, fault) for each start without its stop and each stop without its start."""
    # Blocks are matched by order alone, because one published system numbers their stops by the last epoch.
    for name, number in (("block", None), ("epoch", "epoch_num"), ("eval", "epoch_num")):
        start, stop = f"{name}_start", f"{name}_stop"
        events = [event for event in log.events if event.key in (start, stop)]
        for before, event in zip([None, *events], events, strict=False):
            # A start that the record before is, and that this record should stop.
            opened = before if before and before.key == start else None
            if event.key == start and opened:
                yield event, f"{start} comes again before a {stop} for that of line {opened.line}"
            elif event.key == stop and opened is None:
                yield event, f"{stop} has no {start} before it"
            elif opened and number and opened.metadata.get(number) != event.metadata.get(number):
                message = f"{stop} of epoch {event.metadata.get(number)} follows {start} of epoch "
                yield event, f"{message}{opened.metadata.get(number)} in line {opened.line}"
        # A run may stop in the middle of an epoch.
        if events and events[-1].key == start and log.status == "success" and name != "epoch":
            yield events[-1], f"{start} has no {stop}"


def _unordered(log: ResultLog) -> Iterator[tuple[Event, str]]:
    """Yield (event, fault) for each epoch whose number is not one more than that of the epoch before, and
    each evaluation whose number is not greater than that of the evaluation before."""
    for key in ("epoch_start", "eval_accuracy"):
        for before, event in itertools.pairwise(log.by_key.get(key, ())):
            last, epoch = (epoch_number(record.metadata.get("epoch_num")) for record in (before, event))
            if last is not None and epoch is not None:
                step = epoch - last
                if step < 1 or (step > 1 and key == "epoch_start"):
                    yield event, f"{key} of epoch {epoch} follows that of epoch {last} in line {before.line}"


def _after(log: ResultLog) -> Iterator[Finding]:
    """Yield a finding on records after run_stop."""
    stop = log.first("run_stop")
    if stop is None:
        return
    rule = "run_stop is the end of the run"
    after = log.events[log.events.index(stop) + 1 :]
    if clock_events := [event for event in after if event.key in COURSE]:
        message = f"{clock_events[0].key} comes after run_stop ({len(clock_events)} events of the run do)"
        remedy = "stop the clock when the last evaluation and its block have ended, and log nothing of the "
        yield finding(log, clock_events[0].line, rule, message, f"{remedy}run behind it")
    elif after:
        message, remedy = f"{after[0].key} comes after run_stop", "log it before the clock stops"
        yield finding(log, after[0].line, rule, message, remedy, WARNING)


def _status(log: ResultLog) -> Iterator[Finding]:
    """Yield findings on a status that contradicts the accuracies, and on a run that went on at its target."""
    stop = log.first("run_stop")
    if stop is None or not isinstance(stop.metadata.get("status"), str):
        return  # the format is broken, which another finding reports
    rule = "run_stop has the status success where the target is reached, else aborted"
    status, target, reached = stop.metadata["status"], log.target, log.reached
    message, severity = "", ERROR
    if status == "success" and reached is None:
        message = f"the status is success, but no evaluation reaches {target}"
        remedy = "stop with success only after an evaluation at the target; this run did not converge"
    elif status == "aborted" and reached is not None:
        message = f"the status is aborted, but epoch {reached.epoch:g} reached {target}"
        remedy = "stop with success at the first evaluation at the target (>=, not >)"
    elif status not in ("success", "aborted"):
        message, remedy = f"the status of run_stop is {status!r}", "log success or aborted"
        severity = ERROR if reached else WARNING  # a run that missed the target is no success in any case
    if message:
        yield finding(log, stop.line, rule, message, remedy, severity)
    later = [e.epoch for e in log.evaluations if reached and e.epoch > reached.epoch]
    if reached and later:
        rule = "a run stops at its first evaluation at the target"
        message = f"the run goes on to epoch {later[-1]:g} after epoch {reached.epoch:g} reached {target}"
        yield finding(log, stop.line, rule, message, "stop the clock at the first evaluation at the target")

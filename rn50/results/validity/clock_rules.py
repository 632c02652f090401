"""Check the times of a log: time stamps, their order, the intervals of the run and its end.
``timeline_rules`` checks that they are possible.

Source: MLPerf Training rules, sections "Run Results" and "Quality measure"; the logging specification of
mlperf_logging, in which ``time_ms`` counts milliseconds since the epoch.
"""

from collections.abc import Iterator, Sequence

from rn50.benchmark import rules
from rn50.results.parse import Event, ResultLog, epoch_number
from rn50.results.validity.findings import ERROR, WARNING, Finding
from rn50.results.validity.log_rules import finding

CLOCK_SKEW_MS = 1000
"""Tolerance of the order of times, because ranks that log for themselves do so a few ms apart."""
EARLIEST_MS, LATEST_MS = 1_514_764_800_000, 4_102_444_800_000
"""Start of the years 2018, in which MLPerf had its first round, and 2100."""
COURSE = (
    "run_start",
    "block_start",
    "epoch_start",
    "epoch_stop",
    "eval_start",
    "eval_accuracy",
    "eval_stop",
    "block_stop",
    "run_stop",
)
"""Keys of the clock events."""


def check(log: ResultLog) -> Iterator[Finding]:
    """Yield every finding on the times of a log."""
    for checker in (_stamps, _order, _before, _intervals, _after, _status):
        yield from checker(log)


def _stamps(log: ResultLog) -> Iterator[Finding]:
    odd = [event for event in log.events if not EARLIEST_MS <= event.time_ms <= LATEST_MS]
    if odd:
        severity = ERROR if any(event.key in COURSE for event in odd) else WARNING
        yield finding(
            log,
            odd[0].line,
            "time stamps are milliseconds since the epoch",
            f"time_ms of {odd[0].key} is {odd[0].time_ms:,}, no time from 2018 on ({len(odd)} of "
            f"{len(log.events)} are none)",
            "submit the log as mlperf_logging.mllog writes it",
            severity,
        )


def _order(log: ResultLog) -> Iterator[Finding]:
    rule = "the records stand in the order of their times"
    course, late = _late([event for event in log.events if event.key in COURSE]), _late(log.events)
    # Records other than clock events may come from another program, so they only cause a warning.
    for pairs, severity in ((course, ERROR), (late if not course else [], WARNING)):
        if pairs:
            event, before = pairs[0]
            early = (
                f"{event.key} is {(before.time_ms - event.time_ms) / 1000:,.1f} s earlier than {before.key}"
            )
            yield finding(
                log,
                event.line,
                rule,
                f"{early} of line {before.line} ({len(pairs)} records are earlier than one above them)",
                "submit the log as the run wrote it, from one machine's clock",
                severity,
            )


def _late(events: Sequence[Event]) -> list[tuple[Event, Event]]:
    """Return the events that are earlier than one above them, each with the latest event above."""
    latest: Event | None = None
    late: list[tuple[Event, Event]] = []
    for event in events:
        if latest is not None and event.time_ms < latest.time_ms - CLOCK_SKEW_MS:
            late.append((event, latest))
        elif latest is None or event.time_ms > latest.time_ms:
            latest = event
    return late


def _before(log: ResultLog) -> Iterator[Finding]:
    start = log.first("run_start")
    if start is None:
        return
    rule = "the clock starts before any part of the system touches the data set"
    trained = log.first_of("block_start", "epoch_start", "eval_start")
    if trained and log.events.index(trained) < log.events.index(start):
        yield finding(
            log,
            trained.line,
            rule,
            f"{trained.key} comes before run_start",
            "start the clock before the first epoch",
        )
    samples = log.first("train_samples", "eval_samples")
    if samples and samples.line < start.line:
        yield finding(
            log,
            samples.line,
            rule,
            f"{samples.key} comes before run_start, as if the data set had been opened",
            "open the data set, and log its size, after run_start",
            WARNING,
        )


def _intervals(log: ResultLog) -> Iterator[Finding]:
    # Blocks are matched by order alone, because one published system numbers their stops by the last epoch.
    for name, number in (("block", None), ("epoch", "epoch_num"), ("eval", "epoch_num")):
        opened: Event | None = None
        for event in log.events:
            if event.key == f"{name}_start":
                if opened:
                    yield _interval(
                        log,
                        event,
                        f"{name}_start comes again before a {name}_stop for that of line {opened.line}",
                    )
                opened = event
            elif event.key == f"{name}_stop":
                if opened is None:
                    yield _interval(log, event, f"{name}_stop has no {name}_start before it")
                elif number and opened.metadata.get(number) != event.metadata.get(number):
                    began = f"{name}_start of epoch {opened.metadata.get(number)} in line {opened.line}"
                    yield _interval(
                        log, event, f"{name}_stop of epoch {event.metadata.get(number)} follows {began}"
                    )
                opened = None
        if opened and log.status == "success" and name != "epoch":  # a run may stop in the middle of an epoch
            yield _interval(log, opened, f"{name}_start has no {name}_stop")
    for key in ("epoch_start", "eval_accuracy"):
        before: Event | None = None
        for event in log.by_key.get(key, ()):
            step = _step(before, event)
            if step is not None and (step < 1 or (step > 1 and key == "epoch_start")):
                last = f"epoch {before.metadata['epoch_num']} in line {before.line}" if before else ""
                yield _interval(
                    log, event, f"{key} of epoch {event.metadata['epoch_num']} follows that of {last}"
                )
            before = event


def _step(before: Event | None, event: Event) -> float | None:
    """Return the epochs from one event to the next; None where one of them has no epoch number."""
    at, last = (
        epoch_number(record.metadata.get("epoch_num")) if record else None for record in (event, before)
    )
    return None if at is None or last is None else at - last


def _interval(log: ResultLog, event: Event, message: str) -> Finding:
    return finding(
        log,
        event.line,
        "every block, epoch and evaluation starts and stops once, in order",
        message,
        "log each start and each stop once, on rank 0 only, and submit the file as it was written",
    )


def _after(log: ResultLog) -> Iterator[Finding]:
    stop = log.first("run_stop")
    if stop is None:
        return
    rule = "run_stop is the end of the run"
    after = log.events[log.events.index(stop) + 1 :]
    course = [event for event in after if event.key in COURSE]
    if course:
        yield finding(
            log,
            course[0].line,
            rule,
            f"{course[0].key} comes after run_stop ({len(course)} events of the run do)",
            "stop the clock when the last evaluation and its block have ended, and log nothing of the run "
            "behind it",
        )
    elif after:
        yield finding(
            log,
            after[0].line,
            rule,
            f"{after[0].key} comes after run_stop",
            "log it before the clock stops",
            WARNING,
        )


def _status(log: ResultLog) -> Iterator[Finding]:
    stop = log.first("run_stop")
    if stop is None:
        return
    rule = "run_stop has the status success where the target is reached, else aborted"
    status, target = stop.metadata.get("status"), rules.TARGET_ACCURACY
    if not isinstance(status, str):
        return  # the format is broken, which another finding reports
    if status == "success" and log.reached is None:
        yield finding(
            log,
            stop.line,
            rule,
            f"the status is success, but no evaluation reaches {target}",
            "stop with success only after an evaluation at the target; this run did not converge",
        )
    elif status == "aborted" and log.reached is not None:
        yield finding(
            log,
            stop.line,
            rule,
            f"the status is aborted, but epoch {log.reached.epoch:g} reached {target}",
            "stop with success at the first evaluation at the target (>=, not >)",
        )
    elif status not in ("success", "aborted"):
        severity = (
            ERROR if log.reached else WARNING
        )  # without an evaluation at the target, the run missed it anyway
        yield finding(
            log, stop.line, rule, f"the status of run_stop is {status!r}", "log success or aborted", severity
        )
    after = [
        evaluation for evaluation in log.evaluations if log.reached and evaluation.epoch > log.reached.epoch
    ]
    if log.reached and after:
        yield finding(
            log,
            stop.line,
            "a run stops at its first evaluation at the target",
            f"the run goes on to epoch {after[-1].epoch:g} after epoch {log.reached.epoch:g} reached "
            f"{target}",
            "stop the clock at the first evaluation at the target",
        )

"""What the official checkers do not check, of one log. Every check yields findings; a demo that runs by the rules has none.

Source: MLPerf Training rules, sections "Hyperparameters", "Quality measure", "Run Results"; and logs that passed the official
checkers though they should not have.
"""

import json
import re
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from rn50 import rules
from rn50.submission.findings import ERROR, WARNING, Finding
from rn50.submission.parse import Event, ResultLog

CLOCK_SKEW_MS = 1000
"""Ranks that log for themselves do so a few ms apart."""
ROUNDING = 0.01
"""Accuracies are logged in float32, so accuracy times samples is a whole number to within this."""
_WORDS = ("eval_accuracy", "eval_error", "global_batch_size", "submission_benchmark", "run_stop")


def check(log: ResultLog) -> List[Finding]:
    """Every finding on one log, in the order of its lines."""
    found = [finding for each in _CHECKS for finding in each(log)]
    return sorted(found, key=lambda finding: finding.line or 0)


def check_seeds(logs: Sequence[ResultLog]) -> List[Finding]:
    """The runs of one result have different seeds."""
    rule = "the runs of a result have different seeds, from the clock or the operating system"
    findings = []
    seen: Dict[int, ResultLog] = {}
    for log in logs:
        if log.seed is None:
            continue
        if log.seed in seen:
            event = next(event for event in log.events if event.key == "seed")
            findings.append(_finding(log, event.line, rule, f"seed {log.seed} is that of {seen[log.seed].path.name} too",
                                     "leave SEED unset, so that every run draws its own, and run this one again"))
        seen.setdefault(log.seed, log)
    seeds = sorted(seen)
    if len(seeds) == rules.RUNS and seeds[-1] - seeds[0] == rules.RUNS - 1:
        findings.append(_finding(logs[0], None, rule, f"the seeds are {seeds[0]} to {seeds[-1]}, as if they had been chosen",
                                 "draw them from the clock or the operating system", WARNING))
    return findings


def _finding(log: ResultLog, line: Optional[int], rule: str, message: str, remedy: str, severity: str = ERROR) -> Finding:
    return Finding(severity, log.path, line, rule, message, remedy)


def _on_imagenet(log: ResultLog) -> bool:
    return log.train_samples in (None, rules.TRAIN_SAMPLES)


def _event(log: ResultLog, *keys: str) -> Optional[Event]:
    return next((event for event in log.events if event.key in keys), None)


def _format(log: ResultLog) -> Iterator[Finding]:
    for text in log.findings:
        found = re.match(r"line (\d+): (.*)", text, re.DOTALL)
        line, message = (int(found.group(1)), found.group(2)) if found else (None, text)
        yield _finding(log, line, "a record is a line of valid JSON, and a run logs each event once", message,
                       "log through mlperf_logging.mllog, on rank 0 only, and submit the file as it was written")
    for line in log.crowded_lines:
        yield _finding(log, line, "one record a line", "several records stand here, and the official reader sees the last",
                       "end every record with a new line; log on rank 0 only")


def _samples(log: ResultLog) -> Iterator[Finding]:
    event = _event(log, "eval_samples")
    if event and log.eval_samples is not None and _on_imagenet(log) and log.eval_samples != rules.EVAL_SAMPLES:
        yield _finding(log, event.line, f"every evaluation counts the {rules.EVAL_SAMPLES:,} validation images",
                       f"eval_samples is {log.eval_samples:,}, not {rules.EVAL_SAMPLES:,}",
                       "evaluate every image of the validation set exactly once, and log that number")


def _accuracies(log: ResultLog) -> Iterator[Finding]:
    samples = rules.EVAL_SAMPLES if _on_imagenet(log) else log.eval_samples
    if not samples:
        return
    events = [event for event in log.events if event.key == "eval_accuracy" and _is_number(event.value)]
    odd = [event for event in events if abs(event.value * samples - round(event.value * samples)) > ROUNDING]
    if odd:
        yield _finding(log, odd[0].line, "an accuracy is a number of right answers over the number of samples",
                       f"eval_accuracy {odd[0].value!r} is no multiple of 1/{samples:,} ({len(odd)} of {len(events)} are not)",
                       f"sum the right answers over the ranks and divide once, by {samples:,}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _cadence(log: ResultLog) -> Iterator[Finding]:
    if not _on_imagenet(log):
        return
    rule = f"ResNet is evaluated every {rules.EVAL_PERIOD_EPOCHS} epochs with an offset of 0 to 3"
    events = [event for event in log.events if event.key == "eval_accuracy"]
    epochs = [evaluation.epoch for evaluation in log.evaluations]
    if len(events) != len(epochs) or not epochs:
        return  # the format is broken, which is said already
    before = 0.0
    for number, (event, epoch) in enumerate(zip(events, epochs)):
        right = epoch in range(1, rules.EVAL_PERIOD_EPOCHS + 1) if number == 0 else epoch - before == rules.EVAL_PERIOD_EPOCHS
        if not right:
            after = "as the first" if number == 0 else f"after that of epoch {before:g}"
            yield _finding(log, event.line, rule, f"an evaluation of epoch {epoch:g} comes {after}",
                           "evaluate at the same distance from the first epochs on (EVAL_OFFSET, EVAL_PERIOD=4)")
            return
        before = epoch


def _momentum(log: ResultLog) -> Iterator[Finding]:
    event = _event(log, "lars_opt_momentum", "sgd_opt_momentum")
    size = log.global_batch_size
    if event and size and log.division != "open" and size < rules.LARGE_BATCH and event.value != rules.MOMENTUM_BELOW_32K:
        yield _finding(log, event.line, f"momentum is {rules.MOMENTUM_BELOW_32K} below a global batch size of 32k",
                       f"{event.key} is {event.value!r} at a global batch size of {size:,}",
                       f"train with momentum {rules.MOMENTUM_BELOW_32K} (MOM)")


def _label_smoothing(log: ResultLog) -> Iterator[Finding]:
    event = _event(log, "label_smoothing")
    stated: Optional[Tuple[Optional[int], Any]] = (event.line, event.value) if event else log.label_smoothing
    if stated is None:
        beside = log.path.with_suffix(".json")  # what rn50 saves with a run
        try:
            stated = None, json.loads(beside.read_text(encoding="utf-8"))["config"]["hyperparameters"]["label_smoothing"]
        except (OSError, ValueError, KeyError, TypeError):
            return
    line, value = stated
    if value not in rules.LABEL_SMOOTHING and log.division != "open":
        yield _finding(log, line, "label smoothing is 0 or 0.1", f"label smoothing is {value!r}",
                       "train with a label smoothing of 0 or 0.1 (LABELSMOOTHING)")


def _time_order(log: ResultLog) -> Iterator[Finding]:
    latest: Optional[Event] = None
    late: List[Tuple[Event, Event]] = []
    for event in log.events:
        if latest is not None and event.time_ms < latest.time_ms - CLOCK_SKEW_MS:
            late.append((event, latest))
        elif latest is None or event.time_ms > latest.time_ms:
            latest = event
    if late:
        event, before = late[0]
        seconds = (before.time_ms - event.time_ms) / 1000
        yield _finding(log, event.line, "the records stand in the order of their times",
                       f"{event.key} is {seconds:,.1f} s earlier than {before.key} of line {before.line} ({len(late)} records "
                       "are earlier than one above them)",
                       "submit the log as the run wrote it, from one machine's clock")


def _status(log: ResultLog) -> Iterator[Finding]:
    stop = _event(log, "run_stop")
    if stop is None or "status" not in stop.metadata:
        return  # the compliance checker says so
    rule = "run_stop has the status success where the target is reached, else aborted"
    status, target = stop.metadata["status"], rules.TARGET_ACCURACY
    if status not in ("success", "aborted"):
        yield _finding(log, stop.line, rule, f"the status of run_stop is {status!r}", "log success or aborted")
    elif status == "success" and log.reached is None:
        yield _finding(log, stop.line, rule, f"the status is success, but no evaluation reaches {target}",
                       "stop with success only after an evaluation at the target; this run did not converge")
    elif status == "aborted" and log.reached is not None:
        yield _finding(log, stop.line, rule, f"the status is aborted, but epoch {log.reached.epoch:g} reached {target}",
                       "stop with success at the first evaluation at the target (>=, not >)")
    after = [evaluation for evaluation in log.evaluations if log.reached and evaluation.epoch > log.reached.epoch]
    if log.reached and after:
        yield _finding(log, stop.line, "a run stops at its first evaluation at the target",
                       f"the run goes on to epoch {after[-1].epoch:g} after epoch {log.reached.epoch:g} reached {target}",
                       "stop the clock at the first evaluation at the target")


def _clock(log: ResultLog) -> Iterator[Finding]:
    start = _event(log, "run_start")
    if start is None:
        return
    rule = "the clock starts before any part of the system touches the data set"
    for event in log.events[: log.events.index(start)]:
        if event.key in ("block_start", "epoch_start", "eval_start"):
            yield _finding(log, event.line, rule, f"{event.key} comes before run_start", "start the clock before the first epoch")
            return
    samples = _event(log, "train_samples", "eval_samples")
    if samples and samples.line < start.line:
        yield _finding(log, samples.line, rule, f"{samples.key} comes before run_start, as if the data set had been opened",
                       "open the data set, and log its size, after run_start", WARNING)


def _intervals(log: ResultLog) -> Iterator[Finding]:
    # Blocks by their order alone: one published system numbers their stops by the last epoch.
    for name, number in (("block", None), ("epoch", "epoch_num"), ("eval", "epoch_num")):
        opened: Optional[Event] = None
        for event in log.events:
            if event.key == f"{name}_start":
                if opened:
                    yield _interval(log, event, f"{name}_start comes again before a {name}_stop for that of line {opened.line}")
                opened = event
            elif event.key == f"{name}_stop":
                if opened is None:
                    yield _interval(log, event, f"{name}_stop has no {name}_start before it")
                elif number and opened.metadata.get(number) != event.metadata.get(number):
                    began = f"{name}_start of epoch {opened.metadata.get(number)} in line {opened.line}"
                    yield _interval(log, event, f"{name}_stop of epoch {event.metadata.get(number)} follows {began}")
                opened = None
        if opened and log.status == "success" and name != "epoch":  # a run may stop in the middle of an epoch
            yield _interval(log, opened, f"{name}_start has no {name}_stop")
    for key in ("epoch_start", "eval_accuracy"):
        before: Optional[Event] = None
        for event in (event for event in log.events if event.key == key):
            step = _step(before, event)
            if step is not None and (step < 1 or (step > 1 and key == "epoch_start")):
                last = f"epoch {before.metadata['epoch_num']} in line {before.line}" if before else ""
                yield _interval(log, event, f"{key} of epoch {event.metadata['epoch_num']} follows that of {last}")
            before = event


def _step(before: Optional[Event], event: Event) -> Optional[float]:
    """Epochs from one event to the next; None where one of them does not number its epoch."""
    at, last = event.metadata.get("epoch_num"), before.metadata.get("epoch_num") if before else None
    return at - last if isinstance(at, (int, float)) and isinstance(last, (int, float)) else None


def _interval(log: ResultLog, event: Event, message: str) -> Finding:
    return _finding(log, event.line, "every block, epoch and evaluation starts and stops once, in order", message,
                    "log each start and each stop once, on rank 0 only, and submit the file as it was written")


def _words(log: ResultLog) -> Iterator[Finding]:
    for event in log.events:
        if event.key in _WORDS:
            continue
        text = json.dumps([event.key, event.value, event.metadata])
        word = next((word for word in _WORDS[:3] if word in text), None)
        if word:
            yield _finding(log, event.line, "the RCP checker takes every record with the word eval_accuracy, eval_error or "
                           "global_batch_size in it for that event", f"the record of {event.key} contains the word {word}",
                           "choose another name for it")
            return


def _seed(log: ResultLog) -> Iterator[Finding]:
    rule = "every run logs one seed, from the clock or the operating system"
    seeds = [event for event in log.events if event.key == "seed"]
    if not seeds:
        yield _finding(log, None, rule, "no seed is logged", "log the seed of the run, on rank 0")
    elif len(seeds) > 1:
        yield _finding(log, seeds[1].line, rule, f"seed is logged {len(seeds)} times", "log it on rank 0 only")
    for event in seeds:
        if isinstance(event.value, bool) or not isinstance(event.value, int):
            yield _finding(log, event.line, rule, f"the seed {event.value!r} is not a whole number", "log a whole number")


def _caches(log: ResultLog) -> Iterator[Finding]:
    event = _event(log, "cache_clear")
    if event and event.value in (False, 0):
        yield _finding(log, event.line, "caches are cleared before a run", f"cache_clear is {json.dumps(event.value)}",
                       "clear the caches of the system before every run, as root", WARNING)


_CHECKS: Tuple[Callable[[ResultLog], Iterator[Finding]], ...] = (
    _format, _seed, _caches, _momentum, _label_smoothing, _clock, _samples, _accuracies, _cadence, _intervals, _time_order,
    _status, _words,
)

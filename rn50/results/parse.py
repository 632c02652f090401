"""``read_log`` reads a result file, the MLPerf log of one run, into a ``ResultLog``.

Format: one ``:::MLLOG {json}`` record a line, as the ``mlperf_logging`` package writes it. Prefixes before
the record (ranks, timestamps) and any other text between the records are skipped. Where a line breaks the
format, a finding names the line and reading goes on. A file without any readable MLPerf record is an error. A
file with records of several runs is an error too, because a figure computed from it would belong to none of
them. The file is read piece by piece, so that memory grows with the number of records, not with the other
text.
"""

import contextlib
import functools
import json
import math
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from rn50 import files
from rn50.benchmark import rules
from rn50.errors import UserError, excerpt
from rn50.gathered import gathered
from rn50.printed import Hidden

TOKEN = ":::MLLOG"
EPOCH_SAMPLES = "epoch_samples"
"""Metadata key of ``train_samples`` in our log of a run whose epochs are cut by BENCHMARK_STEPS. Its value is
the number of images that an epoch trains on."""
TARGET = "target"
"""Metadata key of ``train_samples`` in our log of a run whose target is not the benchmark's. Its value is the
run's target as text."""
TOP_5 = "top_5"
"""Metadata key of ``eval_accuracy`` in our log of a run with EVAL_TOP5=1. Its value is the top-5 accuracy, a
fraction."""
SAMPLE_ORDER = "sample_order"
"""Metadata key of ``tracked_stats`` in our log. Its value is a hash of the order of the epoch's samples."""
UNFINISHED = "unfinished"
"""Status of a run whose clock started and never stopped: the run is still going on, or it was killed."""
NOT_STARTED = "not started"
"""Status of a run whose clock never started."""
MOST_FINDINGS = 100
"""Most findings listed of a file, because a file full of broken records would fill the memory."""
LONGEST_RECORD = 20_000
"""Most characters of a record. The time of the official checkers grows with the square of a record's length,
to minutes at 200,000 characters. The longest record of the published logs has 1,300."""
_PIECE = 1 << 20
"""Bytes read at a time from a line that is longer."""
_LARGEST = 1 << 62
"""Bound of times in ms and of whole numbers: a product with a larger number could overflow."""
_MOST_EPOCHS = 10_000_000
"""Largest number that counts as an epoch; no run lasts so long."""
INSTEAD = "; log "
"""Separator in the text of a finding, between the problem and what to log instead. ``log_rules.py`` splits
the text there."""
_REMEDY = "give a result file"
# Input: Namespace(label_smoothing=0.1, lr=10.5)
_LABEL_SMOOTHING = re.compile(rb"\blabel_smooth(?:ing)?=([0-9.eE+-]+)")
# Input: Beginning trial 2 of 8
_TRIAL = re.compile(rb"\bBeginning trial (\d{1,4}) of (\d{1,4})\b")
_TOGETHER_MS = 5000
"""Most milliseconds between the records that several ranks of a run log of one event. In published logs it is
at most 19 ms."""
_MET_MS = 1000
"""Most milliseconds between a ``run_start`` and an ``init_start`` behind it in the log of one run. It is less
than ``_TOGETHER_MS``, because all ranks have met when the clock starts."""
_ONCE_AN_EPOCH = ("epoch_start", "eval_accuracy")
_ONCE = ("init_start", "run_start", *_ONCE_AN_EPOCH)
"""Keys that each rank logs once in a run, or once an epoch."""
_VALUES: dict[str, tuple[str, type]] = {
    **{name: (f"submission_{name}", str) for name in ("benchmark", "org", "division")},
    "submission_status": ("submission_status", str),
    "platform": ("submission_platform", str),
    **{key: (key, int) for key in ("seed", "train_samples", "eval_samples", "global_batch_size")},
}
"""Field of ``ResultLog`` -> key of the record that has it, and the type of the record's value."""
_CAUSES = {
    # The first bytes of files of gzip, bzip2, xz, Zstandard and zip.
    rb"\x1f\x8b|BZh|\xfd7zXZ|\x28\xb5\x2f\xfd|PK\x03\x04": "is compressed; unpack it",
    # A byte order mark, which may be missing, and four ASCII characters of two bytes.
    rb"(\xff\xfe|\xfe\xff)?(.\0|\0.){4}": "is UTF-16 text; iconv -f UTF-16 -t UTF-8 makes a log of it",
    # {"log": ":::MLLOG {\"namespace\": ...
    rb'.*"\w+": *"[^"]*:::MLLOG *{\\': "is JSON with a log in it, as docker has it; jq -rj .log takes it out",
    rb"version https://git-lfs": "is a Git LFS pointer, not the log; git lfs pull fetches the log",
    rb".*:::MLPv0\.5": "is a log of round v0.5; rn50 reads those of v0.7 to v4.0",
    rb".*:::MLL \d": "is a log of round v0.6; rn50 reads those of v0.7 to v4.0",
    # A record that ends without its brace: :::MLLOG {"namespace": "", "time_ms": 16
    rb".*:::MLLOG.*[^}\s]\s*\Z": "its records are cut off; log without a limit of columns",
}
"""Pattern -> "problem; remedy" of a file in which no record can be read. The pattern is matched with the line
of the file that ``_read`` calls ``suspect_line``."""


@dataclass(frozen=True)
class Event:
    """One record of a log."""

    line: int
    """Line number in the file, from 1."""
    time_ms: int
    """Milliseconds since 1970 (UTC)."""
    key: str
    value: Any
    metadata: dict[str, Any]


_ByKey = Mapping[str, Sequence[Event]]


@dataclass(frozen=True)
class Evaluation:
    """An evaluation on the validation set."""

    epoch: float
    """Number of trained epochs before the evaluation."""
    accuracy: float
    """Top-1 accuracy, a fraction; 0 if NaN was logged, as a run that diverged logs it."""
    time_ms: Hidden[int] = field(default=0, compare=False)
    """Time of its record, in milliseconds since 1970 (UTC)."""


@dataclass(frozen=True)
class ResultLog:
    """One run as logged. A field is None where the log has no value for it. Times are milliseconds since 1970
    (UTC)."""

    path: pathlib.Path
    """Log."""
    events: tuple[Event, ...]
    by_key: Mapping[str, Sequence[Event]]
    """Events of each key, in the order of the log."""
    findings: tuple[str, ...]
    """Places where the log breaks the format, one line of text each."""
    benchmark: str | None
    org: str | None
    division: str | None
    submission_status: str | None
    platform: str | None
    seed: int | None
    train_samples: int | None
    eval_samples: int | None
    global_batch_size: int | None
    run_start_ms: int | None
    run_stop_ms: int | None
    status: str
    """Status of the run as logged with run_stop: success or aborted; unfinished if the clock started and
    never stopped, not started if it never started."""
    evaluations: tuple[Evaluation, ...]
    label_smoothing: tuple[int, float] | None = None
    """Line number and value of the label smoothing, for which MLPerf has no log key. The value is read from
    the arguments that some programs print between the records."""
    trial: tuple[int, int] | None = None
    """Number of the run, and number of all runs that its script makes. NVIDIA's scripts print both."""

    def first(self, *keys: str) -> Event | None:
        """Return the first event of the first key of ``keys`` that the log has; None if it has none of
        them."""
        return next((self.by_key[key][0] for key in keys if key in self.by_key), None)

    @functools.cached_property
    def target(self) -> float:
        """Target accuracy of the run: the value of TARGET if the log has it, with infinity for TARGET=none;
        else the benchmark's target."""
        logged = self.first("train_samples")
        text = logged.metadata.get(TARGET) if logged else None
        if text == "none":
            return math.inf
        try:
            return float(text) if isinstance(text, str) else rules.TARGET_ACCURACY
        except ValueError:
            return rules.TARGET_ACCURACY

    @functools.cached_property
    def reached(self) -> Evaluation | None:
        """First evaluation at the target accuracy or above; None if there is none. Its epoch is the number of
        epochs that the run needed to reach the target. With TARGET=none it is the last evaluation of a run
        that ended with success."""
        if math.isinf(self.target):
            return self.evaluations[-1] if self.evaluations and self.status == "success" else None
        return next((e for e in self.evaluations if e.accuracy >= self.target), None)

    @property
    def decisive(self) -> Evaluation | None:
        """Evaluation that decided the run: ``reached``, else the last one; None if there is no evaluation."""
        return self.reached or next(reversed(self.evaluations), None)

    @property
    def epoch_samples(self) -> int | None:
        """Images that each epoch trained on: fewer than ``train_samples`` in a run of ours whose epochs were
        cut by BENCHMARK_STEPS."""
        logged = self.first("train_samples")
        cut = finite(logged.metadata.get(EPOCH_SAMPLES)) if logged else None
        return int(min(cut, _LARGEST)) if cut and cut > 0 else self.train_samples

    @property
    def minutes(self) -> float | None:
        """``run_stop - run_start`` in minutes (MLPerf Training rules, section "Run Results"); None where one
        of the two is missing."""
        if self.run_start_ms is None or self.run_stop_ms is None:
            return None
        return (self.run_stop_ms - self.run_start_ms) / 60_000


def partial_name(result_file: pathlib.Path) -> pathlib.Path:
    """Return the name of a result file while its run goes on; the run renames it at its end."""
    return result_file.with_name(result_file.name + ".partial")


def read_log(path: pathlib.Path) -> ResultLog:
    """Read one result file.

    Raises:
        UserError: the file cannot be read, has no readable ``:::MLLOG`` line, or has lines of several runs.
    """
    with files.open_regular(path, _REMEDY) as stream, files.errors_of(path, _REMEDY):
        events, findings, stated, suspect_line = _read(stream)
    if not events:
        what = f"can be read: {findings[0]}" if findings else "in it"
        unread = f"no {TOKEN} line {what}; give the log of a run"
        # A cause is "problem; remedy", and so is ``unread``.
        causes = (text for pattern, text in _CAUSES.items() if re.match(pattern, suspect_line, re.DOTALL))
        problem, remedy = next(causes, unread).rsplit("; ", 1)
        raise UserError(path, problem, remedy)
    by_key = gathered((event.key, event) for event in events)
    pair = next(_pairs_of_two_runs(events), None)
    # Several runs of another benchmark pass here: the score refuses them, and names that benchmark.
    is_resnet = all(event.value == rules.BENCHMARK for event in by_key.get("submission_benchmark", ()))
    if pair and is_resnet:
        event, before = pair
        text = f"line {event.line} has {event.key}, after {before.key} in line {before.line}"
        raise UserError(path, f"more than one run in it: {text}", "keep each run in a file of its own")
    start = _first("run_start", by_key, findings, repeatable=False)
    stop = _first("run_stop", by_key, findings, repeatable=False)
    if start and stop and stop.time_ms < start.time_ms:
        findings.append(f"line {stop.line}: run_stop is earlier than run_start; not counted")
        stop = None
    status = stop.metadata.get("status") if stop else None
    if not isinstance(status, str):
        findings += [f"line {stop.line}: run_stop without a status"] if stop else []
        status = UNFINISHED if start else NOT_STARTED
    values = {name: _value(key, kind, by_key, findings) for name, (key, kind) in _VALUES.items()}
    return ResultLog(
        path=path,
        events=tuple(events),
        by_key=by_key,
        **values,
        run_start_ms=start.time_ms if start else None,
        run_stop_ms=stop.time_ms if stop else None,
        status=status,
        evaluations=tuple(_evaluations(by_key, findings)),
        **stated,
        findings=tuple(findings),
    )


def _pairs_of_two_runs(events: Sequence[Event]) -> Iterator[tuple[Event, Event]]:
    """Yield the pairs (record, earlier record) that one run cannot have written. The file may have one run
    after the other, or their lines mixed.

    The ranks of one run may each log a record of the same event, within ``_TOGETHER_MS`` of each other.
    """
    # (key, epoch) -> first record of this key and epoch; the epoch is None for a key that a run logs once.
    earliest_of: dict[Any, Event] = {}
    several_starts = False
    for event in (event for event in events if event.key in (*_ONCE, "run_stop")):
        epoch = epoch_number(event.metadata.get("epoch_num")) if event.key in _ONCE_AN_EPOCH else None
        earliest = earliest_of.setdefault((event.key, epoch), event)
        start, stop = (earliest_of.get((key, None)) for key in ("run_start", "run_stop"))
        several_starts = several_starts or (event.key == "run_start" and event is not earliest)
        # Ranks of one run log equal accuracies: after a second run_start another accuracy is another run's.
        other_accuracy = several_starts and event.key == "eval_accuracy" and event.value != earliest.value
        # The event comes again, too late for another rank, or with another accuracy.
        if event.key in _ONCE and (event.time_ms - earliest.time_ms > _TOGETHER_MS or other_accuracy):
            yield event, earliest
        # An initialisation comes after the start of a run.
        elif event.key == "init_start" and start and abs(event.time_ms - start.time_ms) > _MET_MS:
            yield event, start
        # The event comes again after the end of a run.
        elif event.key in _ONCE and event is not earliest and stop:
            yield event, stop


def _read(stream: BinaryIO) -> tuple[list[Event], list[str], dict[str, Any], bytes]:
    """Return (events, findings, stated, suspect_line) of a stream.

    ``findings`` are about broken records. ``stated`` has the fields of ``ResultLog`` that text between the
    records states. ``suspect_line`` is the line that tells best why a file has no records: the first with a
    broken record, else the first with a record of an older round, else the first line.
    """
    events: list[Event] = []
    findings: list[str] = []
    suspect_line = b""
    stated: dict[str, Any] = {}
    for number, line in _lines(stream):
        suspect_line = suspect_line or line
        if b"label_smooth" in line and (smoothing := _LABEL_SMOOTHING.search(line)):
            with contextlib.suppress(ValueError):
                stated.setdefault("label_smoothing", (number, float(smoothing.group(1))))
        if b"Beginning trial" in line and (trial := _TRIAL.search(line)):
            stated.setdefault("trial", (int(trial.group(1)), int(trial.group(2))))
        if TOKEN.encode() not in line:
            if b":::ML" in line and b":::ML" not in suspect_line:  # the first record of an older round
                suspect_line = line
            continue
        # A progress bar ends its lines with a carriage return only. For the official checker that ends a line
        # too.
        for piece in line.decode("utf-8", errors="replace").split("\r"):
            records = piece.split(TOKEN)[1:]
            several = "several records stand here, and the official reader sees the last"
            faults = [several] if len(records) > 1 else []
            for record in records:
                try:
                    events.append(_event(number, record))
                except (KeyError, TypeError, ValueError) as error:
                    if not findings:  # no earlier line has a broken record
                        suspect_line = line
                    faults.append(f"not an MLPerf record ({type(error).__name__}: {error})")
            findings += [f"line {number}: {fault}" for fault in faults]
            del findings[MOST_FINDINGS + 1 :]  # one more than the limit shows that the limit was passed
    if len(findings) > MOST_FINDINGS:
        findings[-1] += "; this and what follows is not listed"
    return events, findings, stated, suspect_line


_DECODER = json.JSONDecoder(parse_int=files.integer, object_pairs_hook=files.one_value_each)
"""Decoder of a record. It raises ValueError for a number of more digits than a 64-bit integer has, and for a
name with two different values."""


def _event(line: int, record: str) -> Event:
    """Return the event of line number ``line`` and of ``record``, the text behind ``TOKEN``. Raise KeyError,
    TypeError or ValueError if the record breaks the format."""
    if len(record) > LONGEST_RECORD:
        raise ValueError(f"{len(record):,} characters, and {LONGEST_RECORD:,} are the most")
    # Only files.parse_json limits the nesting depth. It is slower than the decoder, so it reads only records
    # that might be nested too deep.
    may_be_deep = record.count("[") + record.count("{") > files.DEEPEST
    fields = files.parse_json(record) if may_be_deep else _DECODER.decode(record)
    time_ms, key, value, metadata = fields["time_ms"], fields["key"], fields["value"], fields["metadata"]
    if finite(time_ms) is None or abs(time_ms) >= _LARGEST:
        raise TypeError(f"time_ms {excerpt(repr(time_ms))} is not a time")
    if not isinstance(key, str):
        raise TypeError(f"key {excerpt(repr(key))} is not a text")
    if not isinstance(metadata, dict) and metadata not in (None, ""):  # power logs have ""
        raise TypeError(f"metadata {excerpt(repr(metadata))} is not an object")
    return Event(line, int(time_ms), key, value, metadata or {})


def copy_records(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copy the records of ``source`` to ``target``, a line each, for the official checkers. They use only the
    records but read a file whole, and the other text may be larger than the memory. A record longer than
    ``LONGEST_RECORD``, which ``read_log`` reports, is left out."""
    with files.open_regular(source, _REMEDY) as stream, target.open("wb") as copy:
        for _, line in _lines(stream):
            for piece in line.split(b"\r"):
                _, token, record = piece.rstrip(b"\n").partition(TOKEN.encode())
                if token and len(record) <= LONGEST_RECORD:
                    copy.write(token + record + b"\n")


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, line). Of a line longer than ``_PIECE``, yield only the pieces that hold the
    start of a record."""
    number = 1
    kept = b""  # the part of the current line read so far that may belong to a record
    while piece := stream.readline(_PIECE):
        line = kept + piece
        if piece.endswith(b"\n"):
            yield number, line
            number, kept = number + 1, b""
        elif TOKEN.encode() not in line:
            kept = line[1 - len(TOKEN) :]  # the token may be split between two pieces
        elif len(line) < 2 * _PIECE:
            kept = line[line.index(TOKEN.encode()) :]  # the record may go on in the next piece
        else:  # a line as long as this is cut: a record that goes on behind it loses its end
            yield number, line
            kept = b""
    if kept:
        yield number, kept


def _first(key: str, by_key: _ByKey, findings: list[str], repeatable: bool = True) -> Event | None:
    """Return the first event of a key that a run logs once; None if it is not logged. Add a finding to
    ``findings`` if the key is repeated; a ``repeatable`` key may be repeated with an equal value."""
    events = by_key.get(key, ())
    if len(events) > 1 and not (repeatable and all(event.value == events[0].value for event in events)):
        times = f"{key} logged {len(events)} times"
        findings.append(f"line {events[1].line}: {times}; the first, in line {events[0].line}, counts")
    return events[0] if events else None


def _value(key: str, kind: type, by_key: _ByKey, findings: list[str]) -> Any:
    """Return the value of a key: a text if ``kind`` is str, a whole number if it is int. Return None if the
    key is not logged. If its value is of another type, return None and add a finding to ``findings``."""
    event = _first(key, by_key, findings)
    if event is None:
        return None
    if kind is str and isinstance(event.value, str):
        return event.value
    number = finite(event.value) if kind is int else None
    if number is not None and number == int(number) and abs(number) < _LARGEST:
        return int(number)
    what = "text" if kind is str else "whole number"
    findings.append(f"line {event.line}: {key} {excerpt(repr(event.value))} is not a {what}")
    return None


def _evaluations(by_key: _ByKey, findings: list[str]) -> Iterator[Evaluation]:
    """Yield the valid evaluations; add a finding to ``findings`` for each invalid one."""
    for event in by_key.get("eval_accuracy", ()):
        accuracy = 0.0 if is_nan(event.value) else finite(event.value)
        epoch = epoch_number(event.metadata.get("epoch_num"))
        if accuracy is None or not 0 <= accuracy <= 1:
            problem = f"eval_accuracy {excerpt(repr(event.value))} is not a fraction between 0 and 1"
            is_percent = accuracy is not None and 1 < accuracy <= 100
            instead = f"{INSTEAD}the fraction: {accuracy / 100:.7g}" if accuracy and is_percent else ""
            findings.append(f"line {event.line}: {problem}; not counted{instead}")
        elif epoch is None:
            findings.append(f"line {event.line}: eval_accuracy without its epoch_num; not counted")
        else:
            top_5 = finite(event.metadata.get(TOP_5, 1))  # 1 if it is not logged: no top-1 exceeds it
            if top_5 is None or not accuracy <= top_5 <= 1:
                problem = f"{TOP_5} {excerpt(repr(event.metadata[TOP_5]))} is not a fraction from top-1 to 1"
                findings.append(f"line {event.line}: {problem}")
            yield Evaluation(int(epoch) if epoch == int(epoch) else epoch, accuracy, event.time_ms)


def is_nan(value: Any) -> bool:
    """Return whether a JSON value is NaN, which runs that diverged log as their accuracy."""
    return isinstance(value, float) and math.isnan(value)


def finite(value: Any) -> float | None:
    """Return a JSON value if it is a finite number, else None. NaN, Infinity, true and false are no such
    numbers, although Python's parser takes NaN and Infinity, and true equals 1 in Python."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


def epoch_number(value: Any) -> float | None:
    """Return a JSON value if it can be the number of an epoch, else None."""
    number = finite(value)
    return number if number is not None and 0 <= number <= _MOST_EPOCHS else None

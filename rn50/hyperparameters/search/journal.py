"""State of a search: a file of JSON lines in its folder, which one process reads and writes.

A trial is one run. Its log decides: a trial with a complete log is finished even if the search was killed
before recording that.

A line is a value of the search, or what changed of a trial::

    {"search": {"config": {"LR": "3.0", ...}, ...}}
    {"trial": 0, "point": [3.0, 32, 1.0, 5e-05, 12, null], "stage": "the configuration as it is", "seed": 5}
    {"trial": 0, "state": "finished", "value": 7.25, "seconds": 81.4}
"""

import contextlib
import errno
import json
import os
import pathlib
import time
from typing import Any, NamedTuple

from rn50 import files
from rn50.errors import UserError
from rn50.hyperparameters.search import objective
from rn50.hyperparameters.search.method import Evidence, Point
from rn50.printed import Hidden, Inline
from rn50.results.parse import read_log

RESULT = "result_0.txt"
_STATES = ("running", "finished", "stopped", "interrupted", "failed")
_BEGINS = b'{"search": '
_REMEDY = "give another --output"


class Trial(NamedTuple):
    """Trial in the journal."""

    number: int
    """Number of the trial."""
    point: Inline[Point]
    stage: str
    """Stage of the search."""
    seed: int
    state: str = "running"
    """running, finished, stopped (as hopeless), interrupted or failed."""
    value: float | None = None
    """Epochs to the target."""
    note: str = ""
    """Why it was stopped, or empty."""
    seconds: Hidden[float | None] = None


class Journal:
    """The journal of the search in ``folder``."""

    def __init__(self, folder: pathlib.Path):
        """Read the journal, if there is one. Raises UserError if the folder cannot be written, or its
        journal.log is not a journal."""
        self.folder, self.trials = folder, list[Trial]()
        self.search: dict[str, dict[str, Any]] = {}
        """Identity of the search, the same in all its calls; empty in a new one."""
        self.confirmation: dict[str, dict[str, Any]] = {}
        """Points and seeds of the confirmation; empty before it."""
        self._began: dict[int, float] = {}
        self._size = 0
        self._file = folder / "journal.log"
        files.make_folder(folder / "trials", _REMEDY)
        with contextlib.suppress(files.MissingError):
            self._read(files.read_bytes(self._file, remedy=_REMEDY))

    def _read(self, content: bytes) -> None:
        *lines, unfinished = content.split(b"\n")
        read = 0
        try:
            for line in lines:
                self._take(files.parse_json(line.decode()))
                read += 1
            if not self.search and not _BEGINS.startswith(unfinished[: len(_BEGINS)]):
                raise ValueError
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            problem = f"line {read + 1} is not of the journal of a search"
            raise UserError(self._file, problem, _REMEDY) from None
        # Where a search was killed while it wrote, the next line replaces the unfinished one.
        self._size = len(content) - len(unfinished)

    def _take(self, record: dict[str, Any]) -> None:
        """Take over a line. Raises ValueError, TypeError, KeyError, IndexError or AttributeError if it is
        none of a journal."""
        number = record.pop("trial", None)
        if number is None:
            [(name, value)] = record.items()
            if name == "search":
                self.search = {what: dict(values) for what, values in value.items()}
            else:
                points = {who: Point(*values) for who, values in record["confirmation"]["points"].items()}
                self.confirmation = {"points": points, "seeds": dict(value["seeds"])}
            return
        if number == len(self.trials):
            self.trials.append(Trial(number, Point(*record.pop("point")), **record))
        else:
            self.trials[number] = self.trials[number]._replace(**record)
        trial = self.trials[number]
        whole = (trial.number, trial.seed, trial.point.batch_size, trial.point.num_epochs)
        numbers = (*(value or 0 for value in trial.point), trial.value or 0, trial.seconds or 0)
        kinds = ((whole, int), (numbers, (int, float)), ((trial.stage, trial.note), str))
        valid = all(isinstance(value, kind) for values, kind in kinds for value in values)
        if not valid or trial.state not in _STATES:
            raise ValueError

    def write(self, **record: Any) -> None:
        """Add a line. Raises OSError if that is impossible."""
        line = json.dumps(record).encode() + b"\n"
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if os.pwrite(descriptor, line, self._size) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._file))
        finally:
            os.close(descriptor)
        self._size += len(line)
        self._take(record)

    def result_file(self, number: int) -> pathlib.Path:
        """Return the path of a trial's log."""
        return self.folder / "trials" / f"{number:03d}" / RESULT

    def begin(self, point: Point, stage: str, seed: int) -> int:
        """Add a trial, and return its number."""
        number = len(self.trials)
        self.result_file(number).parent.mkdir(exist_ok=True)
        self._began[number] = time.monotonic()
        self.write(trial=number, point=point, stage=stage, seed=seed)
        return number

    def note(self, number: int, text: str) -> None:
        """Record why a trial is stopped, or how it ended."""
        self.write(trial=number, note=text)

    def finish(self, number: int, value: float) -> None:
        """Mark a trial as finished."""
        self._end(number, "finished", value)

    def settle(self, number: int, is_stopped: bool) -> None:
        """Record how a trial ended. A whole log finishes it. Without one it was stopped, because it could no
        longer beat the best, or it failed and says nothing about its point."""
        if self.result_file(number).exists():
            self.finish(number, objective.value(read_log(self.result_file(number)).evaluations))
        elif is_stopped:
            self._end(number, "stopped")
        else:
            self._end(number, "failed" if self.trials[number].note else "interrupted")

    def _end(self, number: int, state: str, value: float | None = None) -> None:
        """End a trial; what it took is recorded if this process has begun it."""
        began = self._began.get(number)
        seconds = None if began is None else time.monotonic() - began
        self.write(trial=number, state=state, value=value, seconds=seconds)


def evidence(trials: list[Trial]) -> dict[Point, Evidence]:
    """Return the evidence of the trials by point."""
    by_point: dict[Point, Evidence] = {}
    for trial in trials:
        before = by_point.get(trial.point, Evidence())
        if trial.state == "finished" and trial.value is not None:
            by_point[trial.point] = before._replace(values=(*before.values, trial.value))
        elif trial.state == "stopped":
            by_point[trial.point] = before._replace(ruled_out=True)
    return by_point

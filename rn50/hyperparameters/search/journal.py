"""``Journal``, the state of a search: a file of JSON lines in the folder of the search, which a single
process reads and writes. ``evidence`` turns its trials into the evidence that ``method.plan`` needs.

A trial is a run. If its log is complete, the trial is finished, even if the search was killed before it could
record that.

A line records the search, its confirmation, or the new or changed fields of a trial::

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
"""Name of the log of a run."""
_STATES = ("running", "finished", "stopped", "interrupted", "failed")
_BEGINS = b'{"search": '
"""Beginning of a journal."""
_REMEDY = "give another --output"


class Trial(NamedTuple):
    """A trial as the journal has it."""

    number: int
    """Number of the trial, from 0."""
    point: Inline[Point]
    stage: str
    """Stage of the search."""
    seed: int
    state: str = "running"
    """running, finished, stopped (as hopeless), interrupted or failed."""
    value: float | None = None
    """Epochs to the target; null: the trial is not finished."""
    note: str = ""
    """Why it was stopped or failed; empty: it was not."""
    seconds: Hidden[float | None] = None
    """Seconds that its run took; None: not known."""


class Journal:
    """The journal of the search in ``folder``."""

    def __init__(self, folder: pathlib.Path):
        """Read the journal, if there is one. Raises UserError if the folder cannot be written, or its file
        journal.log is not a journal."""
        self.folder = folder
        self.trials: list[Trial] = []
        self.search: dict[str, dict[str, Any]] = {}
        """Identity of the search, which is the same in all its calls; empty in a new search."""
        self.confirmation: dict[str, dict[str, Any]] = {}
        """Points and seeds of the confirmation; empty until the confirmation begins."""
        self._began: dict[int, float] = {}
        """Number of a trial -> time, as of ``time.monotonic``, at which this process has begun it. It lacks
        the trials of earlier calls."""
        self._size = 0
        """Bytes of the complete lines of the file."""
        self._file = folder / "journal.log"
        files.make_folder(folder / "trials", _REMEDY)
        with contextlib.suppress(files.MissingError):
            self._read(files.read_bytes(self._file, remedy=_REMEDY))

    def _read(self, content: bytes) -> None:
        """Take over the lines of a journal. Raises UserError if ``content`` is none."""
        *lines, unfinished = content.split(b"\n")
        count = 0
        try:
            for line in lines:
                self._take(files.parse_json(line.decode()))
                count += 1
            # A first line that was cut off is still the beginning of a journal; any other text is not.
            if not self.search and not _BEGINS.startswith(unfinished[: len(_BEGINS)]):
                raise ValueError
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            problem = f"line {count + 1} is not of the journal of a search"
            raise UserError(self._file, problem, _REMEDY) from None
        # The last line is unfinished if the search was killed while it wrote. The next line will replace it.
        self._size = len(content) - len(unfinished)

    def _take(self, record: dict[str, Any]) -> None:
        """Take over the record in a line. Raises ValueError, TypeError, KeyError, IndexError or
        AttributeError if it is not a record of a journal."""
        number = record.pop("trial", None)
        if number is None:
            [(name, value)] = record.items()  # raises ValueError unless there is just one name
            if name == "search":
                self.search = {key: dict(values) for key, values in value.items()}
            else:
                confirmation = record["confirmation"]  # raises KeyError for any other name
                points = {who: Point(*values) for who, values in confirmation["points"].items()}
                self.confirmation = {"points": points, "seeds": dict(confirmation["seeds"])}
            return
        if number == len(self.trials):  # a new trial
            self.trials.append(Trial(number, Point(*record.pop("point")), **record))
        else:
            self.trials[number] = self.trials[number]._replace(**record)
        trial = self.trials[number]
        integers = (trial.number, trial.seed, trial.point.batch_size, trial.point.num_epochs)
        # Fields that may be null count as 0, so that they pass the test of types.
        numbers = (*(value or 0 for value in trial.point), trial.value or 0, trial.seconds or 0)
        types = ((integers, int), (numbers, (int, float)), ((trial.stage, trial.note), str))
        has_types = all(isinstance(value, type_) for values, type_ in types for value in values)
        if not has_types or trial.state not in _STATES:
            raise ValueError

    def write(self, **record: Any) -> None:
        """Add a line with this record behind the complete lines, in place of an unfinished one, and take the
        record over. Raises OSError if the file cannot be written."""
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
        """Add a trial that begins now, and return its number."""
        number = len(self.trials)
        self.result_file(number).parent.mkdir(exist_ok=True)
        self._began[number] = time.monotonic()
        self.write(trial=number, point=point, stage=stage, seed=seed)
        return number

    def note(self, number: int, text: str) -> None:
        """Record why a trial is stopped, or what went wrong in its run."""
        self.write(trial=number, note=text)

    def finish(self, number: int, value: float) -> None:
        """Record that a trial is finished with this value."""
        self._end(number, "finished", value)

    def settle(self, number: int, is_stopped: bool) -> None:
        """Record the end of a trial whose run has ended. With a complete log the trial is finished. Without
        one it is stopped if ``is_stopped``: it could no longer beat the best. Otherwise it is failed if it
        has a note, else interrupted; neither is evidence on its point."""
        if self.result_file(number).exists():
            self.finish(number, objective.value(read_log(self.result_file(number)).evaluations))
        elif is_stopped:
            self._end(number, "stopped")
        else:
            self._end(number, "failed" if self.trials[number].note else "interrupted")

    def _end(self, number: int, state: str, value: float | None = None) -> None:
        """Record the state in which a trial ended, and its seconds if this process has begun it."""
        began = self._began.get(number)
        seconds = None if began is None else time.monotonic() - began
        self.write(trial=number, state=state, value=value, seconds=seconds)


def evidence(trials: list[Trial]) -> dict[Point, Evidence]:
    """Return point -> evidence of its finished and stopped trials."""
    by_point: dict[Point, Evidence] = {}
    for trial in trials:
        before = by_point.get(trial.point, Evidence())
        if trial.state == "finished" and trial.value is not None:
            by_point[trial.point] = before._replace(values=(*before.values, trial.value))
        elif trial.state == "stopped":
            by_point[trial.point] = before._replace(ruled_out=True)
    return by_point

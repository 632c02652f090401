"""What a search has done and is doing: Optuna's journal, a file in the folder of the search that any number of workers append to.

A trial is one run. Its log is what counts: a trial whose log came to its end is finished even where its worker was killed before
it could say so. Whether a worker lives is told by a lock on a file of the trial, which the kernel gives back when worker and run
have ended, however they ended; on a network file system that has locks, on other machines too.
"""

import contextlib
import fcntl
import os
import pathlib
import warnings
from typing import IO, Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState, create_trial

from rn50.errors import UserError
from rn50.hyperparameters.search.method import Evidence, Point

STUDY = "rn50 search"
RESULT = "result_0.txt"


class Trial(NamedTuple):
    """A trial as the journal has it. ``state`` is "running", "finished", "stopped" (as hopeless), "interrupted" or "failed"."""

    number: int
    point: Point
    stage: str
    seed: int
    state: str
    value: Optional[float]
    note: str
    seconds: Optional[float]
    host: str


_STATES = {
    TrialState.RUNNING: "running", TrialState.WAITING: "running", TrialState.COMPLETE: "finished", TrialState.PRUNED: "stopped",
}  # fmt: skip


class Journal:
    """The journal of the search in ``folder``."""

    def __init__(self, folder: pathlib.Path):
        """Raises UserError where nothing can be written there."""
        self.folder = folder
        try:
            (folder / "trials").mkdir(parents=True, exist_ok=True)
            file = folder / "journal.log"
            lock = _Lock(file)
            optuna.logging.set_verbosity(optuna.logging.ERROR)
            lock.acquire()  # mends what a killed worker has left
            lock.release()
            storage = optuna.storages.JournalStorage(JournalFileBackend(str(file), lock_obj=lock))
        except OSError as error:
            raise UserError(f"{folder}: cannot be written ({error.strerror}); give another folder with --to") from None
        with self.alone():
            there = storage.get_all_studies()
            make = optuna.create_study if not there else optuna.load_study
            self._study = make(storage=storage, study_name=STUDY)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While it is open, no other worker plans. Raises UserError where the file system has no locks."""
        held = locked(self.folder / "plan.lock", wait=True)
        try:
            yield
        finally:
            if held is not None:
                held.close()

    def say(self, key: str, value: Any) -> None:
        """Sets what the search has under ``key``; to be called while ``alone``."""
        self._study.set_user_attr(key, value)

    def said(self, key: str) -> Any:
        """What the search has under ``key``, or None."""
        return self._study.user_attrs.get(key)

    def result_file(self, number: int) -> pathlib.Path:
        """The log of a trial."""
        return self.folder / "trials" / f"{number:03d}" / RESULT

    def trials(self) -> List[Trial]:
        """All of them, by number."""
        return [_trial(each) for each in self._study.get_trials(deepcopy=False)]

    def begin(self, point: Point, stage: str, seed: int, host: str) -> Tuple[int, IO[Any]]:
        """A new trial, in one record; its lock is held until the stream is closed here and in every process that has it."""
        parameters = {name: value for name, value in point._asdict().items() if value is not None}
        distributions: Dict[str, BaseDistribution] = {name: FloatDistribution(0, 1e9) for name in parameters}
        facts = {"stage": stage, "seed": seed, "host": host}
        self._study.add_trial(
            create_trial(state=TrialState.RUNNING, params=parameters, distributions=distributions, user_attrs=facts)
        )
        number = self._study.get_trials(deepcopy=False)[-1].number
        file = self.result_file(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        held = locked(file.parent / "lock", wait=False)
        assert held is not None  # its number is new
        return number, held

    def note(self, number: int, text: str) -> None:
        """Why a trial is stopped, or how it ended."""
        self._study._storage.set_trial_user_attr(self._id(number), "note", text)

    def accuracy(self, number: int, epoch: int, accuracy: float) -> None:
        """Of a running trial, for those who look on."""
        self._study._storage.set_trial_intermediate_value(self._id(number), epoch, accuracy)

    def finish(self, number: int, value: float) -> None:
        """It came to its end."""
        self._study.tell(number, value, skip_if_finished=True)

    def stop(self, number: int) -> None:
        """It was stopped, for it could not matter any more."""
        self._study.tell(number, state=TrialState.PRUNED, skip_if_finished=True)

    def fail(self, number: int) -> None:
        """It says nothing about its point."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study.tell(number, state=TrialState.FAIL, skip_if_finished=True)

    def abandoned(self) -> List[Trial]:
        """Running trials whose worker and run have ended; to be called while ``alone``."""
        found = []
        for trial in self.trials():
            if trial.state == "running":
                lock = self.result_file(trial.number).parent / "lock"
                lock.parent.mkdir(parents=True, exist_ok=True)
                held = locked(lock, wait=False)
                if held is not None:
                    held.close()
                    found.append(trial)
        return found

    def _id(self, number: int) -> int:
        return self._study.get_trials(deepcopy=False)[number]._trial_id


def evidence(trials: List[Trial]) -> Dict[Point, Evidence]:
    """What the trials say of their points."""
    found: Dict[Point, Evidence] = {}
    for trial in trials:
        known = found.get(trial.point, Evidence())
        if trial.state == "finished" and trial.value is not None:
            found[trial.point] = known._replace(values=(*known.values, trial.value))
        elif trial.state == "stopped":
            found[trial.point] = known._replace(out=True)
    return found


def _trial(of: FrozenTrial) -> Trial:
    facts: Mapping[str, Any] = of.user_attrs
    values = {name: of.params.get(name) for name in Point._fields}
    whole = {name: int(values[name] or 0) for name in ("batch_size", "num_epochs")}
    point = Point(**{**values, **whole})  # type: ignore[arg-type]
    state = _STATES.get(of.state) or ("failed" if facts.get("note") else "interrupted")
    seconds = of.duration.total_seconds() if of.duration else None
    value = of.value if of.state == TrialState.COMPLETE else None
    return Trial(of.number, point, facts.get("stage", ""), facts.get("seed", 0), state, value, facts.get("note", ""), seconds,
                 facts.get("host", ""))


class _Lock(JournalFileOpenLock):
    """A lock that ends with its process; Optuna's own are files, which stay behind when a worker is killed. Whoever gets it cuts
    off the line that such a worker has not finished: with such a line in its middle the journal could not be read any more."""

    def __init__(self, journal: pathlib.Path):
        super().__init__(str(journal))
        self._journal = journal
        self._held: Optional[IO[Any]] = None

    def acquire(self) -> bool:
        self._held = locked(self._journal.with_suffix(".lock"), wait=True)
        if self._journal.exists():
            with self._journal.open("r+b") as stream:
                _cut_unfinished_line(stream)
        return True

    def release(self) -> None:
        if self._held is not None:
            self._held.close()


def _cut_unfinished_line(stream: IO[bytes]) -> None:
    size = end = stream.seek(0, os.SEEK_END)
    while end > 0:
        begin = max(0, end - 4096)
        stream.seek(begin)
        newline = stream.read(end - begin).rfind(b"\n")
        if newline >= 0:
            end = begin + newline + 1
            break
        end = begin
    if end < size:
        stream.truncate(end)


def locked(file: pathlib.Path, wait: bool) -> Optional[IO[Any]]:
    """The file, locked; None where another has locked it and this one is not to wait.

    Raises UserError where the file system has no locks.
    """
    stream = file.open("a")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        stream.close()
        return None
    except OSError as error:
        stream.close()
        raise UserError(f"{file}: cannot be locked ({error.strerror}); give a folder whose file system has locks") from None
    return stream

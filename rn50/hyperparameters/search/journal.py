"""State of a search: Optuna's journal, a file in the search's folder that any number of workers append to.

A trial is one run. Its log decides: a trial with a complete log is finished even if its worker was killed
before recording that. A lock on a file of the trial shows that its worker is alive; the worker shares it with
the run.
"""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from rn50 import files
from rn50.errors import UserError
from rn50.hyperparameters.search import objective
from rn50.hyperparameters.search.locks import JournalLock, locked, locked_if_free
from rn50.hyperparameters.search.method import Evidence, Point
from rn50.packages import needed_for
from rn50.printed import Hidden
from rn50.results.parse import read_log

with needed_for("rn50 search"):
    import optuna
    from optuna.distributions import BaseDistribution, FloatDistribution
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import FrozenTrial, TrialState, create_trial

STUDY = "rn50 search"
RESULT = "result_0.txt"
_RECORD = b'{"op_code":'
LARGEST = 1e9
"""Upper bound of every parameter, which Optuna requires; the method has its own bounds."""


class Trial(NamedTuple):
    """Trial in the journal."""

    number: int
    """Number of the trial."""
    point: Hidden[Point]
    stage: str
    """Stage of the search."""
    seed: int
    state: str
    """running, finished, stopped (as hopeless), interrupted or failed."""
    value: float | None
    """Epochs to the target."""
    note: str
    """Why it was stopped, or empty."""
    seconds: Hidden[float | None]
    host: Hidden[str]


_STATES = {TrialState.RUNNING: "running", TrialState.COMPLETE: "finished", TrialState.PRUNED: "stopped"}


class Journal:
    """The journal of the search in ``folder``."""

    def __init__(self, folder: pathlib.Path):
        """Open the journal, or create it. Raises UserError if the folder cannot be written or its journal.log
        is not a journal."""
        self.folder = folder
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        file, remedy = folder / "journal.log", "give another --output"
        with files.errors_of(folder, remedy, "cannot be written"):
            (folder / "trials").mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(files.MissingError), files.open_regular(file, remedy) as stream:
            begins = stream.read(len(_RECORD))
            if not _RECORD.startswith(begins):  # the journal's lock would cut off an unfinished last line
                raise UserError(file, "not the journal of a search", remedy)
        with self.alone(), files.errors_of(file, remedy, "cannot be written"):
            try:
                backend = JournalFileBackend(str(file), lock_obj=JournalLock(file))
                self._storage = optuna.storages.JournalStorage(backend)
                make = optuna.load_study if self._storage.get_all_studies() else optuna.create_study
                self._study = make(storage=self._storage, study_name=STUDY)
                self._study_id = self._storage.get_study_id_from_name(STUDY)
                self.trials()
            except (UserError, OSError):
                raise
            except Exception as error:  # Optuna raises many types, KeyError and AssertionError among them
                problem = f"not the journal of a search ({type(error).__name__})"
                raise UserError(file, problem, remedy) from error

    def alone(self) -> IO[Any]:
        """Return a context that keeps all other workers from planning while it is open."""
        return locked(self.folder / "plan.lock")

    def record(self, key: str, value: Any) -> None:
        """Set the search's value of ``key``. Call it while ``alone``."""
        self._study.set_user_attr(key, value)

    def recorded(self, key: str) -> Any:
        """Return the search's value of ``key``, or None."""
        return self._study.user_attrs.get(key)

    def result_file(self, number: int) -> pathlib.Path:
        """Return the path of a trial's log."""
        return self.folder / "trials" / f"{number:03d}" / RESULT

    def trials(self) -> list[Trial]:
        """Return all trials, by number."""
        return [_trial(frozen) for frozen in self._study.get_trials(deepcopy=False)]

    def begin(self, point: Point, stage: str, seed: int, host: str) -> tuple[int, IO[Any]]:
        """Add a trial in one record. Call it while ``alone``. The trial is alive until every process that has
        the stream has closed it."""
        parameters = {name: value for name, value in point._asdict().items() if value is not None}
        distributions: dict[str, BaseDistribution] = dict.fromkeys(parameters, FloatDistribution(0, LARGEST))
        about: dict[str, Any] = {"params": parameters, "distributions": distributions}
        facts = {"stage": stage, "seed": seed, "host": host}
        self._study.add_trial(create_trial(state=TrialState.RUNNING, user_attrs=facts, **about))
        number = self._study.get_trials(deepcopy=False)[-1].number
        held = self._life(number)
        assert held is not None  # nobody else knows its number
        return number, held

    def _life(self, number: int) -> IO[Any] | None:
        """Return the lock of a trial, None if a live process has it."""
        file = self.result_file(number).with_name("lock")
        file.parent.mkdir(parents=True, exist_ok=True)
        return locked_if_free(file)

    def note(self, number: int, text: str) -> None:
        """Record why a trial is stopped, or how it ended."""
        self._storage.set_trial_user_attr(self._id(number), "note", text)

    def accuracy(self, number: int, epoch: int, accuracy: float) -> None:
        """Record the accuracy of a running trial, for monitoring."""
        self._storage.set_trial_intermediate_value(self._id(number), epoch, accuracy)

    def finish(self, number: int, value: float) -> None:
        """Mark a trial as finished."""
        self._study.tell(number, value, skip_if_finished=True)

    def settle(self, number: int, is_stopped: bool) -> None:
        """Record how a trial ended. A whole log finishes it. Without one it was stopped, because it could no
        longer beat the best, or it failed and says nothing about its point."""
        if self.result_file(number).exists():
            self.finish(number, objective.value(read_log(self.result_file(number)).evaluations))
        else:
            state = TrialState.PRUNED if is_stopped else TrialState.FAIL
            self._study.tell(number, state=state, skip_if_finished=True)

    def abandoned(self) -> Iterator[Trial]:
        """Yield the trials marked as running whose worker and run have ended. Call it while ``alone``."""
        for trial in self.trials():
            held = self._life(trial.number) if trial.state == "running" else None
            if held is not None:
                held.close()
                yield trial

    def _id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)


def evidence(trials: list[Trial]) -> dict[Point, Evidence]:
    """Return the evidence of the trials by point."""
    by_point: dict[Point, Evidence] = {}
    for trial in trials:
        known = by_point.get(trial.point, Evidence())
        if trial.state == "finished" and trial.value is not None:
            by_point[trial.point] = known._replace(values=(*known.values, trial.value))
        elif trial.state == "stopped":
            by_point[trial.point] = known._replace(ruled_out=True)
    return by_point


def _trial(frozen: FrozenTrial) -> Trial:
    facts: dict[str, Any] = {"note": "", **frozen.user_attrs}
    values: dict[str, Any] = {name: frozen.params.get(name) for name in Point._fields}
    for name in ("batch_size", "num_epochs"):
        values[name] = int(values[name])
    state = _STATES.get(frozen.state) or ("failed" if facts["note"] else "interrupted")
    value = frozen.value if frozen.state == TrialState.COMPLETE else None
    seconds = frozen.duration.total_seconds() if frozen.duration else None
    return Trial(frozen.number, Point(**values), state=state, value=value, seconds=seconds, **facts)

"""A search from its first trial to the confirmation, by one or several calls on one or several machines."""

import pathlib
import signal
import time
from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

from rn50 import rules
from rn50.errors import UserError
from rn50.hyperparameters.search import confirmation, method, objective, shares, subject
from rn50.hyperparameters.search.confirmation import Pair, Slot
from rn50.hyperparameters.search.journal import Journal, Trial, evidence
from rn50.hyperparameters.search.method import Evidence, Plan, Point
from rn50.hyperparameters.search.progress import Progress
from rn50.hyperparameters.search.subject import Subject
from rn50.hyperparameters.search.training import TARGET_MISSED, TARGET_REACHED, Training, evaluations, was_killed

POLL_S = 1.0
MOST_KILLED = 3
"""So many runs of a point, or of the confirmation, may be killed by a signal that nobody here sent."""


@dataclass(frozen=True)
class Options:
    """``trials`` and ``minutes`` end the search, not the confirmation; ``repeats`` runs decide a point, ``seeds`` confirm it on
    the data of ``confirm_data``, where they are others."""

    workers: int
    trials: Optional[int]
    minutes: Optional[float]
    repeats: int
    seeds: int
    confirm_data: Optional[pathlib.Path]


@dataclass
class _Job:
    """A run in hand: a trial or one of the confirmation."""

    training: Training
    name: str
    point: Point
    trial: Optional[int] = None
    slot: Optional[Slot] = None
    said: int = 0
    reason: str = ""


class StoppedError(Exception):
    """A signal has ended the search."""

    def __init__(self, number: signal.Signals):
        super().__init__(f"stopped by {number.name}; the same command goes on")
        self.number = number


class Search:
    """One call of a search."""

    def __init__(self, on: Subject, folder: pathlib.Path, options: Options, progress: Progress):
        """Raises UserError where the folder cannot be written, or holds another search."""
        self.subject, self.folder, self.options = on, folder.resolve(), options
        self._shares = shares.of(options.workers, on.config.run.device)
        self.journal = Journal(self.folder)
        self._agree()
        self._progress = progress
        self._jobs: Dict[int, _Job] = {}
        self._asked: Optional[signal.Signals] = None
        self._begun = time.monotonic()
        self._killed = 0

    def _agree(self) -> None:
        """All calls in one folder are of one search."""
        confirm = subject.sizes(self.options.confirm_data) if self.options.confirm_data else None
        own = {**self.subject.identity, "options": {
            "--repeats": self.options.repeats, "--seeds-to-confirm": self.options.seeds, "--confirm-data": confirm,
        }}  # fmt: skip
        with self.journal.alone():
            there = self.journal.said("search")
            if there is None:
                self.journal.say("search", own)
                return
        for what, of in (("configuration", "config"), ("data", "data"), ("options", "options")):
            differs = [name for name in {**there[of], **own[of]} if there[of].get(name) != own[of].get(name)]
            if differs:
                raise UserError(f"{self.folder}: holds a search with other {what} ({', '.join(differs)}); give another folder "
                                f"with --to, or the same command as there")

    def run(self) -> None:
        """Searches and confirms, until all is done or the budget is used up.

        Raises StoppedError on a signal and UserError where a run cannot be made; no run of this call is left then.
        """
        numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
        if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # nohup ignores it for us
            numbers.remove(signal.SIGHUP)
        handlers = {number: signal.signal(number, self._ask) for number in numbers}
        try:
            while self._asked is None:
                ended = self._fill()
                if ended and not self._jobs:
                    return
                time.sleep(POLL_S)
                self._look()
            raise StoppedError(self._asked)
        finally:
            self._stop_all()
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _ask(self, number: int, _: object) -> None:
        self._asked = signal.Signals(number)

    # What to run

    def _fill(self) -> bool:
        """Gives every free share of the machine a run; says whether there will never be one any more."""
        for share in range(len(self._shares)):
            if share not in self._jobs and self._asked is None:
                ended, job = self._next(share)
                if job is None:
                    return ended
                self._jobs[share] = job
                self._progress.event(f"{job.name}: begins")
        return False

    def _next(self, share: int) -> Tuple[bool, Optional[_Job]]:
        with self.journal.alone():
            self._recover()
            said = self.journal.said("confirmation")
            if said is None:
                trials = self.journal.trials()
                plan = self.plan(trials)
                self._progress.state(trials, plan, self._most_left(trials, plan), len(self._shares), self.options.seeds)
                point = None if self._over(trials, plan) else _choose(plan, trials, self.options.repeats)
                if point is not None:
                    return False, self._trial(point, plan, trials, share)
                if any(trial.state == "running" for trial in trials) or self._jobs:
                    return False, None
                if not self._over(trials, plan) and plan.wanted:
                    return False, None
                pair = self._pair(trials, plan)
                if pair is None:
                    self.journal.say("over", False)
                    return True, None
                self.journal.say("confirmation", pair.to_json())
                self._progress.event("the search has ended; winner and baseline run again with fresh seeds")
            pair = self.pair
            assert pair is not None
            slot = confirmation.next_slot(self.folder, pair)
            self._progress.confirming(confirmation.left(self.folder, pair), len(self._shares))
            return not confirmation.left(self.folder, pair), self._confirming(slot, pair, share) if slot else None

    @property
    def pair(self) -> Optional[Pair]:
        """What is confirmed; None while it is searched, and where there is nothing to confirm."""
        said = self.journal.said("confirmation")
        return Pair.of_json(said) if said else None

    def plan(self, trials: List[Trial]) -> Plan:
        """What the method makes of the trials."""
        on = self.subject
        return method.plan(on.start, evidence(trials), self.options.repeats, on.possible, on.learning_rate_unit)

    def _pair(self, trials: List[Trial], plan: Plan) -> Optional[Pair]:
        baseline = confirmation.baseline_of(self.subject.start, trials)
        if baseline is None or plan.best is None or plan.best == baseline:
            return None
        return confirmation.pair(baseline, plan.best, self.options.seeds, [trial.seed for trial in trials])

    def _over(self, trials: List[Trial], plan: Plan) -> bool:
        """Whether the budget is used up. What one call finds counts for all: else another machine would go on for ever."""
        if not self.journal.said("over") and (self._most_left(trials, plan) == 0 or self._late(trials)):
            self.journal.say("over", True)
        return bool(self.journal.said("over"))

    def _most_left(self, trials: List[Trial], plan: Plan) -> int:
        """Trials that may still begin."""
        counted = sum(trial.state in ("finished", "stopped", "running") for trial in trials)
        budget = plan.most_runs if self.options.trials is None else max(0, self.options.trials - counted)
        return min(plan.most_runs, budget)

    def _late(self, trials: List[Trial]) -> bool:
        """Whether one more trial would leave too little time for the confirmation."""
        took = [trial.seconds for trial in trials if trial.state == "finished" and trial.seconds]
        if self.options.minutes is None or not took:
            return False
        needed = max(took) * (1 + -(-2 * self.options.seeds // len(self._shares)))
        return time.monotonic() - self._begun + needed > 60 * self.options.minutes

    def _trial(self, point: Point, plan: Plan, trials: List[Trial], share: int) -> _Job:
        seed = confirmation.fresh_seed(trial.seed for trial in trials)
        number, held = self.journal.begin(point, plan.stage, seed, subject.host())
        file = self.journal.result_file(number)
        environ = self.subject.environment(point, self.subject.data, seed, file)
        changes = " ".join(subject.changes(point, self.subject.start)) or "as it is"
        training = Training(environ, file, self._shares[share], held)
        return _Job(training, f"trial {number} ({plan.stage}: {changes})", point, number)

    def _confirming(self, slot: Slot, pair: Pair, share: int) -> _Job:
        point = pair.points[slot.who]
        data = self.options.confirm_data or self.subject.data
        environ = self.subject.environment(point, data, slot.seed, slot.result_file)
        training = Training(environ, slot.result_file, self._shares[share], slot.held)
        return _Job(training, f"{slot.who}, run {slot.number + 1} of {self.options.seeds}", point, slot=slot)

    def _recover(self) -> None:
        """What killed workers have left: a trial whose log is whole is finished, another begins again."""
        for trial in self.journal.abandoned():
            file = self.journal.result_file(trial.number)
            if file.exists():
                self.journal.finish(trial.number, objective.value(evaluations(file)))
            elif trial.note:
                self.journal.stop(trial.number)
            else:
                self.journal.fail(trial.number)
                self._progress.event(f"trial {trial.number}: its worker is gone; it begins again")

    # What becomes of it

    def _look(self) -> None:
        news = False
        for share, job in list(self._jobs.items()):
            seen = job.training.evaluations()
            news = news or len(seen) > job.said
            for each in seen[job.said:]:
                if job.trial is not None:
                    self.journal.accuracy(job.trial, int(each.epoch), each.accuracy)
            job.said = len(seen)
            status = job.training.poll()
            if status is not None:
                del self._jobs[share]
                news = True
                self._progress.event(f"{job.name}: {self._end(job, status)}")
        for job in self._jobs.values():
            if news and job.trial is not None and not job.training.asked_to_stop:
                job.reason = self._why_stop(job, job.trial) or ""
                if job.reason:
                    self.journal.note(job.trial, job.reason)
                    job.training.stop()

    def _why_stop(self, job: _Job, number: int) -> Optional[str]:
        trials = self.journal.trials()
        known, plan = evidence(trials), self.plan(trials)
        best, rival = plan.best, plan.value
        if best is None or rival is None or best == job.point:
            return None
        own = known.get(job.point, Evidence())
        if own.mean >= rival and (own.values or own.out):
            return "other runs of the same have put it out"
        of_best = [trial for trial in trials if trial.point == best and trial.state == "finished"]
        curves = [evaluations(self.journal.result_file(trial.number)) for trial in of_best] if rival < method.MISSED else []
        return objective.why_stop(job.training.evaluations(), method.limit(own, rival), curves)

    def _end(self, job: _Job, status: int) -> str:
        """Writes down how a run ended, and says it in words."""
        training, said = job.training, training_in_words(job.training)
        whole = status in (TARGET_REACHED, TARGET_MISSED) or training.finished
        if job.trial is None:
            if not whole and training.diverged:
                # Its log ends with a run that was aborted, which is what it was.
                training.result_file.with_name(training.result_file.name + ".partial").replace(training.result_file)
            elif not whole:
                self._again_or_raise(job, status)
            return said
        if whole:
            if job.reason:
                self.journal.note(job.trial, "")  # it was too late to stop it
            self.journal.finish(job.trial, objective.value(training.evaluations()))
        elif job.reason:
            self.journal.stop(job.trial)
            return f"stopped: {job.reason}"
        elif training.diverged:
            self.journal.note(job.trial, training.complaint)
            self.journal.finish(job.trial, objective.value(training.evaluations()))
            return training.complaint
        elif not was_killed(status) and job.point.batch_size > self.subject.start.batch_size:
            self.journal.note(job.trial, training.complaint)  # as where memory is too small for it
            self.journal.stop(job.trial)
            return f"cannot be run: {training.complaint}"
        else:
            self.journal.note(job.trial, training.complaint)
            self.journal.fail(job.trial)
            self._again_or_raise(job, status)
            return training.complaint
        return said

    def _again_or_raise(self, job: _Job, status: int) -> None:
        """A run that was killed from outside begins again, some times; any other fault has to be mended."""
        self._killed += 1
        if not was_killed(status) or self._killed > MOST_KILLED:
            raise UserError(f"{job.name}: {job.training.complaint} (what it printed is in {job.training.output})")

    def _stop_all(self) -> None:
        for job in self._jobs.values():
            job.training.stop()
        while self._jobs:
            for share, job in list(self._jobs.items()):
                status = job.training.poll()
                if status is not None:
                    del self._jobs[share]
                    if job.trial is not None and job.training.finished:
                        self.journal.finish(job.trial, objective.value(job.training.evaluations()))
                    elif job.trial is not None:
                        self.journal.stop(job.trial) if job.reason else self.journal.fail(job.trial)
            time.sleep(POLL_S / 10)


def training_in_words(training: Training) -> str:
    """How far a run has come."""
    seen = training.evaluations()
    reached = objective.epochs_to_target(seen)
    took = f"{training.seconds:.0f} s"
    if reached is not None:
        return f"target reached after {seen[-1].epoch:g} epochs ({reached:.2f}), {took}"
    top = max((each.accuracy for each in seen), default=0.0)
    return f"target {rules.TARGET_ACCURACY} missed after {len(seen)} epochs, top-1 {top:.4f} at best, {took}"


def _choose(plan: Plan, trials: List[Trial], repeats: int) -> Optional[Point]:
    """The point that wants a run most: a first one before a second one. None where enough are in hand."""
    known = evidence(trials)

    def runs(point: Point) -> int:
        return len(known.get(point, Evidence()).values) + sum(t.state == "running" and t.point == point for t in trials)

    wanted = [point for point in plan.wanted if runs(point) < repeats]
    return min(wanted, key=runs) if wanted else None

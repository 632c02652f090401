"""``Search`` is a call of ``rn50 search``: it starts the runs that the scheduler names, watches them, stops
those that can no longer beat the best, and records how they ended.

A trial is a run that tries a point, a set of hyperparameters. After the trials come the runs of the
confirmation, whose ``task.trial`` is None; none of them is stopped as hopeless.
"""

import signal
import time
from collections.abc import Sequence

from rn50.benchmark import rules
from rn50.errors import Status, UserError
from rn50.hyperparameters.search import method, objective
from rn50.hyperparameters.search.journal import evidence
from rn50.hyperparameters.search.method import Evidence
from rn50.hyperparameters.search.training import Training, was_killed
from rn50.hyperparameters.search.trial_scheduler import TrialScheduler, say_with_time
from rn50.machine import binding, hardware
from rn50.process import handling, not_ignored
from rn50.results.parse import partial_name, read_log

POLL_S = 1.0
"""Seconds from one look at the runs to the next."""
MOST_KILLED = 3
"""Number of runs that may be killed from outside, for instance by a lack of memory, before the call ends."""


def shares(workers: int, device: str) -> list[tuple[int, ...]]:
    """Return the cores of each worker. Raises UserError if the machine has fewer cores than workers, or
    several workers would share its GPUs."""
    here = hardware.read()
    if workers > here.usable_cpus:
        problem = f"this machine gives {here.usable_cpus} cores"
        raise UserError(f"--workers {workers}", problem, "give no more workers than that")
    if workers > 1 and device == "gpu":
        raise UserError(f"--workers {workers}", "several runs would share the GPUs", "leave it out")
    return [share.cpus for share in binding.plan(here, workers, near_gpus=False)]


class Search:
    """A call of a search. On each share of the machine's cores one run at a time trains."""

    def __init__(self, scheduler: TrialScheduler, shares: Sequence[Sequence[int]], lock: int):
        """``shares`` are the shares of the cores; ``lock`` is a file descriptor that every run inherits (see
        ``Training``)."""
        self._scheduler, self._journal = scheduler, scheduler.journal
        self._shares, self._lock = shares, lock
        self._jobs: dict[int, Training] = {}
        """Index of a share -> the run on it."""
        self._signal: signal.Signals | None = None
        """Signal that asked the search to stop."""
        self._killed = 0

    def run(self) -> signal.Signals | None:
        """Search and confirm until nothing is left to run, or until a signal; return the signal, or None.

        Raises UserError if a run cannot be started or fails. When this method returns or raises, no run of
        the call is alive.
        """
        numbers = [signal.SIGINT, signal.SIGTERM, *not_ignored(signal.SIGHUP)]
        with handling(dict.fromkeys(numbers, self._stop)):
            try:
                with self._scheduler.bar as bar:
                    while self._signal is None:
                        self._fill()
                        if self._scheduler.ended and not self._jobs:
                            break
                        time.sleep(POLL_S)
                        self._look()
                        bar.refresh()
                return self._signal
            except OSError as error:
                where = error.filename or self._scheduler.folder
                raise UserError(where, error.strerror, "fix it, and the same command goes on") from error
            finally:
                self._stop_all()

    def _stop(self, number: int, _: object) -> None:
        """Note a signal, which ends the loop of ``run``."""
        self._signal = signal.Signals(number)

    def _fill(self) -> None:
        """Start a run on every free share, as long as the scheduler has runs."""
        for share, cpus in enumerate(self._shares):
            if share not in self._jobs and self._signal is None:
                task = self._scheduler.next([job.task for job in self._jobs.values()])
                if task is None:
                    return
                self._jobs[share] = Training(task, cpus, self._lock)
                say_with_time(f"{task.name}: begins")

    def _look(self) -> None:
        """Record the end of the runs that have ended. If a run ended or was evaluated, stop the trials that
        can no longer beat the best."""
        has_news = False
        for share, job in list(self._jobs.items()):
            epochs = len(job.evaluations())
            has_news = has_news or epochs > job.epochs
            job.epochs = epochs
            status = job.poll()
            if status is not None:
                del self._jobs[share]
                has_news = True
                say_with_time(f"{job.task.name}: {self._end(job, status)}")
        # Runs of the confirmation and runs that are being stopped already are left alone.
        for job in self._jobs.values():
            if has_news and job.task.trial is not None and not job.reason:
                job.reason = self._why_stop(job) or ""
                if job.reason:
                    self._journal.note(job.task.trial, job.reason)
                    job.stop()

    def _why_stop(self, job: Training) -> str | None:
        """Return why a trial can no longer beat the best; None: it may."""
        trials = self._journal.trials
        plan = self._scheduler.plan(trials)
        # There is nothing to compare with yet, or this is another run of the best point.
        if plan.best is None or plan.value is None or plan.best == job.task.point:
            return None
        point_evidence = evidence(trials).get(job.task.point, Evidence())
        repeats = self._scheduler.options.repeats
        verdict = method.decided(point_evidence, plan.value, repeats)
        # Other runs of the point have decided it meanwhile: it is no better than the best.
        if verdict is not None and verdict >= plan.value:
            return "other runs of the same have ruled it out"
        # The curves with which this run is compared: of the best point's runs, if they reached the target.
        of_best = [trial for trial in trials if trial.point == plan.best and trial.state == "finished"]
        logs = [self._journal.result_file(trial.number) for trial in of_best if plan.value < method.MISSED]
        curves = [read_log(log).evaluations for log in logs]
        limit = method.limit(point_evidence, plan.value, repeats)
        return objective.why_stop(job.evaluations(), limit, curves)

    def _end(self, job: Training, status: int) -> str:
        """Record how a run ended, by its exit ``status``, and return the outcome in words. Raises UserError
        if the run failed in a way that ends the search."""
        number = job.task.trial
        complaint = job.complaint
        if job.finished or job.reason:  # its log is complete, or the search has stopped it
            self._settle(job)
            return _in_words(job) if job.finished else f"stopped: {job.reason}"
        if number is not None:
            self._journal.note(number, complaint)
        has_larger_batch = job.task.point.batch_size > self._scheduler.subject.start.batch_size
        if status == Status.DIVERGED:
            if number is None:  # a run of the confirmation counts as missed; its log says "aborted"
                partial_name(job.task.result_file).replace(job.task.result_file)
            else:
                self._journal.finish(number, objective.value(job.evaluations()))
        elif number is not None and has_larger_batch and not was_killed(status):
            # A batch larger than that with which the search began may be too large for the memory.
            self._journal.settle(number, is_stopped=True)
        else:
            # A run that was killed from outside is made again, up to ``MOST_KILLED`` times. Any other fault
            # ends the search.
            self._settle(job)
            self._killed += 1
            if not was_killed(status) or self._killed > MOST_KILLED:
                raise UserError(job.task.name, f"{complaint} (what it printed is in {job.output})")
        return complaint

    def _settle(self, job: Training) -> None:
        """Record the end of a trial by its log, or as stopped if the search stopped it."""
        if job.task.trial is not None:
            if job.reason and job.finished:
                self._journal.note(job.task.trial, "")  # it finished before it could be stopped
            self._journal.settle(job.task.trial, is_stopped=bool(job.reason))

    def _stop_all(self) -> None:
        """Stop all runs, wait for their end and record it."""
        for job in self._jobs.values():
            job.stop()
        while self._jobs:
            for share, job in list(self._jobs.items()):
                if job.poll() is not None:
                    del self._jobs[share]
                    self._settle(job)
            time.sleep(POLL_S / 20)


def _in_words(job: Training) -> str:
    """Return the outcome of a finished run in words."""
    curve = job.evaluations()
    reached, best = objective.epochs_to_target(curve), objective.best_accuracy(curve)
    ended = f"target {rules.TARGET_ACCURACY} missed after {len(curve)} epochs, top-1 {best:.4f} at best"
    if reached is not None:
        ended = f"target reached after {curve[-1].epoch:g} epochs ({reached:.2f})"
    return f"{ended}, {time.monotonic() - job.begun:.0f} s"

"""Next run of a search: trials first, then the confirmation."""

import datetime
import math
import pathlib
import statistics
import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from rich.progress import BarColumn, Progress, TextColumn

from rn50.errors import UserError
from rn50.hyperparameters.search import confirmation, method, subject
from rn50.hyperparameters.search.confirmation import Pair
from rn50.hyperparameters.search.journal import Journal, Trial, evidence
from rn50.hyperparameters.search.method import Evidence, NextRuns, Point
from rn50.hyperparameters.search.subject import Subject
from rn50.settings.config import Config
from rn50.terminal import Terminal, counted, say


@dataclass(frozen=True)
class Options:
    """Options of a search. ``trials`` and ``minutes`` limit the search, not the confirmation. ``repeats``
    runs decide a point, ``seeds_to_confirm`` runs confirm it, on the data of ``confirm_data`` if those are
    others."""

    workers: int
    trials: int | None
    minutes: float | None
    repeats: int
    seeds_to_confirm: int
    confirm_data: pathlib.Path | None


class Task(NamedTuple):
    """Run to make; ``trial`` is its number in the journal, None for a run of the confirmation."""

    name: str
    point: Point
    config: Config
    result_file: pathlib.Path
    trial: int | None


class TrialScheduler:
    """Scheduler of a search's trials and confirmation."""

    def __init__(self, searched: Subject, folder: pathlib.Path, options: Options):
        """Begin or go on with the search in ``folder``. Raises UserError if it cannot be written or holds
        another search."""
        self.subject, self.folder, self.options = searched, folder.resolve(), options
        self.journal = Journal(self.folder)
        self.ended = False
        """True once nothing is left to run."""
        console, text = Terminal(stderr=True), partial(TextColumn, markup=False)
        columns = text("{task.description}"), BarColumn(), text("{task.fields[left]}")
        # No thread refreshes it: this process starts others, and a fork while another thread runs is unsafe.
        how: dict[str, Any] = {"transient": True, "auto_refresh": False, "disable": not console.live}
        self.bar = Progress(*columns, console=console, **how)
        """Progress, on a terminal; lines show it elsewhere."""
        self._task = self.bar.add_task("search", total=None, left="")
        self._begun = time.monotonic()
        self._shown = ("", 0)
        self._agree()
        self._recover()

    def _agree(self) -> None:
        """Raise UserError if the folder holds another search; the first call records the identity of the
        search."""
        options = self.options
        confirm = subject.sizes(options.confirm_data) if options.confirm_data else None
        numbers = {"--repeats": options.repeats, "--seeds-to-confirm": options.seeds_to_confirm}
        identity = {**self.subject.identity, "options": {**numbers, "--confirm-data": confirm}}
        if not self.journal.search:
            self.journal.write(search=identity)
        for what, key in (("configuration", "config"), ("data", "data"), ("options", "options")):
            before, now = self.journal.search.get(key, {}), identity[key]
            differs = ", ".join(name for name in {**before, **now} if before.get(name) != now.get(name))
            if differs:
                problem = f"holds a search with other {what} ({differs})"
                raise UserError(self.folder, problem, "give another --output, or the same command as there")

    def next(self, in_hand: Collection[Task] = ()) -> Task | None:
        """Return a run to make beside those ``in_hand``; None if there is none now, or the search has
        ``ended``."""
        trials = self.journal.trials
        if self.pair is None:
            plan = self.plan(trials)
            self._show_state(trials, plan)
            over = not self._trials_left(trials, plan) or self._late(trials, plan)
            point = None if over else self._choose(plan, trials)
            if point is not None:
                return self._trial(point, plan, trials)
            if in_hand or not over:
                return None
            self._freeze(trials, plan)
        pair = self.pair
        if pair is None:
            self.ended = True
            return None
        left = confirmation.runs_left(self.folder, pair)
        if left:
            whole = _mean_seconds(trials, "finished")
            done = sum(map(len, pair.seeds.values())) - left
            self._show("confirmation", done, left, "run", left * whole / self.options.workers)
        self.ended = not left
        return self._confirming(pair, in_hand)

    def _show_state(self, trials: list[Trial], plan: NextRuns) -> None:
        """Show the progress of the search. The time left is an upper bound, because the plan depends on what
        the trials show."""
        left, options = self._trials_left(trials, plan), self.options
        confirming = 2 * options.seeds_to_confirm * _mean_seconds(trials, "finished")
        trying = left * _mean_seconds(trials, "finished", "stopped")
        seconds = (trying + confirming) / options.workers
        if options.minutes is not None:
            seconds = min(seconds, max(0.0, self._begun + 60 * options.minutes - time.monotonic()))
        is_reached = plan.value is not None and plan.value < method.MISSED
        best = f", best {plan.value:.2f} epochs" if is_reached else ""
        ended = sum(trial.state in ("finished", "stopped") for trial in trials)
        self._show(f"{plan.stage}{best}", ended, left, "trial", seconds)

    def _show(self, what: str, done: int, left: int, noun: str, seconds: float) -> None:
        """Show what is left; the seconds are 0 where they are not known."""
        eta = f", ETA <= {datetime.timedelta(seconds=round(seconds))}" if seconds else ""
        text = f"{counted(left, noun)} left at most{eta}"
        self.bar.update(self._task, description=what, completed=done, total=done + left, left=text)
        if self.bar.disable and (what, left) != self._shown:
            say_with_time(f"{what}: {text}")
        self._shown = (what, left)

    @property
    def pair(self) -> Pair | None:
        """Return the pair to confirm; None during the search, or if there is nothing to confirm."""
        stored = self.journal.confirmation
        return Pair(**stored) if stored else None

    def plan(self, trials: list[Trial]) -> NextRuns:
        """Return the method's plan for the trials."""
        its, repeats = self.subject, self.options.repeats
        return method.plan(its.start, evidence(trials), repeats, its.possible, its.learning_rate_unit)

    def _choose(self, plan: NextRuns, trials: list[Trial]) -> Point | None:
        """Return the point that needs a run most, a first run before a second one; None if enough are in
        hand."""
        by_point = evidence(trials)

        def rank(point: Point) -> tuple[bool, int, int]:
            ended = len(by_point.get(point, Evidence()).values)
            running = sum(trial.state == "running" and trial.point == point for trial in trials)
            # A point whose first run is still going comes last: that run may rule it out and make a second
            # one useless. Among points with as many runs, more finished ones come first: a hopeless one may
            # be ruled out before its next run.
            return running > 0 and not ended, ended + running, -ended

        points = [point for point in plan.wanted if rank(point)[1] < self.options.repeats]
        return min(points, key=rank) if points else None

    def _trials_left(self, trials: list[Trial], plan: NextRuns) -> int:
        """Return how many trials may still begin, at most."""
        counted = sum(trial.state in ("finished", "stopped", "running") for trial in trials)
        most = math.inf if self.options.trials is None else max(0, self.options.trials - counted)
        return int(min(plan.most_runs, most))

    def _late(self, trials: list[Trial], plan: NextRuns) -> bool:
        """Return whether one more trial would leave too little time for the confirmation."""
        took: dict[Point, float] = {}
        for trial in trials:
            if trial.state == "finished" and trial.seconds:
                took[trial.point] = max(took.get(trial.point, 0.0), trial.seconds)
        options = self.options
        if options.minutes is None or not took:
            return False
        baseline = confirmation.baseline_of(self.subject.start, trials)
        # Until a point is better than the baseline, the winner is taken to be as quick as the quickest run so
        # far.
        winner = took[plan.best] if plan.best in took and plan.best != baseline else min(took.values())
        slower = took[baseline] if baseline in took else max(took.values())
        needed = winner + confirmation.takes(slower, winner, options.seeds_to_confirm, options.workers)
        return time.monotonic() - self._begun + needed > 60 * options.minutes

    def _freeze(self, trials: list[Trial], plan: NextRuns) -> None:
        """Draw the seeds of the confirmation. If there is nothing to confirm, a call with a larger budget may
        go on."""
        baseline = confirmation.baseline_of(self.subject.start, trials)
        if baseline is None or plan.best is None or plan.best == baseline:
            return
        used = [trial.seed for trial in trials]
        pair = confirmation.pair(baseline, plan.best, self.options.seeds_to_confirm, used)
        self.journal.write(confirmation=pair._asdict())
        say_with_time("the search has ended; winner and baseline run again with fresh seeds")

    def _trial(self, point: Point, plan: NextRuns, trials: list[Trial]) -> Task:
        [seed] = confirmation.fresh_seeds(1, (trial.seed for trial in trials))
        number = self.journal.begin(point, plan.stage, seed)
        name = f"trial {number} ({plan.stage}: {subject.in_words(point, self.subject.start)})"
        log = self.journal.result_file(number)
        return Task(name, point, self.subject.run_of(point, self.subject.data, seed, log), log, number)

    def _confirming(self, pair: Pair, in_hand: Collection[Task]) -> Task | None:
        slot = confirmation.next_slot(self.folder, pair, [task.result_file for task in in_hand])
        if slot is None:
            return None
        data = self.options.confirm_data or self.subject.data
        name = f"{slot.who}, run {slot.number + 1} of {self.options.seeds_to_confirm}"
        point = pair.points[slot.who]
        config = self.subject.run_of(point, data, slot.seed, slot.result_file)
        return Task(name, point, config, slot.result_file, None)

    def _recover(self) -> None:
        """Settle the trials of a search that was killed: one with a complete log is finished, one with a note
        is stopped, any other begins again."""
        for trial in tuple(self.journal.trials):
            if trial.state == "running":
                self.journal.settle(trial.number, is_stopped=bool(trial.note))
                if self.journal.trials[trial.number].state == "interrupted":
                    say_with_time(f"trial {trial.number}: the search was killed; it begins again")


def say_with_time(line: str) -> None:
    """Print an event of a search with the time, on standard error."""
    say(f"{time.strftime('%H:%M:%S')} {line}", err=True)


def _mean_seconds(trials: list[Trial], *states: str) -> float:
    """Return the mean seconds of the trials that ended in one of the states, 0 before the first."""
    took = [trial.seconds for trial in trials if trial.seconds and trial.state in states]
    return statistics.mean(took) if took else 0.0

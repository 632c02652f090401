"""``TrialScheduler`` says which run of a search comes next: first the trials, then the confirmation.

It asks ``method.plan`` which points need runs, keeps to the limits of trials and minutes, and shows the
progress. ``Search`` starts the run, a ``Task``.
"""

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
    """Options of the command ``rn50 search``."""

    workers: int
    """Number of runs at the same time."""
    trials: int | None
    """Limit of the trials; None: no limit."""
    minutes: float | None
    """Limit of the minutes of this call, the confirmation included; None: no limit."""
    repeats: int
    """Most runs of a point; fewer are enough for a point that is clearly worse than the best."""
    seeds_to_confirm: int
    """Number of runs of the winner, and of the baseline, in the confirmation."""
    confirm_data: pathlib.Path | None
    """Folder of the data set of the confirmation; None: the data set of the search."""


class Task(NamedTuple):
    """A run that the search is to start, or has started."""

    name: str
    point: Point
    config: Config
    result_file: pathlib.Path
    trial: int | None
    """Number of the trial in the journal; None: a run of the confirmation."""


class TrialScheduler:
    """Scheduler of the trials and of the confirmation of a search."""

    def __init__(self, searched: Subject, folder: pathlib.Path, options: Options):
        """Begin the search in ``folder``, or go on with it. Raises UserError if the folder cannot be written
        or holds another search."""
        self.subject, self.folder, self.options = searched, folder.resolve(), options
        self.journal = Journal(self.folder)
        self.ended = False
        """True once nothing is left to run."""
        console = Terminal(stderr=True)
        text = partial(TextColumn, markup=False)
        columns = text("{task.description}"), BarColumn(), text("{task.fields[left]}")
        # No thread refreshes the bar, because this process forks, which is unsafe while other threads run.
        modes: dict[str, Any] = {"transient": True, "auto_refresh": False, "disable": not console.live}
        self.bar = Progress(*columns, console=console, **modes)
        """Progress on a terminal. In a pipe ``_show`` prints lines instead."""
        self._task = self.bar.add_task("search", total=None, left="")
        self._begun = time.monotonic()
        self._shown = ("", 0)
        """Stage, and number of runs left, of the last line that ``_show`` printed."""
        self._check_identity()
        self._recover()

    def _check_identity(self) -> None:
        """Record the identity of a new search: configuration, data and options. Raises UserError if the
        folder holds a search of another identity."""
        options = self.options
        numbers = {"--repeats": options.repeats, "--seeds-to-confirm": options.seeds_to_confirm}
        # A data set is identified by the sizes of its files in bytes.
        data_sizes = subject.sizes(options.confirm_data) if options.confirm_data else None
        identity = {**self.subject.identity, "options": {**numbers, "--confirm-data": data_sizes}}
        if not self.journal.search:
            self.journal.write(search=identity)
        for noun, key in (("configuration", "config"), ("data", "data"), ("options", "options")):
            before, now = self.journal.search.get(key, {}), identity[key]
            if differing := [name for name in {**before, **now} if before.get(name) != now.get(name)]:
                problem = f"holds a search with other {noun} ({', '.join(differing)})"
                raise UserError(self.folder, problem, "give another --output, or the same command as there")

    def next(self, in_hand: Collection[Task] = ()) -> Task | None:
        """Return the run to start next; None: none can begin before one of ``in_hand`` has ended, or the
        search has ``ended``. ``in_hand`` are the runs that were started and go on."""
        trials = self.journal.trials
        if self.pair is None:
            plan = self.plan(trials)
            self._show_state(trials, plan)
            trials_are_over = not self._trials_left(trials, plan) or self._is_late(trials, plan)
            point = None if trials_are_over else self._choose(plan, trials)
            if point is not None:
                return self._begin_trial(point, plan, trials)
            # The confirmation begins once the trials are over and the last of them has ended.
            if in_hand or not trials_are_over:
                return None
            self._begin_confirmation(trials, plan)
        pair = self.pair
        if pair is None:  # nothing to confirm
            self.ended = True
            return None
        left = confirmation.runs_left(self.folder, pair)
        if left:
            seconds = left * _mean_seconds(trials, "finished") / self.options.workers
            done = sum(map(len, pair.seeds.values())) - left
            self._show("confirmation", done, left, "run", seconds)
        self.ended = not left
        return self._next_confirmation_run(pair, in_hand)

    def _show_state(self, trials: list[Trial], plan: NextRuns) -> None:
        """Show the progress of the trials. The time left is an upper limit: a trial that does not help ends
        its stage early."""
        left = self._trials_left(trials, plan)
        # The confirmation runs the winner and the baseline with as many seeds each.
        confirmation_seconds = 2 * self.options.seeds_to_confirm * _mean_seconds(trials, "finished")
        trial_seconds = left * _mean_seconds(trials, "finished", "stopped")
        seconds = (trial_seconds + confirmation_seconds) / self.options.workers
        if self.options.minutes is not None:
            seconds = min(seconds, max(0.0, self._begun + 60 * self.options.minutes - time.monotonic()))
        is_reached = plan.value is not None and plan.value < method.MISSED
        best = f", best {plan.value:.2f} epochs" if is_reached else ""
        ended = sum(trial.state in ("finished", "stopped") for trial in trials)
        self._show(f"{plan.stage}{best}", ended, left, "trial", seconds)

    def _show(self, stage: str, done: int, left: int, noun: str, seconds: float) -> None:
        """Show how many runs are done and left, in a bar or a line. ``noun`` is the word for a run, and
        ``seconds`` the time left; 0: it is not known."""
        eta = f", ETA <= {datetime.timedelta(seconds=round(seconds))}" if seconds else ""
        text = f"{counted(left, noun)} left at most{eta}"
        self.bar.update(self._task, description=stage, completed=done, total=done + left, left=text)
        if self.bar.disable and (stage, left) != self._shown:
            say_with_time(f"{stage}: {text}")
        self._shown = (stage, left)

    @property
    def pair(self) -> Pair | None:
        """The winner and the baseline, which the confirmation compares; None: the trials are not over, or no
        point is better than the baseline."""
        stored = self.journal.confirmation
        return Pair(**stored) if stored else None

    def plan(self, trials: list[Trial]) -> NextRuns:
        """Return which points need runs next, by the evidence of the trials."""
        start, unit = self.subject.start, self.subject.learning_rate_unit
        return method.plan(start, evidence(trials), self.options.repeats, self.subject.possible, unit)

    def _choose(self, plan: NextRuns, trials: list[Trial]) -> Point | None:
        """Return the undecided point whose next run is most useful; None: every undecided point has enough
        runs that are finished or alive."""
        by_point = evidence(trials)

        def rank(point: Point) -> tuple[bool, int, int]:
            """Return the sort key of a point, of which the smallest is the most useful. Its second member is
            the number of runs that are finished or alive."""
            finished = len(by_point.get(point, Evidence()).values)
            alive = sum(trial.state == "running" and trial.point == point for trial in trials)
            # A point whose first run is alive comes last, because this run may rule the point out and make a
            # second one useless. Then a point with fewer runs comes first. Of points with as many runs, the
            # one with more finished runs comes first, because it may be ruled out before its next run.
            return alive > 0 and not finished, finished + alive, -finished

        points = [point for point in plan.undecided if rank(point)[1] < self.options.repeats]
        return min(points, key=rank) if points else None

    def _trials_left(self, trials: list[Trial], plan: NextRuns) -> int:
        """Return the largest number of trials that may still begin."""
        begun = sum(trial.state in ("finished", "stopped", "running") for trial in trials)
        # More trials may have begun than the limit allows: a later call may set a lower one.
        most = math.inf if self.options.trials is None else max(0, self.options.trials - begun)
        return int(min(plan.most_runs, most))

    def _is_late(self, trials: list[Trial], plan: NextRuns) -> bool:
        """Return True if another trial would leave too little time for the confirmation."""
        seconds_of: dict[Point | None, float] = {}  # of the longest run of each point
        for trial in trials:
            if trial.state == "finished" and trial.seconds:
                seconds_of[trial.point] = max(seconds_of.get(trial.point, 0.0), trial.seconds)
        options = self.options
        if options.minutes is None or not seconds_of:
            return False
        baseline_point = confirmation.baseline_of(self.subject.start, trials)
        baseline = seconds_of.get(baseline_point, max(seconds_of.values()))
        # Until a point is better than the baseline, the winner is taken to be as quick as the quickest point.
        best = None if plan.best == baseline_point else plan.best
        winner = seconds_of.get(best, min(seconds_of.values()))
        # Seconds of another trial, taken to last as long as a run of the winner, and of the confirmation.
        needed = winner + confirmation.duration(baseline, winner, options.seeds_to_confirm, options.workers)
        return time.monotonic() - self._begun + needed > 60 * options.minutes

    def _begin_confirmation(self, trials: list[Trial], plan: NextRuns) -> None:
        """Record the pair to confirm, with fresh seeds. If no point is better than the baseline, record
        nothing: a later call with more trials or minutes may go on with the search."""
        baseline = confirmation.baseline_of(self.subject.start, trials)
        if baseline is None or plan.best is None or plan.best == baseline:
            return
        used = [trial.seed for trial in trials]
        pair = confirmation.pair(baseline, plan.best, self.options.seeds_to_confirm, used)
        self.journal.write(confirmation=pair._asdict())
        say_with_time("the search has ended; winner and baseline run again with fresh seeds")

    def _begin_trial(self, point: Point, plan: NextRuns, trials: list[Trial]) -> Task:
        """Enter a new trial of a point in the journal, and return its run."""
        [seed] = confirmation.fresh_seeds(1, (trial.seed for trial in trials))
        number = self.journal.begin(point, plan.stage, seed)
        name = f"trial {number} ({plan.stage}: {subject.in_words(point, self.subject.start)})"
        log = self.journal.result_file(number)
        return Task(name, point, self.subject.run_of(point, self.subject.data, seed, log), log, number)

    def _next_confirmation_run(self, pair: Pair, in_hand: Collection[Task]) -> Task | None:
        """Return the next run of the confirmation; None: all runs are finished or ``in_hand``."""
        slot = confirmation.next_slot(self.folder, pair, [task.result_file for task in in_hand])
        if slot is None:
            return None
        data = self.options.confirm_data or self.subject.data
        name = f"{slot.who}, run {slot.number + 1} of {self.options.seeds_to_confirm}"
        point = pair.points[slot.who]
        config = self.subject.run_of(point, data, slot.seed, slot.result_file)
        return Task(name, point, config, slot.result_file, None)

    def _recover(self) -> None:
        """Record the end of trials that were running when the search was killed. A trial with a complete log
        is finished, and a trial with a note was being stopped. Any other trial is interrupted, and begins
        again."""
        for trial in tuple(self.journal.trials):
            if trial.state == "running":
                self.journal.settle(trial.number, is_stopped=bool(trial.note))
                if self.journal.trials[trial.number].state == "interrupted":
                    say_with_time(f"trial {trial.number}: the search was killed; it begins again")


def say_with_time(line: str) -> None:
    """Print an event of a search on standard error, with the time of day."""
    say(f"{time.strftime('%H:%M:%S')} {line}", err=True)


def _mean_seconds(trials: list[Trial], *states: str) -> float:
    """Return the mean seconds of the trials in one of these states; 0: there are none."""
    seconds = [trial.seconds for trial in trials if trial.seconds and trial.state in states]
    return statistics.mean(seconds) if seconds else 0.0

"""Progress of a search for people: a line for each event, with an upper bound of the time left."""

import datetime
import time

from rn50.hyperparameters.search.journal import Trial
from rn50.hyperparameters.search.method import MISSED, Plan
from rn50.terminal import counted, say


class Progress:
    """Progress on standard error of a search with ``workers``, confirmed by ``seeds``. What is left is an
    upper bound, because the plan depends on what the trials show."""

    def __init__(self, minutes: float | None, workers: int, seeds: int):
        self._end = None if minutes is None else time.monotonic() + 60 * minutes
        self._workers, self._seeds = workers, seeds
        self._took = 0.0
        self._shown = ("", 0)

    def event(self, line: str) -> None:
        """Print an event with the time."""
        say(f"{time.strftime('%H:%M:%S')} {line}", err=True)

    def state(self, trials: list[Trial], plan: Plan, left: int) -> None:
        """Show the progress of the search."""
        took = [trial.seconds for trial in trials if trial.seconds and trial.state in ("finished", "stopped")]
        whole = [trial.seconds for trial in trials if trial.seconds and trial.state == "finished"]
        self._took = sum(whole) / len(whole) if whole else 0.0
        seconds = None
        if took:
            seconds = (left * sum(took) / len(took) + 2 * self._seeds * self._took) / self._workers
            if self._end is not None:
                seconds = min(seconds, max(0.0, self._end - time.monotonic()))
        best = f", best {plan.value:.2f} epochs" if plan.value is not None and plan.value < MISSED else ""
        self._show(f"{plan.stage}{best}", left, "trial", seconds)

    def confirming(self, left: int) -> None:
        """Show how many runs of the confirmation are left."""
        if left:
            self._show("confirmation", left, "run", left * self._took / self._workers if self._took else None)

    def _show(self, what: str, left: int, noun: str, seconds: float | None) -> None:
        if (what, left) != self._shown:
            self._shown = (what, left)
            eta = "" if seconds is None else f", ETA <= {datetime.timedelta(seconds=round(seconds))}"
            self.event(f"{what}: {counted(left, noun)} left at most{eta}")

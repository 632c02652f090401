"""Progress of a search for people: one line per event, and on a terminal a bar with an upper bound of the
time left."""

import time

from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from rn50.hyperparameters.search.journal import Trial
from rn50.hyperparameters.search.method import MISSED, Plan
from rn50.terminal import Terminal


class Progress:
    """Progress on standard error. What is left is an upper bound, because the plan depends on what the trials
    show."""

    def __init__(self, minutes: float | None):
        self._console = Terminal(stderr=True)
        self._end = None if minutes is None else time.monotonic() + 60 * minutes
        self._took = 0.0
        self._said = ("", 0)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[left]}", markup=False),
        )
        # No refresh thread: this process starts others, and forking while another thread runs is unsafe.
        self._bar = Bar(*columns, console=self._console, transient=True, auto_refresh=False)
        self._task = self._bar.add_task("search", total=None, left="")

    def __enter__(self) -> "Progress":
        if self._console.live:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.live:
            self._bar.stop()

    def event(self, line: str) -> None:
        """Print an event with the time."""
        self._console.print(f"{time.strftime('%H:%M:%S')} {line}")

    def tick(self) -> None:
        """Refresh the bar."""
        if self._console.live:
            self._bar.refresh()

    def state(self, trials: list[Trial], plan: Plan, left: int, workers: int, seeds: int) -> None:
        """Show the progress of the search."""
        took = [trial.seconds for trial in trials if trial.seconds and trial.state in ("finished", "stopped")]
        whole = [trial.seconds for trial in trials if trial.seconds and trial.state == "finished"]
        self._took = sum(whole) / len(whole) if whole else 0.0
        seconds = None
        if took:
            seconds = (left * sum(took) / len(took) + 2 * seeds * self._took) / workers
            if self._end is not None:
                seconds = min(seconds, max(0.0, self._end - time.monotonic()))
        best = f", best {plan.value:.2f} epochs" if plan.value is not None and plan.value < MISSED else ""
        self._show(f"{plan.stage}{best}", len(took), len(took) + left, seconds, "trials")

    def confirming(self, left: int, workers: int) -> None:
        """Show how many runs of the confirmation are left."""
        if not left:
            return
        self._show("confirmation", 0, left, left * self._took / workers if self._took else None, "runs")

    def _show(self, what: str, done: int, total: int, seconds: float | None, unit: str) -> None:
        eta = "" if seconds is None else f", ETA <= {_duration(seconds)}"
        left = f"{total - done} {unit if total - done != 1 else unit[:-1]} left at most{eta}"
        self._bar.update(self._task, description=what, completed=done, total=total, left=left)
        if not self._console.live and (what, total - done) != self._said:
            self._said = (what, total - done)
            self.event(f"{what}: {left}")


def _duration(seconds: float) -> str:
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"

"""Displays of a run, which ``timed_run.py`` calls as the run goes on.

``LiveDisplay`` is for people: a progress bar on a terminal, a line per epoch elsewhere. Under ``rn50 run``,
which draws one view of the whole campaign, rank 0 has a ``ProgressLineDisplay``: it prints lines that
``read_progress`` reads.
"""

import json
import math
import time
from typing import Any, NamedTuple

from rich import progress as bars
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rn50.settings.config import Config
from rn50.terminal import Terminal

PROGRESS = "RN50_TELL_PROGRESS"
"""Environment variable that ``rn50 run`` sets: rank 0 prints a line per ``EpochProgress`` in place of a bar,
from which ``rn50 run`` draws its view of all runs."""
CURVES = "RN50_TENSORBOARD"
"""Environment variable with the folder of ``rn50 run --tensorboard``; each run has a subfolder in it."""
_MARK = "rn50 progress "
"""Beginning of a line with an ``EpochProgress``."""


class EpochProgress(NamedTuple):
    """Progress within a run."""

    epoch: int
    """The current epoch, counted from 1."""
    share: float
    """Part of the epoch that is trained, from 0 to 1."""
    images_per_second: float | None = None
    """Training rate of the epoch so far, over all ranks; None: unknown."""
    loss: float | None = None
    """Training loss of the latest step that was read; None: unknown."""

    @property
    def line(self) -> str:
        """The line on standard error from which ``read_progress`` reads this progress."""
        return _MARK + json.dumps(self)


def read_progress(line: str) -> EpochProgress | None:
    """Return the progress that a line of ``EpochProgress.line`` holds; None for any other line."""
    return EpochProgress(*json.loads(line[len(_MARK) :])) if line.startswith(_MARK) else None


class Display:
    """Base class of displays. Its methods are the events of a run, and show nothing."""

    def initialising(self, what: str) -> None:
        """Show a step of the initialisation; the clock does not run yet."""

    def remark(self, line: str) -> None:
        """Show a line that a person should know."""

    def warn(self, line: str) -> None:
        """Show a line that a person should act on."""
        self.remark(f"warning: {line}")

    def epoch_begins(self, epoch: int) -> None:
        """Show that epoch ``epoch``, counted from 1, begins."""

    def trained(self, samples: int, loss: float) -> None:
        """Show that rank 0 has trained on ``samples`` samples of the epoch, and its training ``loss``."""

    def epoch_ends(self, epoch: int, images_per_second: float) -> None:
        """Show the end of an epoch and its images per second over all ranks."""

    def evaluated(self, epoch: int, accuracy: float) -> None:
        """Show the top-1 of the evaluation after ``epoch``, a fraction."""


class LiveDisplay(Display):
    """Shows epoch, images/s, loss, latest top-1 and the remaining time to the last evaluation, which is an
    upper bound: a run that reaches its target ends sooner."""

    def __init__(self, config: Config, console: Terminal):
        self._console = console
        self._ranks = config.ranks
        self._samples_per_epoch = config.epoch_samples
        self._epochs = config.evaluation_epochs[-1]
        self._target = config.run.target_accuracy
        self._begin = self._epoch_begin = time.monotonic()
        self._epoch = self._resumed_after = 0
        self._top1: float | None = None
        self._progress = bars.Progress(
            TextColumn("epoch {task.fields[epoch]:>2}/" + str(self._epochs)),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[rate]} img/s  loss {task.fields[loss]}  top-1 {task.fields[top1]}"),
            TimeElapsedColumn(),
            TextColumn("ETA <="),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=console,
            transient=True,
        )
        samples = self._epochs * self._samples_per_epoch
        fields: dict[str, Any] = {"epoch": 0, "rate": "-", "loss": "-", "top1": "-"}
        self._task = self._progress.add_task("", start=False, total=samples, **fields)

    def __enter__(self) -> "LiveDisplay":
        if self._console.live:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.live:
            self._progress.stop()

    def initialising(self, what: str) -> None:
        self._console.print(f"{what} ...")

    def remark(self, line: str) -> None:
        self._console.print(line)

    def epoch_begins(self, epoch: int) -> None:
        self._epoch_begin = time.monotonic()
        # The clock of the remaining time begins with the first epoch that this process trains: not with the
        # initialisation, and in a resumed run not with epoch 1.
        if not self._epoch:
            self._begin, self._resumed_after = self._epoch_begin, epoch - 1
            self._progress.reset(self._task, completed=self._resumed_after * self._samples_per_epoch)
        self._epoch = epoch
        self._progress.update(self._task, epoch=epoch)

    def trained(self, samples: int, loss: float) -> None:
        images = samples * self._ranks  # the ranks train in step
        self._show_rate(images, images / (time.monotonic() - self._epoch_begin), loss)

    def _show_rate(self, images: int, rate: float, loss: float) -> None:
        """Show images per second and loss, after ``images`` images of the epoch."""
        completed = (self._epoch - 1) * self._samples_per_epoch + images
        self._progress.update(self._task, completed=completed, rate=f"{rate:,.0f}", loss=f"{loss:.3f}")

    def epoch_ends(self, epoch: int, images_per_second: float) -> None:
        completed = epoch * self._samples_per_epoch
        self._progress.update(self._task, completed=completed, rate=f"{images_per_second:,.0f}")
        if not self._console.live:
            seconds_of_epoch = (time.monotonic() - self._begin) / (epoch - self._resumed_after)
            seconds_left = seconds_of_epoch * (self._epochs - epoch)
            rates = f"{images_per_second:,.0f} img/s  top-1 {self._top1_text()}"
            self._console.print(f"epoch {epoch:>2}/{self._epochs}  {rates}  ETA <= {seconds_left:.0f} s")

    def evaluated(self, epoch: int, accuracy: float) -> None:
        self._top1 = accuracy
        self._progress.update(self._task, top1=self._top1_text())
        verdict = "target reached" if accuracy >= self._target else f"target {self._target:g}"
        in_brackets = f" ({verdict})" if math.isfinite(self._target) else ""  # TARGET=none is infinite
        self._console.print(f"epoch {epoch:>2}: top-1 {accuracy:.4f}{in_brackets}")

    def _top1_text(self) -> str:
        """Return the latest top-1 as it is shown."""
        return "-" if self._top1 is None else f"{self._top1:.4f}"


class ProgressLineDisplay(LiveDisplay):
    """Prints a line per ``EpochProgress``, in place of the bar and of the line per epoch."""

    def _show_rate(self, images: int, rate: float, loss: float) -> None:
        self._console.print(EpochProgress(self._epoch, images / self._samples_per_epoch, rate, loss).line)

    def epoch_ends(self, epoch: int, images_per_second: float) -> None:
        self._console.print(EpochProgress(epoch, 1.0, images_per_second).line)

"""Show a run to a person: a live progress bar on a terminal, a plain line per epoch elsewhere; to ``rn50
run``, its progress."""

import json
import math
import time
from typing import NamedTuple

from rich import progress as bars
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rn50.settings.config import Config
from rn50.terminal import Terminal

PROGRESS = "RN50_TELL_PROGRESS"
"""Environment variable by which ``rn50 run`` asks rank 0 for ``EpochProgress`` in lines in place of a bar."""
CURVES = "RN50_TENSORBOARD"
"""Environment variable with the folder of ``rn50 run --tensorboard``; each run has a subfolder."""
_MARK = "rn50 progress "


class EpochProgress(NamedTuple):
    """Progress within a run: the current epoch, counted from 1, the part of it that is done, and its rate and
    loss so far."""

    epoch: int
    share: float
    images_per_second: float | None = None
    loss: float | None = None

    @property
    def line(self) -> str:
        """Return the line on standard error that carries it."""
        return _MARK + json.dumps(self)


def read_progress(line: str) -> EpochProgress | None:
    """Return the progress in a line, or None for any other line."""
    return EpochProgress(*json.loads(line[len(_MARK) :])) if line.startswith(_MARK) else None


class Display:
    """Shows a run to a person; the base class shows nothing."""

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
        """Show that rank 0 has seen ``samples`` samples of the epoch."""

    def epoch_ends(self, epoch: int, images_per_second: float) -> None:
        """Show the end of an epoch and its images per second over all ranks."""

    def evaluated(self, epoch: int, accuracy: float) -> None:
        """Show the top-1 of an evaluation, a fraction."""


class LiveDisplay(Display):
    """Shows epoch, images/s, loss, latest top-1 and the time left to the last evaluation; a run that reaches
    its target ends sooner."""

    def __init__(self, config: Config, console: Terminal):
        self._console = console
        self._ranks = config.ranks
        self._samples_per_epoch = config.epoch_samples
        self._epochs = config.evaluation_epochs[-1]
        self._target = config.run.target_accuracy
        self._begin = self._epoch_begin = time.monotonic()
        self._epoch = 0
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
        self._task = self._progress.add_task(
            "", start=False, total=samples, epoch=0, rate="-", loss="-", top1="-"
        )

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
        self._epoch, self._epoch_begin = epoch, time.monotonic()
        if epoch == 1:
            self._begin = self._epoch_begin
            self._progress.start_task(self._task)
        self._progress.update(self._task, epoch=epoch)

    def trained(self, samples: int, loss: float) -> None:
        seen = samples * self._ranks
        self._show_rate(seen, seen / (time.monotonic() - self._epoch_begin), loss)

    def _show_rate(self, seen: int, rate: float, loss: float) -> None:
        """Show the images per second and the loss after ``seen`` images of the epoch."""
        done = (self._epoch - 1) * self._samples_per_epoch + seen
        self._progress.update(self._task, completed=done, rate=f"{rate:,.0f}", loss=f"{loss:.3f}")

    def epoch_ends(self, epoch: int, images_per_second: float) -> None:
        done = epoch * self._samples_per_epoch
        self._progress.update(self._task, completed=done, rate=f"{images_per_second:,.0f}")
        if not self._console.live:
            left = (time.monotonic() - self._begin) / epoch * (self._epochs - epoch)
            rates = f"{images_per_second:,.0f} img/s  top-1 {self._shown_top1()}"
            self._console.print(f"epoch {epoch:>2}/{self._epochs}  {rates}  ETA <= {left:.0f} s")

    def evaluated(self, epoch: int, accuracy: float) -> None:
        self._top1 = accuracy
        self._progress.update(self._task, top1=self._shown_top1())
        verdict = " (target reached)" if accuracy >= self._target else f" (target {self._target:g})"
        verdict = verdict if math.isfinite(self._target) else ""
        self._console.print(f"epoch {epoch:>2}: top-1 {accuracy:.4f}{verdict}")

    def _shown_top1(self) -> str:
        return "-" if self._top1 is None else f"{self._top1:.4f}"


class TellingDisplay(LiveDisplay):
    """Prints its ``EpochProgress`` line by line, in place of a bar and of the line per epoch."""

    def _show_rate(self, seen: int, rate: float, loss: float) -> None:
        self._console.print(EpochProgress(self._epoch, seen / self._samples_per_epoch, rate, loss).line)

    def epoch_ends(self, epoch: int, images_per_second: float) -> None:
        self._console.print(EpochProgress(epoch, 1.0, images_per_second).line)

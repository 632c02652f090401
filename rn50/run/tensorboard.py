"""The curves of a run for TensorBoard (``rn50 run --tensorboard``). ``rn50 train`` wraps the display of the
run in ``recording``."""

import pathlib
import time
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

from rn50.benchmark import schedule
from rn50.packages import needed_for
from rn50.run.display import Display
from rn50.run.loop import LearningRates
from rn50.settings.config import Config


def recording(display: Display, config: Config, folder: str | None) -> AbstractContextManager[Display]:
    """Return a context that yields a ``TensorBoardDisplay`` around ``display``; without a ``folder``, the
    display itself. Raises UserError as ``TensorBoardDisplay`` does."""
    if not folder:
        return nullcontext(display)
    return closing(TensorBoardDisplay(display, config, pathlib.Path(folder)))


def folder_of(folder: str | pathlib.Path, log: pathlib.Path) -> pathlib.Path:
    """Return the folder of the curves of a ``log`` in the ``folder`` of --tensorboard. The name of the log's
    folder is a part of it, because runs with --set have logs of the same name in another folder."""
    return pathlib.Path(folder, log.parent.name, log.stem)


class TensorBoardDisplay(Display):
    """Passes every event on to the display ``inner``, and writes curves for TensorBoard: loss, images/s and
    learning rate about once a second, images/s after each epoch, top-1 after each evaluation. The horizontal
    axis counts training steps.

    Raises UserError if tensorboardX is not installed.
    """

    def __init__(self, inner: Display, config: Config, folder: pathlib.Path):
        with needed_for("--tensorboard"):
            from tensorboardX import SummaryWriter
        self._inner = inner
        self._config, self._rates = config, LearningRates(config)
        self._batch_size = config.hyperparameters.batch_size
        self._steps_per_epoch = schedule.steps_per_epoch(config.epoch_samples, config.ranks, self._batch_size)
        curves = str(folder_of(folder, pathlib.Path(config.run.result_file or "run")))
        self._new_writer = lambda step: SummaryWriter(curves, purge_step=step, flush_secs=5)
        self._writer: Any = None  # until the first epoch begins
        self._epoch, self._epoch_begin = 0, 0.0

    def initialising(self, what: str) -> None:
        self._inner.initialising(what)

    def remark(self, line: str) -> None:
        self._inner.remark(line)

    def epoch_begins(self, epoch: int) -> None:
        self._inner.epoch_begins(epoch)
        # Open the files here, because only rank 0 gets this event. A run that was interrupted may have left
        # curves there: TensorBoard drops their points from the first step of this epoch on (``purge_step``).
        self._writer = self._writer or self._new_writer((epoch - 1) * self._steps_per_epoch + 1)
        self._epoch, self._epoch_begin = epoch, time.monotonic()

    def trained(self, samples: int, loss: float) -> None:
        self._inner.trained(samples, loss)
        # The ranks train in step: a step of rank 0 is one of all, and ``samples`` are those of rank 0 alone.
        step = (self._epoch - 1) * self._steps_per_epoch + samples // self._batch_size
        rate = samples * self._config.ranks / (time.monotonic() - self._epoch_begin)
        self._add(step, loss=loss, learning_rate=self._rates.rate_of(step), images_per_second=rate)

    def epoch_ends(self, epoch: int, images_per_second: float) -> None:
        self._inner.epoch_ends(epoch, images_per_second)
        self._add(epoch * self._steps_per_epoch, epoch=epoch, epoch_images_per_second=images_per_second)

    def evaluated(self, epoch: int, accuracy: float) -> None:
        self._inner.evaluated(epoch, accuracy)
        self._add(epoch * self._steps_per_epoch, top_1=accuracy)
        self._writer.flush()

    def close(self) -> None:
        """Write what is not yet in the files, and close them."""
        if self._writer:
            self._writer.close()

    def _add(self, step: int, **values: float) -> None:
        """Add a point at ``step`` to each curve, by its name."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

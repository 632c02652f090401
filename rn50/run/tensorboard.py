"""The curves of a run for TensorBoard, written in addition to the display (``rn50 run --tensorboard``)."""

import contextlib
import pathlib
import time
from typing import Any

from rn50.benchmark import schedule
from rn50.packages import needed_for
from rn50.run.display import Display
from rn50.run.loop import LearningRates
from rn50.settings.config import Config


def recording(
    shown: Display, config: Config, folder: str | None
) -> contextlib.AbstractContextManager[Display]:
    """Return ``shown``, or a display that also writes to ``folder``. Raises as ``TensorBoardDisplay``."""
    if not folder:
        return contextlib.nullcontext(shown)
    return contextlib.closing(TensorBoardDisplay(shown, config, pathlib.Path(folder)))


def folder_of(folder: str | pathlib.Path, log: pathlib.Path) -> pathlib.Path:
    """Return the folder of the curves of a log; results of --set lie in a folder of their own."""
    return pathlib.Path(folder, log.parent.name, log.stem)


class TensorBoardDisplay(Display):
    """Passes everything on to ``shown`` and writes loss, images/s and learning rate about once a second, and
    top-1 and images/s at the end of an epoch. The horizontal axis counts training steps.

    Raises UserError if tensorboardX is not installed.
    """

    def __init__(self, shown: Display, config: Config, folder: pathlib.Path):
        with needed_for("--tensorboard"):
            from tensorboardX import SummaryWriter
        self._shown = shown
        self._config, self._rates = config, LearningRates(config)
        batch_size = config.hyperparameters.batch_size
        self._steps = schedule.steps_per_epoch(config.epoch_samples, config.ranks, batch_size)
        curves = str(folder_of(folder, pathlib.Path(config.run.result_file or "run")))
        self._new_writer = lambda step: SummaryWriter(curves, purge_step=step, flush_secs=5)
        self._writer: Any = None
        self._epoch, self._epoch_begin = 0, 0.0

    def initialising(self, what: str) -> None:
        self._shown.initialising(what)

    def remark(self, line: str) -> None:
        self._shown.remark(line)

    def epoch_begins(self, epoch: int) -> None:
        self._shown.epoch_begins(epoch)
        # Rank 0 alone gets here. From its first step on, TensorBoard drops the points of an earlier attempt.
        self._writer = self._writer or self._new_writer((epoch - 1) * self._steps + 1)
        self._epoch, self._epoch_begin = epoch, time.monotonic()

    def trained(self, samples: int, loss: float) -> None:
        self._shown.trained(samples, loss)
        step = (self._epoch - 1) * self._steps + samples // self._config.hyperparameters.batch_size
        rate = samples * self._config.ranks / (time.monotonic() - self._epoch_begin)
        self._add(step, loss=loss, learning_rate=self._rates.of(step), images_per_second=rate)

    def epoch_ends(self, epoch: int, images_per_second: float) -> None:
        self._shown.epoch_ends(epoch, images_per_second)
        self._add(epoch * self._steps, epoch=epoch, epoch_images_per_second=images_per_second)

    def evaluated(self, epoch: int, accuracy: float) -> None:
        self._shown.evaluated(epoch, accuracy)
        self._add(epoch * self._steps, top_1=accuracy)
        self._writer.flush()

    def close(self) -> None:
        """Write what is left."""
        if self._writer:
            self._writer.close()

    def _add(self, step: int, **values: float) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

"""``Batches``, the interface between the training loop and an input library, and the format of a batch.

The loop (``rn50/run/loop.py``) iterates over ``epoch``. ``dali_batches.py`` and ``loader_batches.py`` derive
from ``Batches`` for the two input libraries; a framework's files of the same names derive from those and put
the batches into its arrays.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

from rn50.data.pipeline.record_set import RecordSet, Split
from rn50.settings.config import Config


class BatchFormat(NamedTuple):
    """The format of the images of a batch: device, layout, precision and number of channels."""

    device_id: int | None
    """The GPU that prepares the batches; None: the CPU prepares them."""
    layout: str
    """"CHW" or "HWC": the order of channels, height and width."""
    half_precision: bool
    """True: float16; False: float32."""
    channels: int = 3
    """3, or 4: the fourth channel is zeros, so that a GPU reads a pixel with one aligned load."""

    @property
    def dtype(self) -> str:
        """NumPy's name of the type of a pixel value."""
        return "float16" if self.half_precision else "float32"

    def shape(self, batch_size: int, image_size: int) -> tuple[int, ...]:
        """Return the shape of the images of a batch: (B, channels, S, S) or (B, S, S, channels)."""
        sides = image_size, image_size
        return (batch_size, *((self.channels, *sides) if self.layout == "CHW" else (*sides, self.channels)))


class Batch(NamedTuple):
    """A batch in the framework's arrays."""

    images: Any
    """(B, ...), as ``BatchFormat.shape`` says."""
    labels: Any
    """(B,)"""
    samples: int
    """Number of samples that count, from the first on; those behind them only pad the batch."""
    global_samples: int
    """Sum of ``samples`` over the batches of all ranks in this step."""


class Batches(ABC):
    """The batches of one split for one rank. The input library prepares the next batches while a batch
    trains.

    A pass reads every sample of the rank's shard once. The class for an input library defines ``_next`` and
    ``_placed``.
    """

    wait_seconds = 0.0
    """Total time that ``_next`` took."""
    waiting = False
    """True while the rank waits for a batch of the input library."""
    sample_order: int | None = None
    """A number for the order of the samples that this rank read in the last pass; the sum over all ranks is
    the hash of the whole order, which is logged. None: the input library does not report the order."""

    def __init__(self, config: Config, split: Split, communicator: Any, ahead: int):
        """Open the files of the split. ``ahead`` is the number of batches that the input library prepares
        before they are needed."""
        self._split, self._rank, self._ranks = split, communicator.rank, communicator.size
        self._set = RecordSet(config, split, self._ranks)
        self._ahead, self._passes = ahead, 0

    def epoch(self) -> Iterator[Batch]:
        """Yield the batches of one pass over this rank's shard."""
        shard = self._shard()
        self._passes += 1
        for index in range(self._set.batches):
            # ``_placed`` returns images and labels, ``counts`` the two numbers of samples. No variable holds
            # the batch, so that its memory is free after its step.
            yield Batch(*self._placed(self._next_timed(), index), *self._set.counts(shard, index))

    def drain(self) -> None:
        """Discard the batches that the input library has prepared."""
        for _ in range(self._ahead):
            self._next_timed()

    def check_labels(self) -> None:
        """Raise UserError if a label in any batch so far was not a whole number in [0, classes). May wait for
        the device."""
        return

    def _shard(self) -> int:
        """Return the shard that this rank reads in the next pass."""
        return self._rank

    @abstractmethod
    def _next(self) -> Any:
        """Wait until the input library has prepared a batch, and return it in the library's own arrays."""

    @abstractmethod
    def _placed(self, prepared: Any, index: int) -> tuple[Any, Any]:
        """Return images and labels in the framework's arrays, on its device. ``prepared`` is the result of
        ``_next``, and ``index`` the number of the batch in its pass, from 0."""

    def _next_timed(self) -> Any:
        """Return the result of ``_next``, and record the time that it took."""
        self.waiting = True
        begin = time.perf_counter()
        try:
            return self._next()
        finally:
            self.waiting = False
            self.wait_seconds += time.perf_counter() - begin


class RepeatedBatch(Batches):
    """One batch, which stays on the device and is repeated without end, in place of an input library. No file
    is opened, and the rank waits for nothing."""

    def __init__(self, batch: Batch):
        self._batch, self._ahead = batch, 0

    def epoch(self) -> Iterator[Batch]:
        """Yield the batch again and again."""
        return iter(self._next, None)  # ends when ``_next`` returns None: never

    def _next(self) -> Batch:
        return self._batch

    def _placed(self, prepared: Batch, index: int) -> tuple[Any, Any]:
        return prepared.images, prepared.labels

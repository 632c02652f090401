"""Batches for a training loop, from any input library, and their format."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

from rn50.data.pipeline.record_set import RecordSet, Split
from rn50.settings.config import Config


class BatchFormat(NamedTuple):
    """Device, layout, precision and channels of the images."""

    device_id: int | None
    """The GPU that makes the batches; None: the CPU alone makes them."""
    layout: str
    """"CHW" or "HWC"."""
    half_precision: bool
    channels: int = 3
    """3, or 4: the last channel is zeros, so that a GPU reads a pixel at once."""

    @property
    def dtype(self) -> str:
        """Return the NumPy name of the images' type."""
        return "float16" if self.half_precision else "float32"

    def shape(self, batch_size: int, image_size: int) -> tuple[int, ...]:
        """Return the shape of the images of a batch: (B, channels, S, S) or (B, S, S, channels)."""
        sides = image_size, image_size
        return (batch_size, *((self.channels, *sides) if self.layout == "CHW" else (*sides, self.channels)))


class Batch(NamedTuple):
    """Images (B, ...) and labels (B,) in the framework's arrays, and the number of samples that count. The
    rest is padding."""

    images: Any
    labels: Any
    samples: int
    global_samples: int
    """Samples of this step over all ranks."""


class Batches(ABC):
    """Batches of one split for one rank, pass after pass, prepared while the previous one trains.

    An input library adds ``_next`` and ``_placed``.
    """

    wait_seconds = 0.0
    """Time spent in ``_next``, over the life of this object."""
    waiting = False
    """True while it waits for the input library."""
    sample_order: int | None = None
    """This rank's share of the hash of the last pass's order; None: the library does not tell the order."""

    def __init__(self, config: Config, split: Split, communicator: Any, ahead: int):
        self._split, self._rank, self._ranks = split, communicator.rank, communicator.size
        self._set = RecordSet(config, split, self._ranks)
        self._ahead, self._passes = ahead, 0

    def epoch(self) -> Iterator[Batch]:
        """Yield the batches of one pass over this rank's shard, without counting the samples that pad the
        last batch."""
        shard = self._shard()
        self._passes += 1
        for index in range(self._set.batches):
            yield Batch(*self._placed(self._awaited(), index), *self._set.counts(shard, index))

    def drain(self) -> None:
        """Discard the batches that were prepared ahead."""
        for _ in range(self._ahead):
            self._awaited()

    def check_labels(self) -> None:
        """Raise UserError if a label of the batches so far is not a whole number in [0, classes). May wait
        for the device."""
        return

    def _shard(self) -> int:
        """Return the shard that this rank reads in the next pass."""
        return self._rank

    @abstractmethod
    def _next(self) -> Any:
        """Wait for a batch and return what ``_placed`` takes."""

    @abstractmethod
    def _placed(self, prepared: Any, index: int) -> tuple[Any, Any]:
        """Return images and labels of batch ``index`` of a pass in the framework's arrays."""

    def _awaited(self) -> Any:
        """Return what ``_next`` returns, and keep the book of the wait."""
        self.waiting, begin = True, time.perf_counter()
        try:
            return self._next()
        finally:
            self.waiting = False
            self.wait_seconds += time.perf_counter() - begin


class RepeatedBatch(Batches):
    """One batch, held on the device and repeated without end; none is prepared ahead, and its labels are
    valid."""

    def __init__(self, batch: Batch):
        self._batch, self._ahead = batch, 0

    def epoch(self) -> Iterator[Batch]:
        """Return the batch without end."""
        return iter(self._next, None)

    def _next(self) -> Batch:
        return self._batch

    def _placed(self, prepared: Batch, index: int) -> tuple[Any, Any]:
        return prepared.images, prepared.labels

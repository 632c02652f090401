"""Batches for a training loop, from any input library, and their format."""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Protocol

Split = Literal["train", "val"]


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


class Batches(Protocol):
    """Batches of one split for one rank, pass after pass."""

    wait_seconds: float
    """Time spent waiting for the input library, over the life of this object."""
    waiting: bool
    """True while it waits."""
    sample_order: int | None
    """This rank's share of the hash of the last pass's order; None: the library does not tell the order."""

    def epoch(self) -> Iterator[Batch]:
        """Yield the batches of one pass over this rank's shard."""

    def drain(self) -> None:
        """Discard the batches that were prepared ahead."""

    def check_labels(self) -> None:
        """Raise UserError if a label of the batches so far is not a whole number in [0, classes). May wait
        for the device."""


class RepeatedBatch:
    """One batch, held on the device and repeated without end."""

    wait_seconds = 0.0
    waiting = False
    sample_order: int | None = None

    def __init__(self, batch: Batch):
        self._batch = batch

    def epoch(self) -> Iterator[Batch]:
        """Yield the batch without end."""
        while True:
            yield self._batch

    def drain(self) -> None:
        """Do nothing: no batch is prepared ahead."""

    def check_labels(self) -> None:
        """Do nothing: the labels are valid."""

"""Batches from DALI for one rank (INPUT_LIBRARY=dali). ``dali_batches.py`` of each framework derives from
``DaliBatches`` and copies the batches into the framework's arrays."""

import itertools
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from rn50.data.pipeline import dali
from rn50.data.pipeline.batches import Batches, BatchFormat, Split
from rn50.settings.config import Config


class DaliBatches(Batches):
    """The batches of one split, prepared by DALI. The class of a framework defines ``_copied`` and
    ``_wrong_labels``, and ``_allocate`` if it needs arrays to copy into."""

    def __init__(
        self,
        config: Config,
        split: Split,
        communicator: Any,
        seed: int,
        batch_format: BatchFormat,
        epoch: int,
    ):
        super().__init__(config, split, communicator, config.input_pipeline.prefetch_queue_depth)
        self._classes = config.data.classes
        # Each rank has its own seed. With the same seed all ranks would draw the same crops and mirrorings.
        shard = self._rank, self._ranks, seed + self._rank
        changes = split == "train" and config.hyperparameters.image_sizes
        sizes_of_batches = _sizes(config, self._set.batches, epoch) if changes else None
        self._pipeline = dali.build(config, split, *shard, batch_format, sizes_of_batches)
        batch_size = config.hyperparameters.batch_size
        self._arrays = {
            size: self._allocate(batch_format, batch_format.shape(batch_size, size))
            for size in (config.image_sizes if changes else (config.data.image_size,))
        }
        """Side of images in pixels -> the arrays into which ``_copied`` copies a batch of such images."""

    def check_labels(self) -> None:
        self._set.check_labels(self._wrong_labels())

    def _allocate(self, batch_format: BatchFormat, shape: tuple[int, ...]) -> Any:
        """Return arrays into which ``_copied`` copies a batch: images of ``shape``, (B, ...), and labels (B,
        1), float32. By default there are none."""
        return None

    @abstractmethod
    def _copied(self, outputs: Any, arrays: Any, index: int) -> tuple[Any, Any]:
        """Return images and labels in arrays of the framework, and count the labels that are not a class.

        ``outputs`` are DALI's (images, labels), ``arrays`` are those of ``_allocate`` for the size of these
        images, and ``index`` is the number of the batch in its pass, from 0.
        """

    @abstractmethod
    def _wrong_labels(self) -> int:
        """Return the number of labels, in all batches so far, that are not a whole number in [0, classes)."""

    def _shard(self) -> int:
        # A DALI reader of the training set takes the next shard in every pass.
        return (self._rank + self._passes) % self._ranks if self._split == "train" else self._rank

    def _next(self) -> Any:
        try:
            return self._pipeline.run()
        except RuntimeError as error:
            raise dali.fault(self._set, error) from error

    def _placed(self, prepared: Any, index: int) -> tuple[Any, Any]:
        images, _ = prepared
        try:
            return self._copied(prepared, self._arrays[images[0].shape()[1]], index)
        except (AssertionError, RuntimeError):
            # The copy fails if a record has several labels. ``prepared`` is DALI's (images, labels), and
            # ``shape()`` has the shape of the labels of each record.
            if any(tuple(shape) != (1,) for shape in prepared[1].shape()):
                fault = "it holds records of several labels, and a run takes one; pack the file again"
                raise self._set.fault(fault) from None
            raise


def _sizes(config: Config, batches: int, first_epoch: int) -> Iterator[int]:
    """Yield the side of the images of every batch, in pixels, from the first of ``first_epoch`` on. A pass
    has ``batches`` batches, unless BENCHMARK_STEPS cuts it."""
    # Not a method: DALI's pipeline, which refers to this generator, must not refer to the batches that own
    # it. It would then end with a later garbage collection only, perhaps in a forked process.
    in_a_pass = min(batches, config.run.benchmark_steps or batches)
    for epoch in itertools.count(first_epoch):
        yield from itertools.repeat(config.image_size_of(epoch), in_a_pass)

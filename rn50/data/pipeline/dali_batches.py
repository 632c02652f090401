"""Batches from DALI for one rank, for any framework: INPUT_LIBRARY=dali."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from rn50.data.pipeline import dali
from rn50.data.pipeline.batches import Batch, BatchFormat, Split
from rn50.data.pipeline.record_set import RecordSet
from rn50.settings.config import Config


class DaliBatches(ABC):
    """The batches of one split, read by DALI while the previous batch trains; see ``batches.Batches``.

    A framework adds ``_copied`` and ``_wrong_labels``.
    """

    sample_order: int | None = None

    def __init__(self, config: Config, split: Split, communicator: Any, seed: int, form: BatchFormat):
        self._split, self._rank, self._ranks = split, communicator.rank, communicator.size
        self._classes, self._depth = config.data.classes, config.input_pipeline.prefetch_queue_depth
        self._set = RecordSet(config, split, self._ranks)
        # Each rank has its own seed; with one seed all ranks would crop their images in the same places.
        self._pipeline = dali.build(config, split, self._rank, self._ranks, seed + self._rank, form)
        self._passes = 0
        self.wait_seconds = 0.0
        self.waiting = False

    def epoch(self) -> Iterator[Batch]:
        """Yield the batches of one pass over this rank's shard, without counting the samples that pad the
        last batch."""
        # DALI moves on to the next shard after every pass over the training set.
        shard = (self._rank + self._passes) % self._ranks if self._split == "train" else self._rank
        self._passes += 1
        for index in range(self._set.batches):
            begin = time.perf_counter()
            outputs = self._run()
            self.wait_seconds += time.perf_counter() - begin
            try:
                images, labels = self._copied(outputs, index)
            except (AssertionError, RuntimeError):
                dali.check_form(self._set, outputs[1])
                raise
            yield Batch(images, labels, *self._set.counts(shard, index))

    def drain(self) -> None:
        """Discard the batches that were prepared ahead."""
        for _ in range(self._depth):
            self._run()

    def check_labels(self) -> None:
        """Raise UserError if a label of the batches so far is not a whole number in [0, classes). Waits for
        the device."""
        self._set.check_labels(self._wrong_labels())

    @abstractmethod
    def _copied(self, outputs: Any, index: int) -> tuple[Any, Any]:
        """Return DALI's images and labels of batch ``index`` in arrays of the framework; count labels that
        are not a class."""

    @abstractmethod
    def _wrong_labels(self) -> int:
        """Return the number of labels so far that are not a whole number in [0, classes)."""

    def _run(self) -> Any:
        self.waiting = True
        try:
            outputs = self._pipeline.run()
        except RuntimeError as error:
            raise dali.fault(self._set, error) from error
        self.waiting = False
        return outputs

"""Batches from the DataLoader of a framework, for machines without DALI: INPUT_LIBRARY=dataloader."""

import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from rn50.data.pipeline.batches import Batch, BatchFormat, Split
from rn50.data.pipeline.loader_records import Order, Records
from rn50.data.pipeline.record_set import RecordSet
from rn50.errors import UserError
from rn50.settings.config import Config


def shared_memory(config: Config, workers: int) -> int:
    """Return the most bytes of a rank's batches in /dev/shm: of both splits, prepared ahead by ``workers``
    processes each, as uint8."""
    batches = 2 * workers * _ahead(config, workers)
    return batches * config.hyperparameters.batch_size * 3 * config.data.image_size**2


def _ahead(config: Config, workers: int) -> int:
    """Return the number of batches that each process prepares ahead."""
    return math.ceil(config.input_pipeline.prefetch_queue_depth / workers)


class LoaderBatches(ABC):
    """The batches of one split, prepared by processes of a DataLoader while the previous batch trains; see
    ``batches.Batches``.

    A framework adds ``_load`` and ``_on_device``.
    """

    records: type[Records] = Records

    def __init__(self, config: Config, split: Split, communicator: Any, seed: int, form: BatchFormat):
        self._config, self._rank = config, communicator.rank
        self._set = RecordSet(config, split, communicator.size)
        self._records = self.records(config, split, self._set.rec, self._set.idx, seed)
        self._order = Order(self._set, split, self._rank, config.hyperparameters.batch_size, seed)
        workers = config.input_pipeline.threads
        ahead = _ahead(config, workers)
        self._ahead = workers * ahead
        self._loader = self._load(self._order, workers, ahead)
        self._passes = 0
        self.sample_order: int | None = None
        self.wait_seconds = 0.0
        """Time spent in ``_next``, over the life of this object."""
        self.waiting = False
        """True while it waits for the DataLoader, or for a thread that does."""

    def epoch(self) -> Iterator[Batch]:
        """Yield the batches of one pass over this rank's part, without counting the samples that pad the last
        batch."""
        for index in range(self._set.batches):
            begin = time.perf_counter()
            images, labels = self._next()
            self.wait_seconds += time.perf_counter() - begin
            yield Batch(*self._on_device(images, labels), *self._set.counts(self._rank, index))
        self.sample_order = self._order.hash_share(self._passes)
        self._passes += 1

    def drain(self) -> None:
        """Discard the batches that were prepared ahead."""
        for _ in range(self._ahead):
            self._next()

    def check_labels(self) -> None:
        """Return at once: each label is checked when its record is read."""
        return

    @abstractmethod
    def _load(self, order: Order, workers: int, ahead: int) -> Iterator[Any]:
        """Return an iterator over the batches that ``Records.together`` makes of ``order``; every worker
        prepares ``ahead`` of them."""

    @abstractmethod
    def _on_device(self, images: Any, labels: Any) -> tuple[Any, Any]:
        """Return a batch of ``_next`` on the device: normalised pixel values and labels in the framework's
        arrays."""

    def _next(self) -> tuple[Any, Any]:
        """Wait for a batch and return what ``_on_device`` takes: (images (B, S, S, 3), labels (B,))."""
        with self._waiting():
            return next_of(self._loader, self._set)

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        self.waiting = True
        try:
            yield
        finally:
            self.waiting = False


def next_of(loader: Iterator[Any], records: RecordSet) -> Any:
    """Return the next batch of the DataLoader's processes. Raises UserError if it cannot be read."""
    with killed_worker_named(records):
        batch = next(loader)
    if isinstance(batch, str):
        raise UserError(batch)
    return batch


@contextlib.contextmanager
def killed_worker_named(records: RecordSet) -> Iterator[None]:
    """Raise UserError, which names the file, if a worker is killed or there is no shared memory for a batch.

    The DataLoader reports a killed worker by an error in the main thread too, whatever thread takes its
    batches.
    """
    try:
        yield
    except (RuntimeError, SystemError) as error:
        reason = str(error).strip().splitlines()[0]
        fault = f"DataLoader cannot read it: {reason}; lower DALI_THREADS or DALI_PREFETCH_QUEUE"
        raise records.fault(fault) from error

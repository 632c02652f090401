"""Batches from the DataLoader of a framework, for machines without DALI: INPUT_LIBRARY=dataloader."""

import contextlib
import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from rn50.data.pipeline.batches import Batch, Batches, BatchFormat, Split
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


class LoaderBatches(Batches):
    """The batches of one split, prepared by processes of a DataLoader. Labels are checked when a record is
    read.

    A framework adds ``_load`` and ``_on_device``.
    """

    records: type[Records] = Records

    def __init__(self, config: Config, split: Split, communicator: Any, seed: int, form: BatchFormat):
        workers = config.input_pipeline.threads
        ahead = _ahead(config, workers)
        super().__init__(config, split, communicator, workers * ahead)
        self._config = config
        self._records = self.records(config, split, self._set.rec, self._set.idx, seed)
        self._order = Order(self._set, split, self._rank, config.hyperparameters.batch_size, seed)
        self._loader = self._load(self._order, workers, ahead)

    def epoch(self) -> Iterator[Batch]:
        yield from super().epoch()
        self.sample_order = self._order.hash_share(self._passes - 1)

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

    def _placed(self, prepared: tuple[Any, Any], index: int) -> tuple[Any, Any]:
        return self._on_device(*prepared)


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

"""Batches from the DataLoader of a framework, for machines without DALI (INPUT_LIBRARY=dataloader).
``loader_batches.py`` of a framework derives from ``LoaderBatches``; ``loader_records.py`` has what the
DataLoader's processes do."""

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from rn50.data.pipeline.batches import Batch, Batches, BatchFormat, Split
from rn50.data.pipeline.loader_records import Order, Records
from rn50.errors import UserError
from rn50.process import ask_to_end_with_parent
from rn50.settings.config import Config


def shared_memory(config: Config, workers: int) -> int:
    """Return the most bytes of /dev/shm that the uint8 images of a rank's batches fill, when ``workers``
    processes for each of the two splits have prepared all batches ahead."""
    batches = 2 * workers * _batches_per_worker(config, workers)
    return batches * config.hyperparameters.batch_size * 3 * config.data.image_size**2


def _batches_per_worker(config: Config, workers: int) -> int:
    """Return the number of batches that each process prepares before they are needed."""
    return math.ceil(config.input_pipeline.prefetch_queue_depth / workers)


class LoaderBatches(Batches):
    """The batches of one split, prepared by processes of a DataLoader. The processes check each label when
    they read its record, so that ``check_labels`` has nothing to do.

    The class of a framework defines ``_load`` and ``_placed``, which also normalises the pixel values and
    makes of them what ``_batch_format`` says.
    """

    def __init__(
        self,
        config: Config,
        split: Split,
        communicator: Any,
        seed: int,
        batch_format: BatchFormat,
        epoch: int,
    ):
        self._batch_format = batch_format
        workers = config.input_pipeline.threads
        ahead = _batches_per_worker(config, workers)
        super().__init__(config, split, communicator, workers * ahead)
        self._records = Records(config, split, self._set.rec, self._set.idx, seed, epoch)
        self._order = Order(self._set, split, self._rank, config.hyperparameters.batch_size, seed)
        end_with_parent = ask_to_end_with_parent()
        self._loader = self._load(
            dataset=self._records,
            batch_sampler=self._order,
            num_workers=workers,
            prefetch_factor=ahead,
            worker_init_fn=lambda _: end_with_parent(),
        )

    def epoch(self) -> Iterator[Batch]:
        yield from super().epoch()
        self.sample_order = self._order.hash_share(self._passes - 1)  # of the last pass, counted from 0

    @abstractmethod
    def _load(self, **options: Any) -> Iterator[Any]:
        """Return an iterator over a DataLoader with ``options``, whose collate function is
        ``Records.collate``."""

    def _next(self) -> Any:
        """Wait for a batch and return it: the list that ``Records.collate`` returns, in the framework's
        arrays.

        Raises UserError, which names the file, if a record cannot be read, a process is killed, or there is
        no shared memory for a batch.
        """
        try:
            batch = next(self._loader)
        except (RuntimeError, SystemError, OSError, EOFError) as error:
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            fault = f"DataLoader cannot read it: {reason}; lower DALI_THREADS or DALI_PREFETCH_QUEUE"
            raise self._set.fault(fault) from error
        if len(batch) == 1:  # the text of an error in a process, see ``Records.collate``
            raise UserError(bytes(batch[0].numpy()).decode())
        return batch

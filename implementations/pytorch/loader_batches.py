"""Batches from PyTorch's DataLoader, for machines without DALI: INPUT_LIBRARY=dataloader."""

import contextlib
import itertools
import math
import time
from typing import Any, Iterator, List, NamedTuple, Sequence, Tuple, Union

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from implementations.pytorch.input_pipeline import device_of
from rn50.benchmark import rules
from rn50.data import preflight
from rn50.data.pipeline import crops
from rn50.data.pipeline.batches import Batch, BatchFormat, Split
from rn50.data.pipeline.record_set import RecordSet
from rn50.data.recordio import IndexedRecordReader
from rn50.errors import UserError
from rn50.process import ask_to_end_with_parent
from rn50.settings.config import Config


class Drawn(NamedTuple):
    """A record in one pass over the data: the number of the pass, and the record's position in the file."""

    epoch: int
    position: int


class Records(Dataset):
    """Reads, decodes, crops and resizes records: (uint8 (S, S, 3), label), or a line with the fault of the record."""

    def __init__(self, config: Config, split: Split, rec: Any, idx: Any, seed: int):
        self._data, self._split, self._seed = config.data, split, seed
        self._reader = IndexedRecordReader(rec, idx)

    def __getitem__(self, drawn: Drawn) -> Any:
        try:
            header, image = self._reader.read(drawn.position)
            fault = preflight.label_fault(header, self._data.classes)
            if fault:
                return self._reader.named(drawn.position, fault)
            return self._prepared(image, drawn), header.label
        except UserError as error:
            return str(error)
        except Exception as error:  # Pillow raises OSError, SyntaxError, ValueError and more for a damaged file
            return self.undecodable(drawn.position, image, error)

    def undecodable(self, position: int, image: bytes, error: Exception) -> str:
        """Return the error line for a record whose image is damaged."""
        return self._reader.named(position, f"{preflight.damage_of(image) or f'does not decode ({error})'}; {preflight.REPLACE}")

    def together(self, samples: List[Any]) -> Union[str, Tuple[Any, torch.Tensor]]:
        """Return a batch of samples: (result of ``_batch``, float32 labels (B,)); or the first error line among them."""
        fault = next((each for each in samples if isinstance(each, str)), None)
        if fault is not None:
            return fault
        images, labels = zip(*samples)
        return self._batch(images), torch.tensor(labels, dtype=torch.float32)

    def _prepared(self, image: bytes, drawn: Drawn) -> Any:
        pixels = crops.decode(image)
        return crops.cut(pixels, self._crop(pixels.shape[1], pixels.shape[0], drawn), self._data.image_size)

    def _batch(self, images: Sequence[Any]) -> Any:
        return torch.from_numpy(np.stack(images))

    def _crop(self, width: int, height: int, drawn: Drawn) -> crops.Crop:
        if self._split == "val":
            return crops.evaluation_crop(width, height, self._data.image_size, self._data.eval_resize)
        # A generator per image, so that neither the number of ranks nor that of workers changes the crop.
        random = np.random.default_rng((self._seed, *drawn))
        return crops.training_crop(width, height, self._data.crop_area_min, random)


class Order:
    """Yields the records of one rank's batches, pass after pass without end; copies pad the last batch of a pass."""

    def __init__(self, records: RecordSet, split: Split, rank: int, batch_size: int, seed: int):
        self._records, self._split, self._seed, self._batch_size = records, split, seed, batch_size
        begin = sum(records.shard_sizes[:rank])
        self._shard = slice(begin, begin + records.shard_sizes[rank])

    def __iter__(self) -> Iterator[List[Drawn]]:
        for epoch in itertools.count():
            # The order is the same on all ranks, and each takes its own part of it.
            random, every = np.random.default_rng((self._seed, epoch)), self._records.samples
            own = (random.permutation(every) if self._split == "train" else np.arange(every))[self._shard]
            for index in range(self._records.batches):
                places = np.arange(index * self._batch_size, (index + 1) * self._batch_size)
                yield [Drawn(epoch, int(position)) for position in own[np.minimum(places, len(own) - 1)]]


class LoaderBatches:
    """The batches of one split, prepared by processes of PyTorch's DataLoader while the previous batch trains."""

    records = Records

    def __init__(self, config: Config, split: Split, communicator: Any, seed: int, form: BatchFormat):
        self._config, self._rank, self._device = config, communicator.rank, device_of(form)
        self._set = RecordSet(config, split, communicator.size)
        self._records = self.records(config, split, self._set.rec, self._set.idx, seed)
        order = Order(self._set, split, self._rank, config.hyperparameters.batch_size, seed)
        workers = config.input_pipeline.threads
        each, end_with_us = math.ceil(config.input_pipeline.prefetch_queue_depth / workers), ask_to_end_with_parent()
        self._ahead = workers * each
        self._loader = iter(DataLoader(
            self._records, batch_sampler=order, collate_fn=self._records.together, num_workers=workers, prefetch_factor=each,
            pin_memory=self._device.type == "cuda", worker_init_fn=lambda _: end_with_us(),
        ))  # fmt: skip
        self._mean, self._std = (torch.tensor(each, device=self._device) for each in (rules.MEAN, rules.STD))
        self._dtype = getattr(torch, form.dtype)
        self.wait_seconds = 0.0
        """Time spent in ``_next``, over the life of this object."""
        self.waiting = False
        """True while it waits for the DataLoader, or for a thread that does."""

    def epoch(self) -> Iterator[Batch]:
        """Yield the batches of one pass over this rank's part, without counting the samples that pad the last batch."""
        for index in range(self._set.batches):
            begin = time.perf_counter()
            images, labels = self._next()
            self.wait_seconds += time.perf_counter() - begin
            pixels, classes = self._on_device(images, labels)
            yield Batch(pixels.permute(0, 3, 1, 2), classes, *self._set.counts(self._rank, index))

    def drain(self) -> None:
        """Discard the batches that were prepared ahead."""
        for _ in range(self._ahead):
            self._next()

    def check_labels(self) -> None:
        """Do nothing: each label is checked when its record is read."""

    def _next(self) -> Tuple[Any, torch.Tensor]:
        """Wait for a batch and return what ``_on_device`` takes: (images (B, S, S, 3), labels (B,))."""
        with self._waiting():
            return next_of(self._loader, self._set)

    def _on_device(self, images: torch.Tensor, labels: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """Return normalised pixel values and labels on the device."""
        classes = labels.long().to(self._device, non_blocking=True)
        pixels = images.to(self._device, non_blocking=True).float().sub_(self._mean).div_(self._std).to(self._dtype)
        return pixels, classes

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

    The DataLoader reports a killed worker by an error in the main thread too, whatever thread takes its batches.
    """
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise records.fault(f"DataLoader cannot read it: {reason}; lower DALI_THREADS or DALI_PREFETCH_QUEUE") from error

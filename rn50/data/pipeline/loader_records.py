"""The data set and the batch sampler of a framework's DataLoader: ``Records`` prepares a record, in the
DataLoader's processes, and ``Order`` determines the order of the records."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from rn50.data import preflight
from rn50.data.jpeg import damage_of
from rn50.data.pipeline import crops
from rn50.data.pipeline.batches import Split
from rn50.data.pipeline.record_set import RecordSet
from rn50.data.recordio import IndexedRecordReader
from rn50.errors import UserError
from rn50.settings.config import Config

_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
"""Shifts and factors of the hash function of SplitMix64 (G. L. Steele, D. Lea and C. H. Flood, OOPSLA
2014)."""


class Drawn(NamedTuple):
    """A record in one pass over the data."""

    epoch: int
    """Number of the pass, from 0."""
    position: int
    """Line of the record in the index, from 0."""


class Records:
    """The data set of a DataLoader. ``records[drawn]`` reads, decodes, crops and resizes a record, and
    returns (image, label); the image is uint8 (S, S, 3). For a record that a run cannot take it returns a
    line of text with the fault of the record.
    """

    def __init__(self, config: Config, split: Split, rec: Any, idx: Any, seed: int, first_epoch: int = 1):
        self._config, self._split, self._seed, self._first_epoch = config, split, seed, first_epoch
        self._data = config.data
        self._reader = IndexedRecordReader(rec, idx)

    def __getitem__(self, drawn: Drawn) -> Any:
        try:
            header, image = self._reader.read(drawn.position)
            if fault := preflight.label_fault(header, self._data.classes):
                return self._reader.named(drawn.position, fault)
            return self._prepared(image, drawn), header.label
        except UserError as error:
            return str(error)
        # Pillow raises OSError, SyntaxError, ValueError and more for a damaged file.
        except Exception as error:
            damage = damage_of(image) or f"does not decode ({error})"
            return self._reader.named(drawn.position, f"{damage}; {preflight.REPLACE}")

    def collate(self, samples: list[Any]) -> list[np.ndarray]:
        """Return a batch of ``samples``: [images (B, S, S, 3) uint8, labels (B,) float32]. If a sample is a
        line with a fault, return [the bytes of this line].

        Everything is in arrays, because the processes of a DataLoader hand over nothing else.
        """
        if fault := next((sample for sample in samples if isinstance(sample, str)), ""):
            return [np.array(bytearray(fault.encode()))]
        images, labels = zip(*samples, strict=True)
        return [np.stack(images), np.array(labels, np.float32)]

    def _prepared(self, image: bytes, drawn: Drawn) -> np.ndarray:
        """Return the crop of a JPEG on which a run trains or evaluates: uint8 (S, S, 3)."""
        pixels, data = crops.decode(image), self._data
        if self._split == "val":
            return crops.evaluation_crop(pixels, data.image_size, data.eval_resize)
        # Each image has its own random numbers, so that its crop depends neither on the number of ranks nor
        # on the number of processes.
        random = np.random.default_rng((self._seed, *drawn))
        size = self._config.image_size_of(self._first_epoch + drawn.epoch)
        return crops.training_crop(pixels, size, data.crop_area_min, random)


class Order:
    """The batch sampler of a DataLoader: yields the records of each batch of one rank, pass after pass
    without end. Copies of the last record that the rank reads in a pass pad its last batch."""

    def __init__(self, records: RecordSet, split: Split, rank: int, batch_size: int, seed: int):
        self._records, self._split, self._seed, self._batch_size = records, split, seed, batch_size
        begin = sum(records.shard_sizes[:rank])
        self._shard = slice(begin, begin + records.shard_sizes[rank])

    def _positions(self, epoch: int) -> np.ndarray:
        """Return the positions of the records that this rank reads in a pass, in the order in which it reads
        them: int (shard,)."""
        if self._split == "val":
            return np.arange(self._records.samples)[self._shard]
        # All ranks draw the same order of the whole split, and each rank takes its own part of it.
        return np.random.default_rng((self._seed, epoch)).permutation(self._records.samples)[self._shard]

    def hash_share(self, epoch: int) -> int:
        """Return this rank's part of the hash of the order of a pass. The sum over all ranks is logged.

        The sum does not depend on the number of ranks. Each record adds the upper 40 bits of a hash of its
        place in the order and its position, so the sum of up to 2**21 records is below 2**61.
        """
        places = np.arange(self._shard.start, self._shard.stop, dtype=np.uint64)
        mixed = (places << np.uint64(32)) | self._positions(epoch).astype(np.uint64)
        for shift, factor in _MIX:
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return int((mixed >> np.uint64(24)).sum())

    def __iter__(self) -> Iterator[list[Drawn]]:
        for epoch in itertools.count():
            positions = self._positions(epoch)
            for index in range(self._records.batches):
                places = np.arange(index * self._batch_size, (index + 1) * self._batch_size)
                padded = positions[np.minimum(places, len(positions) - 1)]
                yield [Drawn(epoch, int(position)) for position in padded]

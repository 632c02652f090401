"""Records for the DataLoader of a framework: how its processes prepare each one, and in which order."""

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
"""Shifts and factors of SplitMix64 (G. L. Steele, D. Lea and C. H. Flood, OOPSLA 2014)."""


class Drawn(NamedTuple):
    """A record in one pass over the data: the number of the pass, and the record's position in the file."""

    epoch: int
    position: int


class Records:
    """Reads, decodes, crops and resizes records: (uint8 (S, S, 3), label), or a line with the fault of the
    record."""

    def __init__(self, config: Config, split: Split, rec: Any, idx: Any, seed: int):
        self._data, self._split, self._seed = config.data, split, seed
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

    def together(self, samples: list[Any]) -> list[np.ndarray]:
        """Collate function: return samples as one batch, which a DataLoader's processes can only hand over
        as arrays: images (B, S, S, 3) and float32 labels (B,), or the bytes of the first error line."""
        if fault := next((sample for sample in samples if isinstance(sample, str)), ""):
            return [np.array(bytearray(fault.encode()))]
        images, labels = zip(*samples, strict=False)
        return [np.stack(images), np.array(labels, np.float32)]

    def _prepared(self, image: bytes, drawn: Drawn) -> np.ndarray:
        pixels, data = crops.decode(image), self._data
        if self._split == "val":
            return crops.evaluation_crop(pixels, data.image_size, data.eval_resize)
        # A generator per image, so that neither the number of ranks nor that of workers changes the crop.
        random = np.random.default_rng((self._seed, *drawn))
        return crops.training_crop(pixels, data.image_size, data.crop_area_min, random)


class Order:
    """Yields the records of one rank's batches, pass after pass without end; copies pad the last batch of a
    pass."""

    def __init__(self, records: RecordSet, split: Split, rank: int, batch_size: int, seed: int):
        self._records, self._split, self._seed, self._batch_size = records, split, seed, batch_size
        begin = sum(records.shard_sizes[:rank])
        self._shard = slice(begin, begin + records.shard_sizes[rank])

    def _part(self, epoch: int) -> np.ndarray:
        """Return the positions of this rank's records in a pass, in order."""
        # The order is the same on all ranks, and each takes its own part of it.
        random, samples = np.random.default_rng((self._seed, epoch)), self._records.samples
        return (random.permutation(samples) if self._split == "train" else np.arange(samples))[self._shard]

    def hash_share(self, epoch: int) -> int:
        """Return this rank's share of the hash that the log has of the order of a pass. The shares of all
        ranks add up to the same hash, whatever the number of ranks; below 2**61 for up to 2**21 records."""
        places = np.arange(self._shard.start, self._shard.stop, dtype=np.uint64)
        mixed = (places << np.uint64(32)) | self._part(epoch).astype(np.uint64)
        for shift, factor in _MIX:
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return int((mixed >> np.uint64(24)).sum())

    def __iter__(self) -> Iterator[list[Drawn]]:
        for epoch in itertools.count():
            part = self._part(epoch)
            for index in range(self._records.batches):
                places = np.arange(index * self._batch_size, (index + 1) * self._batch_size)
                yield [Drawn(epoch, int(position)) for position in part[np.minimum(places, len(part) - 1)]]

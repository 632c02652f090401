"""The division of a split into shards, one for each rank, and of a shard into batches, as every input library
makes it; and ``RecordSet``, the files of a split.

The arithmetic is DALI's: shard i of n holds samples ``floor(N * i / n)`` to ``floor(N * (i + 1) / n) - 1``.
Every shard is read in the same number of batches. Copies pad the last batches of a shard and are not counted.
"""

import math
from typing import Literal

from rn50.data import preflight
from rn50.errors import UserError
from rn50.settings.config import Config

Split = Literal["train", "val"]


def shard_sizes(samples: int, shards: int) -> list[int]:
    """Return the number of samples of each shard. The numbers differ by at most 1."""
    bounds = [samples * shard // shards for shard in range(shards + 1)]
    return [end - begin for begin, end in zip(bounds, bounds[1:], strict=False)]


def batches(samples: int, shards: int, batch_size: int) -> int:
    """Return the number of batches that every rank reads in one pass: enough for the largest shard."""
    return math.ceil(max(shard_sizes(samples, shards)) / batch_size)


def ragged_sizes(samples: int, shards: int, batch_size: int) -> list[int]:
    """Return the numbers of real samples in the last batches of the shards, each once, except that of a full
    batch. They are two at most, because the sizes of the shards differ by at most 1."""
    last = batches(samples, shards, batch_size) - 1
    sizes = {real_samples(size, last, batch_size) for size in shard_sizes(samples, shards)}
    return sorted(sizes - {batch_size})


def real_samples(shard_size: int, batch: int, batch_size: int) -> int:
    """Return the number of real samples, without padding, in batch number ``batch``, from 0, of a shard."""
    return max(0, min(batch_size, shard_size - batch * batch_size))


class RecordSet:
    """The files of a split, and the division of their records among ``ranks`` ranks."""

    def __init__(self, config: Config, split: Split, ranks: int):
        """Check the files. No function of a run opens them before. Raises UserError if they are not as
        ``config`` describes them."""
        # ``variable`` is the name of the variable that sets ``samples``, for errors.
        self.rec, self.idx, self.samples, variable = preflight.record_sets(config)[split]
        preflight.check_record_set(self.rec, self.idx, self.samples, variable)
        self._classes, self._batch_size = config.data.classes, config.hyperparameters.batch_size
        self.shard_sizes = shard_sizes(self.samples, ranks)
        self.batches = batches(self.samples, ranks, self._batch_size)
        """Number of batches of a pass, the same for every shard."""

    def counts(self, shard: int, index: int) -> tuple[int, int]:
        """Return the number of real samples, without padding, in batch number ``index``, from 0, of
        ``shard``, and in the batches of this number of all shards together."""
        real = [real_samples(size, index, self._batch_size) for size in self.shard_sizes]
        return real[shard], sum(real)

    def check_labels(self, wrong: float) -> None:
        """Raise UserError, which names a bad record, unless ``wrong`` is 0. ``wrong`` is the number of labels
        that are not a whole number in [0, classes)."""
        if wrong:
            raise self.fault(f"there are {wrong:.0f} labels that are no whole number in [0, {self._classes})")

    def fault(self, otherwise: str, suspect: int | None = None) -> UserError:
        """Return an error that names the bad record: the one that starts at byte ``suspect`` of the .rec
        file, or, if that is None, the first that a search of limited time finds. If it finds none, the error
        says ``otherwise``."""
        line = preflight.find_bad_record(self.rec, self.idx, self._classes, suspect)
        return UserError(line or f"{self.rec}: {otherwise}")

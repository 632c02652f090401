"""A split as a rank reads it, with any library: its files, its shard, batches, and faults.

The arithmetic is DALI's: shard i of n holds samples ``floor(N * i / n)`` to ``floor(N * (i + 1) / n)``. Every
shard is read in the same number of batches; the last ones are padded with copies that are not counted.
"""

import math
from typing import Literal

from rn50.data import preflight
from rn50.errors import UserError
from rn50.settings.config import Config

Split = Literal["train", "val"]


def shard_sizes(samples: int, shards: int) -> list[int]:
    """Return the number of samples of every shard; they sum to ``samples`` and differ by at most 1."""
    bounds = [samples * shard // shards for shard in range(shards + 1)]
    return [end - begin for begin, end in zip(bounds, bounds[1:], strict=False)]


def batches(samples: int, shards: int, batch_size: int) -> int:
    """Return the number of batches that every rank reads in one pass: enough for the largest shard."""
    return math.ceil(max(shard_sizes(samples, shards)) / batch_size)


def ragged_sizes(samples: int, shards: int, batch_size: int) -> list[int]:
    """Return the sizes, at most two, that the last batches of the shards have where they are not full."""
    last = batches(samples, shards, batch_size) - 1
    sizes = {real_samples(size, last, batch_size) for size in shard_sizes(samples, shards)}
    return sorted(sizes - {batch_size})


def real_samples(shard_size: int, batch: int, batch_size: int) -> int:
    """Return how many samples of batch 0, 1, ... of a shard are real, not padding."""
    return max(0, min(batch_size, shard_size - batch * batch_size))


class RecordSet:
    """A split over ``ranks`` ranks. Constructing one opens its files for the first time."""

    def __init__(self, config: Config, split: Split, ranks: int):
        """Raise UserError if the files are not as ``config`` describes them."""
        self.rec, self.idx, self.samples, variable = preflight.record_sets(config)[split]
        preflight.check_record_set(self.rec, self.idx, self.samples, variable)
        self._classes, self._batch_size = config.data.classes, config.hyperparameters.batch_size
        self.shard_sizes = shard_sizes(self.samples, ranks)
        self.batches = batches(self.samples, ranks, self._batch_size)
        """Batches of one pass, the same number for every shard."""

    def counts(self, shard: int, index: int) -> tuple[int, int]:
        """Return how many samples of the shard's batch ``index`` are real, not padding, and their sum over
        all shards."""
        real = [real_samples(size, index, self._batch_size) for size in self.shard_sizes]
        return real[shard], sum(real)

    def check_labels(self, wrong: float) -> None:
        """Raise UserError unless ``wrong`` is 0: the number of labels read that are not a whole number in [0,
        classes)."""
        if wrong:
            raise self.fault(f"there are {wrong:.0f} labels that are no whole number in [0, {self._classes})")

    def fault(self, otherwise: str, suspect: int | None = None) -> UserError:
        """Return an error on the bad record: the one that starts at byte ``suspect``, else the first.

        Its message is ``otherwise`` if none is found in good time.
        """
        line = preflight.find_bad_record(self.rec, self.idx, self._classes, suspect)
        return UserError(line or f"{self.rec}: {otherwise}")

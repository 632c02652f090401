"""Which part of a data set a rank reads, and how many samples of a batch are real.

The same arithmetic as DALI's readers: shard i of n holds samples ``floor(N * i / n)`` to ``floor(N * (i + 1) / n)``, and every
shard is read in the same number of batches, the last ones filled up with copies that count for nothing.
"""

import math
from typing import List


def shard_sizes(samples: int, shards: int) -> List[int]:
    """Samples of every shard; they sum to ``samples`` and differ by at most 1."""
    bounds = [samples * shard // shards for shard in range(shards + 1)]
    return [end - begin for begin, end in zip(bounds, bounds[1:])]


def batches(samples: int, shards: int, batch_size: int) -> int:
    """Batches that every rank reads for one pass: enough for the largest shard."""
    return math.ceil(max(shard_sizes(samples, shards)) / batch_size)


def real_samples(shard_size: int, batch: int, batch_size: int) -> int:
    """How many samples of batch 0, 1, ... of a shard are its own rather than filling."""
    return max(0, min(batch_size, shard_size - batch * batch_size))

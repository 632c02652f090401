"""The arithmetic of shards, with numbers worked out by hand."""

import pytest

from rn50.data.pipeline import record_set
from rn50.data.pipeline.loader_records import Order
from rn50.data.pipeline.record_set import shard_sizes


class Split:
    def __init__(self, samples, ranks):
        self.samples, self.shard_sizes, self.batches = samples, shard_sizes(samples, ranks), 7


def order_hash(samples, ranks, epoch=0, seed=5, split="train"):
    orders = [Order(Split(samples, ranks), split, rank, 32, seed) for rank in range(ranks)]
    return sum(order.hash_share(epoch) for order in orders)


def test_the_hash_of_an_order_is_of_any_number_of_ranks():
    assert len({order_hash(203, ranks) for ranks in (1, 2, 3, 8, 203)}) == 1
    others = [order_hash(203, 2, epoch=1), order_hash(203, 2, seed=6), order_hash(204, 2)]
    assert len({order_hash(203, 2), order_hash(203, 2, split="val"), *others}) == 5
    assert order_hash(1_281_167, 8) < 2**61


def test_sizes_of_imagenet_over_eight_ranks():
    sizes = record_set.shard_sizes(1281167, 8)
    assert sum(sizes) == 1281167
    assert sorted(set(sizes)) == [160145, 160146]


@pytest.mark.parametrize(
    "samples, ranks, batch_size, expected", [(50000, 8, 408, 16), (9, 2, 4, 2), (8, 2, 4, 1)])
def test_batches(samples, ranks, batch_size, expected):
    assert record_set.batches(samples, ranks, batch_size) == expected


def test_real_samples_of_the_last_batches():
    assert [record_set.real_samples(9, batch, 4) for batch in range(4)] == [4, 4, 1, 0]


@pytest.mark.parametrize(
    "samples, ranks, batch_size, expected",
    [(1281167, 8, 408, [209, 210]), (10, 2, 4, [1]), (11, 2, 4, [1, 2]), (8, 2, 4, []), (15, 2, 4, [3])])
def test_sizes_of_batches_that_are_not_full(samples, ranks, batch_size, expected):
    assert record_set.ragged_sizes(samples, ranks, batch_size) == expected

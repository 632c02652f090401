"""The arithmetic of shards, with numbers worked out by hand."""

import pytest

from rn50.data.pipeline import record_set


def test_sizes_of_imagenet_over_eight_ranks():
    sizes = record_set.shard_sizes(1281167, 8)
    assert sum(sizes) == 1281167
    assert sorted(set(sizes)) == [160145, 160146]


@pytest.mark.parametrize(
    "samples, ranks, batch_size, expected", [(50000, 8, 408, 16), (9, 2, 4, 2), (8, 2, 4, 1)]
)
def test_batches(samples, ranks, batch_size, expected):
    assert record_set.batches(samples, ranks, batch_size) == expected


def test_real_samples_of_the_last_batches():
    assert [record_set.real_samples(9, batch, 4) for batch in range(4)] == [4, 4, 1, 0]


@pytest.mark.parametrize(
    "samples, ranks, batch_size, expected",
    [(1281167, 8, 408, [209, 210]), (10, 2, 4, [1]), (11, 2, 4, [1, 2]), (8, 2, 4, []), (15, 2, 4, [3])],
)
def test_sizes_of_batches_that_are_not_full(samples, ranks, batch_size, expected):
    assert record_set.ragged_sizes(samples, ranks, batch_size) == expected

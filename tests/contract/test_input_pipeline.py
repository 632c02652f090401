"""Every sample of an epoch exactly once across the ranks, for real readers over records whose label is their
number."""

import itertools
import shutil
import struct
import types
import weakref

import cv2
import numpy as np
import pytest

from rn50.data import recordio
from rn50.data.pipeline import loader_records, record_set
from rn50.errors import UserError
from tests.conftest import with_changes
from tests.contract.frameworks import FRAMEWORKS, INPUTS, installed

pytest.importorskip("nvidia.dali")

FLAG, LABEL, IMAGE = 8, 12, 32
"""Where they stand in a record."""
SAMPLES = 1307  # more than the reader's shuffle buffer of 1024


SHAPES = [(1, 64), (2, 64), (3, 64), (4, 100), (2, 653)]
"""Ranks and batch size. How samples are dealt out depends on no framework: DALI does it, or ``Order`` for a
DataLoader."""
UNEVEN = (3, 435)
"""A rank has one image less than the others, which leaves none for its last batch, and them one."""
DALI = tuple(name for name in sorted(INPUTS) if "," not in name)
LABELS = (*DALI, "pytorch, dataloader")
"""With DALI each framework looks at the labels; what reads for a DataLoader is the same for all."""


@pytest.fixture(params=sorted(INPUTS))
def framework(request):
    """A framework that is installed."""
    return installed(request.param)


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    """A set whose every record has its own label."""
    folder = tmp_path_factory.mktemp("numbered")
    jpeg = cv2.imencode(".jpg", np.full((40, 40, 3), 128, np.uint8))[1].tobytes()
    for name in ("train", "val"):
        with recordio.IndexedRecordWriter(folder / name) as writer:
            for index in range(SAMPLES):
                writer.write(index, float(index), jpeg)
    return folder


def open_batches(framework, config, folder, split, rank, ranks, batch_size, classes=SAMPLES):
    config = with_changes(
        config, hyperparameters={"batch_size": batch_size},
        data={"folder": str(folder), "train_samples": SAMPLES, "eval_samples": SAMPLES, "classes": classes})
    communicator = types.SimpleNamespace(rank=rank, size=ranks)
    return framework.open_batches(config, split, communicator, 3)


@pytest.mark.parametrize(
    "name, ranks, batch_size",
    [*((name, *UNEVEN) for name in sorted(INPUTS)), *(("toy", *shape) for shape in SHAPES)])
def test_every_sample_exactly_once(tiny_config, numbered, name, ranks, batch_size):
    framework = installed(name)
    for split in ("train", "val"):
        readers = [
            open_batches(framework, tiny_config, numbered, split, rank, ranks, batch_size)
            for rank in range(ranks)]
        orders = []
        for _ in range(3):
            seen, steps = [], [[] for _ in range(ranks)]
            for rank, reader in enumerate(readers):
                for batch in reader.epoch():
                    seen += framework.array(batch.labels)[: batch.samples].tolist()
                    steps[rank].append((batch.samples, batch.global_samples))
            assert sorted(seen) == list(range(SAMPLES))
            for step in zip(*steps, strict=False):
                assert sum(own for own, _ in step) == step[0][1] == step[-1][1]
            assert {len(batches) for batches in steps} == {record_set.batches(SAMPLES, ranks, batch_size)}
            orders.append(seen)
        if split == "train":
            assert orders[0] != orders[1] != orders[2]
            assert orders[0] != list(range(SAMPLES))
        else:
            assert orders[0] == orders[1] == orders[2]


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("ranks, batch_size", [*SHAPES, UNEVEN])
def test_a_dataloader_is_told_of_every_sample_exactly_once(tiny_config, numbered, split, ranks, batch_size):
    data = {"folder": str(numbered), "train_samples": SAMPLES, "eval_samples": SAMPLES}
    records = record_set.RecordSet(
        with_changes(tiny_config, hyperparameters={"batch_size": batch_size}, data=data), split, ranks)
    told = [iter(loader_records.Order(records, split, rank, batch_size, 3)) for rank in range(ranks)]
    for epoch in range(2):
        seen = []
        for rank, index in itertools.product(range(ranks), range(records.batches)):
            batch = next(told[rank])
            assert len(batch) == batch_size and {drawn.epoch for drawn in batch} == {epoch}
            seen += [drawn.position for drawn in batch[: records.counts(rank, index)[0]]]
        assert sorted(seen) == list(range(SAMPLES))


def of_sizes(config, folder):
    data = {"folder": str(folder), "train_samples": SAMPLES, "classes": SAMPLES, "image_size": 48}
    hyperparameters = {"batch_size": 64, "image_sizes": "32:1,40:2,48:3"}
    return with_changes(config, hyperparameters=hyperparameters, data=data)


@pytest.mark.parametrize("name", sorted(FRAMEWORKS))
def test_every_pass_has_the_size_of_its_epoch(tiny_config, numbered, name):
    framework, communicator = installed(name), types.SimpleNamespace(rank=0, size=1)
    reader = framework.open_batches(of_sizes(tiny_config, numbered), "train", communicator, 3)
    assert [{batch.images.shape[2] for batch in reader.epoch()} for _ in range(4)] == [{32}, {40}, {48}, {48}]
    freed = weakref.ref(reader)
    del reader
    assert freed() is None  # and with it DALI's threads, without a garbage collection


@pytest.mark.parametrize("first_epoch, sizes", [(1, [32, 40, 48, 48]), (2, [40, 48, 48, 48])])
def test_a_record_of_a_data_loader_has_the_size_of_its_epoch(tiny_config, numbered, first_epoch, sizes):
    config = of_sizes(tiny_config, numbered)
    files = record_set.RecordSet(config, "train", 1)
    for split, expected in (("train", sizes), ("val", [48] * 4)):
        records = loader_records.Records(config, split, files.rec, files.idx, 3, first_epoch)
        shapes = [records[loader_records.Drawn(epoch, 0)][0].shape for epoch in range(4)]
        assert shapes == [(size, size, 3) for size in expected]


def test_another_seed_gives_another_order(framework, tiny_config, numbered):
    data = {"folder": str(numbered), "train_samples": SAMPLES, "classes": SAMPLES}
    config = with_changes(tiny_config, hyperparameters={"batch_size": 64}, data=data)
    communicator = types.SimpleNamespace(rank=0, size=1)
    orders = []
    for seed in (1, 2, 1):
        batch = next(framework.open_batches(config, "train", communicator, seed).epoch())
        orders.append(framework.array(batch.labels).tolist())
    assert orders[0] != orders[1]
    assert orders[0] == orders[2]


def read(framework, reader, classes):
    """Read an epoch: a library may look at each record, or at the labels of the batches, which are classes
    whatever the records say."""
    for batch in reader.epoch():
        assert set(framework.array(batch.labels).tolist()) <= set(range(classes))
    reader.check_labels()


@pytest.mark.parametrize("name", LABELS)
def test_label_out_of_range_is_named(tiny_config, numbered, name):
    framework = installed(name)
    reader = open_batches(framework, tiny_config, numbered, "train", 0, 1, 64, classes=1000)
    with pytest.raises(UserError, match=r"train\.rec.*label"):
        read(framework, reader, 1000)


@pytest.mark.parametrize(
    "name, field, content, says",
    [
        # What is said is the same for all, and what is noticed is the business of each.
        *((name, LABEL, struct.pack("<f", 3.5), r"label 3\.5, no class") for name in LABELS[-2:]),
        *((name, LABEL, struct.pack("<f", float("nan")), "label nan, no class") for name in LABELS),
        *((name, FLAG, struct.pack("<I", 2), "2 labels, and a run takes one") for name in LABELS),
        *((name, IMAGE, b"no JPEG", "is no JPEG") for name in LABELS[-2:]),
    ],
)
def test_a_record_that_no_run_can_take_is_named(tiny_config, numbered, tmp_path, name, field, content, says):
    framework = installed(name)
    folder = shutil.copytree(str(numbered), str(tmp_path / "data"))
    offset = int(recordio.read_index(tmp_path / "data" / "train.idx")[1][40])
    with (tmp_path / "data" / "train.rec").open("r+b") as stream:
        stream.seek(offset + field)
        stream.write(content)
    with pytest.raises(
        UserError, match=rf"train\.rec: record 40 at byte {offset} .*{says}.*; .*pack the file again"
    ):
        reader = open_batches(framework, tiny_config, folder, "train", 0, 1, 64)
        read(framework, reader, SAMPLES)


def test_float32_images_are_normalised(framework, tiny_config, numbered):
    batch = next(open_batches(framework, tiny_config, numbered, "val", 0, 1, 64).epoch())
    expected = (128 - np.array([123.675, 116.28, 103.53])) / np.array([58.395, 57.12, 57.375])
    mean = framework.array(batch.images).mean(axis=(0, 2, 3))
    assert np.abs(mean - expected).max() < 0.03  # JPEG may be a grey level off

"""``rn50 pack`` puts every byte where MXNet would put it, and ``rn50 unpack`` makes the same folder of it
again.

Processes: one command shows that the verb packs.
"""

import hashlib
import io
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rn50.data.jpeg import shrunk
from rn50.data.layout import DEMO_CLASSES, DEMO_RECORD, FILES, OPEN_ONLY, PACKED
from rn50.data.packing import pack as packing
from rn50.data.packing import packing_list
from rn50.data.packing.imagenet_folder import scan
from rn50.data.packing.pack import PARTIAL, order, pack
from rn50.data.packing.packing_list import read_classes, read_list
from rn50.data.packing.unpack import unpack
from rn50.data.recordio import MAGIC
from rn50.errors import UserError
from tests.data.record_files import contents, labelled, records, stop_at
from tests.support.image_tree import class_names
from tests.support.imagenet_like import turned

pytestmark = pytest.mark.xdist_group("packing")
ROOT = Path(__file__).resolve().parents[2]


def test_every_image_is_there_once_with_the_rank_of_its_class(tree, packed):
    classes = class_names(7)
    for name, count in (("train", 63), ("val", 28)):
        wanted = {
            (classes.index(path.parent.name), path.read_bytes()) for path in (tree / name).glob("*/*.JPEG")}
        found = records(packed, name)
        assert len(found) == count and {(int(header.label), image) for header, image in found} == wanted
        assert [header.id for header, _ in found] == list(range(count))


def test_order_is_shuffled_and_the_seeds(tree, packed, tmp_path):
    labels = [int(header.label) for header, _ in records(packed, "train")]
    assert labels != sorted(labels)
    pack(tree, tmp_path / "again", workers=1)
    pack(tree, tmp_path / "other", seed=1, workers=3)
    assert contents(tmp_path / "again") == contents(packed)
    assert contents(tmp_path / "other")["train.rec"] != contents(packed)["train.rec"]
    assert order(6, 0, "train").tolist() == [0, 5, 1, 3, 2, 4]  # for ever
    assert sorted(order(1000, 3, "val").tolist()) == list(range(1000))


def test_lists_say_where_every_record_came_from(tree, packed):
    assert read_classes(packed) == packing_list.class_names(packed, 7) == class_names(7)
    assert packing_list.class_names(packed, 3) == ["0", "1", "2"]  # of a configuration of other data
    for name in ("train", "val"):
        for entry, (header, image) in zip(read_list(packed, name), records(packed, name), strict=False):
            assert entry == (header.label, hashlib.sha256(image).digest(), entry.path)
            assert (tree / name / entry.path).read_bytes() == image
    assert sorted(path.name for path in packed.iterdir()) == sorted((*FILES, *PACKED))


def lanczos(length, pixels):
    """Pillow's filter as a matrix (pixels, length) in float64: the windowed sinc of three lobes, wider by the
    scale, centre on centre, its weights within the image made to sum to 1."""
    scale = length / pixels
    places = (np.arange(length) + 0.5 - (np.arange(pixels)[:, None] + 0.5) * scale) / scale
    weights = np.where(abs(places) < 3, np.sinc(places) * np.sinc(places / 3), 0)
    return weights / weights.sum(axis=1, keepdims=True)


def picture(mode, kind="JPEG", orientation=1):
    """A smooth picture of 300x400 pixels, and its file."""
    y, x = np.mgrid[:300, :400]
    waves = [127 + 120 * np.sin(x / 31 + band) * np.cos(y / 23 - band) for band in range(len(mode))]
    image = Image.fromarray(np.stack(waves, axis=2).squeeze().astype(np.uint8), mode)
    file = io.BytesIO()
    image.save(file, kind, **({"quality": 100, "subsampling": 0} if kind == "JPEG" else {}))
    return image, turned(file.getvalue()) if orientation > 1 else file.getvalue()


@pytest.mark.parametrize(
    "mode, kind, orientation", [("RGB", "JPEG", 1), ("RGB", "JPEG", 6), ("L", "JPEG", 1), ("RGB", "PNG", 1)])
def test_a_smaller_image_is_the_same_picture(mode, kind, orientation):
    whole, file = picture(mode, kind, orientation)
    smaller = Image.open(io.BytesIO(shrunk(file, 120)))
    assert (smaller.format, smaller.mode, smaller.size) == ("JPEG", mode, (160, 120))
    assert smaller.getexif().get(0x0112, 1) == 1
    wanted = np.einsum("ah,hw...,bw->ab...", lanczos(300, 120), np.asarray(whole, float), lanczos(400, 160))
    assert abs(np.asarray(smaller, float) - wanted).mean() < 1.5
    assert shrunk(file, 300) == file


def test_a_pattern_too_fine_for_a_smaller_image_becomes_grey():
    file = io.BytesIO()
    Image.fromarray(np.indices((300, 400)).sum(0).astype(np.uint8) % 2 * 255).save(file, "PNG")
    pixels = np.asarray(Image.open(io.BytesIO(shrunk(file.getvalue(), 110))), float)
    assert abs(pixels[5:-5, 5:-5] - 127.5).max() < 6  # every third pixel would be black or white


def test_only_larger_images_are_made_smaller(tree, packed, tmp_path):
    pack(tree, tmp_path / "out", workers=2, short_side=36)
    sizes = []
    for name in ("train", "val"):
        originals, listed = records(packed, name), read_list(tmp_path / "out", name)
        for (header, image), original, entry in zip(
            records(tmp_path / "out", name), originals, listed, strict=True
        ):
            assert header == original[0] and entry.sha256 == hashlib.sha256(image).digest()
            sizes.append(Image.open(io.BytesIO(image)).size)
            assert (image == original[1]) == (min(sizes[-1]) == 33)
    assert set(sizes) == {(45, 36), (36, 45), (47, 33)}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted((*FILES, *PACKED, OPEN_ONLY))
    assert unpack(tmp_path / "out", tmp_path / "back") == (tmp_path / "back", 7, 63, 28)


def test_an_image_that_cannot_be_made_smaller_is_named(copy, tmp_path):
    path = min(copy.glob("train/*/*.JPEG"))
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(UserError, match=rf"{path.name}: does not decode \(.*; extract its archive again"):
        pack(copy, tmp_path / "out", workers=1, short_side=16)


@pytest.fixture
def with_magic(copy):
    """Images that hold the magic word, at 4-byte boundaries and beside them."""
    for number, path in enumerate(sorted(copy.glob("*/*/*.JPEG"))):
        data = path.read_bytes()
        path.write_bytes(data + b"x" * (number % 5) + MAGIC * (number % 3) + b"end"[: number % 4])
    return copy


@pytest.mark.parametrize("chunk", [1, 5, 64])
def test_files_are_those_of_mxnet(with_magic, tmp_path, monkeypatch, chunk):
    recordio = pytest.importorskip("implementations.mxnet").mx.recordio
    monkeypatch.setattr(packing, "CHUNK", chunk)  # with 1, some chunks hold no record that is cut
    pack(with_magic, tmp_path / "ours")
    for name, images in scan(with_magic).images.items():
        theirs = recordio.MXIndexedRecordIO(str(tmp_path / f"{name}.idx"), str(tmp_path / f"{name}.rec"), "w")
        for key, which in enumerate(order(len(images), 0, name)):
            data = (with_magic / name / images[which].path).read_bytes()
            theirs.write_idx(key, recordio.pack(recordio.IRHeader(0, images[which].label, key, 0), data))
        theirs.close()
        for kind in ("rec", "idx"):
            assert (tmp_path / "ours" / f"{name}.{kind}").read_bytes() == (
                tmp_path / f"{name}.{kind}").read_bytes()
        whole = (tmp_path / f"{name}.rec").read_bytes()
        assert whole.count(MAGIC) > len(images)  # some records are in parts
        reader = recordio.MXIndexedRecordIO(
            str(tmp_path / "ours" / f"{name}.idx"), str(tmp_path / "ours" / f"{name}.rec"), "r")
        for key, which in enumerate(order(len(images), 0, name)):
            header, data = recordio.unpack(reader.read_idx(key))
            assert (
                header.label == images[which].label
                and data == (with_magic / name / images[which].path).read_bytes())


def test_dali_reads_them(packed):
    pytest.importorskip("nvidia.dali")
    from nvidia.dali import fn, pipeline_def

    @pipeline_def(batch_size=7, num_threads=1, device_id=None)
    def graph():
        return tuple(fn.readers.mxnet(path=[str(packed / "val.rec")], index_path=[str(packed / "val.idx")]))

    pipeline = graph()
    pipeline.build()
    found = []
    for _ in range(4):
        images, labels = pipeline.run()
        found += [(int(labels.at(at)[0]), images.at(at).tobytes()) for at in range(7)]
    assert found == [(int(header.label), image) for header, image in records(packed, "val")]


def test_unpacked_it_is_the_same_folder_again(tree, packed, tmp_path):
    assert unpack(packed, tmp_path / "back") == (tmp_path / "back", 7, 63, 28)
    for name in ("train", "val"):
        wanted = {path.relative_to(tree): path.read_bytes() for path in (tree / name).glob("*/*")}
        assert {
            path.relative_to(tmp_path / "back"): path.read_bytes()
            for path in (tmp_path / "back" / name).glob("*/*")} == wanted
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["train", "val"]


def test_records_without_lists_are_unpacked_by_label_and_key(packed, tmp_path):
    for name in FILES:
        shutil.copy(str(packed / name), str(tmp_path))
    unpack(tmp_path, tmp_path / "back")
    header, image = records(packed, "train")[5]
    assert (
        tmp_path / "back" / "train" / f"{int(header.label):04d}" / f"{int(header.label):04d}_5.JPEG"
    ).read_bytes() == image
    (tmp_path / DEMO_RECORD).write_text("{}")
    unpack(tmp_path, tmp_path / "demo")
    assert {path.name for path in (tmp_path / "demo" / "train").iterdir()} == set(DEMO_CLASSES[:7])


@pytest.mark.parametrize(
    "labels, image, says",
    [((0.0,), b"", "record 5 is no JPEG, it is empty"),
     ((4.0, 9.0), b"", "record 5 has 2 labels, which is not a class"),
     ((0.0, 1.0), None, "record 5 has 2 labels, which is not a class")])
def test_records_of_a_face_set_become_no_empty_images(packed, tmp_path, labels, image, says):
    for name in FILES:
        shutil.copy(str(packed / name), str(tmp_path))
    labelled(5, labels, image)(tmp_path)
    with pytest.raises(UserError, match=f"train.rec: {says}; see rn50 verify"):
        unpack(tmp_path, tmp_path / "back")
    assert not any(path.stat().st_size == 0 for path in (tmp_path / "back").rglob("*.JPEG"))


def test_an_interrupted_unpacking_goes_on(packed, tmp_path):
    def stop(done, total):
        if done > 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unpack(packed, tmp_path / "back", workers=1, progress=stop)
    assert [path.name for path in (tmp_path / "back").iterdir()] == [".unpack.partial"]
    unpack(packed, tmp_path / "back")
    assert len(list((tmp_path / "back").glob("*/*/*.JPEG"))) == 91
    with pytest.raises(UserError, match="train: is there already; choose another folder"):
        unpack(packed, tmp_path / "back")


def open_files(folder):
    """The files below ``folder`` that this process has open."""
    return [
        path for path in map(os.path.realpath, Path("/proc/self/fd").iterdir())
        if path.startswith(f"{folder}/")]


def test_an_interrupted_unpacking_leaves_no_file_open(packed, tmp_path):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as kept:  # and with it, in its frames, what the call had opened
        unpack(packed, tmp_path / "back", workers=1, progress=stop)
    assert kept and open_files(packed) == []


def killed_while_removing(folder):
    raise KeyboardInterrupt


@pytest.mark.parametrize("placed", [1, 2])
def test_classes_of_splits_that_were_in_place_before_an_interruption_count(
    packed, tmp_path, monkeypatch, placed
):
    data, back = tmp_path / "data", tmp_path / "back"
    data.mkdir()
    for name in FILES:  # without lists, so that classes are counted
        shutil.copy(str(packed / name), str(data))
    rename, done = os.replace, []

    def killed(source, target):
        if Path(target).parent == back:
            if len(done) == placed:
                raise KeyboardInterrupt
            done.append(target)
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        patch.setattr(shutil, "rmtree", killed_while_removing)
        with pytest.raises(KeyboardInterrupt):
            unpack(data, back)
    assert unpack(data, back) == (back, 7, 63, 28)


def test_a_full_disk_at_the_beginning_of_an_unpacking_is_one_line_and_the_command_goes_on(packed, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, limits[1]))
    try:
        with pytest.raises(
            UserError, match=r"cannot be written \(File too large\); fix that, and the same command goes on"
        ):
            unpack(packed, tmp_path / "back")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert unpack(packed, tmp_path / "back").train == 63


def test_data_in_a_folder_whose_name_is_no_utf8_are_unpacked(packed, tmp_path):
    data = tmp_path / os.fsdecode(b"data\xff")
    shutil.copytree(str(packed), str(data))
    with pytest.raises(KeyboardInterrupt):
        unpack(data, tmp_path / "back", progress=stop_at(1))
    assert unpack(data, tmp_path / "back").train == 63


def test_a_packing_that_is_there_is_left_alone(tree, packed):
    before = {path: path.stat().st_mtime_ns for path in packed.iterdir()}
    pack(tree, packed, progress=lambda done, total: pytest.fail("an image was packed"))
    assert {path: path.stat().st_mtime_ns for path in packed.iterdir()} == before


@pytest.mark.parametrize("name", ["val.idx", "classes.txt", "train.tsv", "certificate.json", OPEN_ONLY])
def test_data_of_somebody_else_are_refused(tree, tmp_path, name):
    (tmp_path / name).write_bytes(b"precious")
    with pytest.raises(UserError, match=f"{name}: is there already and was not packed from"):
        pack(tree, tmp_path)
    assert (tmp_path / name).read_bytes() == b"precious"


def test_too_little_space_is_said_before_anything_is_written(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**6, 10**6, 1000))
    with pytest.raises(UserError, match="0.0 GB are free; free space or choose another folder"):
        pack(tree, tmp_path)
    assert not (tmp_path / PARTIAL / "train.rec").exists()


def test_what_the_command_prints_is_true(tree, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "rn50", "pack", str(tree), str(tmp_path / "out"), "--json"], cwd=ROOT,
        stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout) == {"classes": 7, "train": 63, "val": 28, "folder": str(tmp_path / "out")}

"""Packing an image folder: every byte where MXNet would put it, any interruption harmless, what is no ImageNet layout refused."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from rn50.data.layout import FILES, PACKED
from rn50.data.packing import pack as packing
from rn50.data.packing.imagenet_folder import scan
from rn50.data.packing.pack import PARTIAL, order, pack
from rn50.data.packing.packing_list import read_classes, read_list
from rn50.data.packing.unpack import unpack
from rn50.data.recordio import MAGIC, IndexedRecordReader
from rn50.errors import UserError
from tests.support.image_tree import class_names, make

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tree")
    make(folder, classes=7, train=9, val=4)
    return folder


@pytest.fixture
def copy(tree, tmp_path):
    """The tree, to be spoiled."""
    return shutil.copytree(str(tree), str(tmp_path / "source")) and tmp_path / "source"


@pytest.fixture(scope="module")
def packed(tree, tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed") / "made" / "here"
    pack(tree, folder)
    return folder


def records(folder, name):
    with IndexedRecordReader(folder / f"{name}.rec", folder / f"{name}.idx") as reader:
        return [reader.read(position) for position in range(len(reader))]


def contents(folder):
    return {name: (folder / name).read_bytes() for name in (*FILES, *PACKED[1:])}


def test_every_image_is_there_once_with_the_rank_of_its_class(tree, packed):
    classes = class_names(7)
    for name, count in (("train", 63), ("val", 28)):
        wanted = {(classes.index(path.parent.name), path.read_bytes()) for path in (tree / name).glob("*/*.JPEG")}
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
    assert read_classes(packed) == class_names(7)
    for name in ("train", "val"):
        for entry, (header, image) in zip(read_list(packed, name), records(packed, name)):
            assert entry == (header.label, hashlib.sha256(image).digest(), entry.path)
            assert (tree / name / entry.path).read_bytes() == image
    assert sorted(path.name for path in packed.iterdir()) == sorted((*FILES, *PACKED))


@pytest.fixture
def with_magic(copy):
    """Images that hold the magic word, at 4-byte boundaries and beside them."""
    for number, path in enumerate(sorted(copy.glob("*/*/*.JPEG"))):
        data = path.read_bytes()
        path.write_bytes(data + b"x" * (number % 5) + MAGIC * (number % 3) + b"end"[: number % 4])
    return copy


@pytest.mark.parametrize("chunk", [1, 5, 64])
def test_files_are_those_of_mxnet(with_magic, tmp_path, monkeypatch, chunk):
    recordio = pytest.importorskip("mxnet.recordio")
    monkeypatch.setattr(packing, "CHUNK", chunk)  # with 1, some chunks hold no record that is cut
    pack(with_magic, tmp_path / "ours")
    for name, images in scan(with_magic).images.items():
        theirs = recordio.MXIndexedRecordIO(str(tmp_path / f"{name}.idx"), str(tmp_path / f"{name}.rec"), "w")
        for key, which in enumerate(order(len(images), 0, name)):
            data = (with_magic / name / images[which].path).read_bytes()
            theirs.write_idx(key, recordio.pack(recordio.IRHeader(0, images[which].label, key, 0), data))
        theirs.close()
        for kind in ("rec", "idx"):
            assert (tmp_path / "ours" / f"{name}.{kind}").read_bytes() == (tmp_path / f"{name}.{kind}").read_bytes()
        whole = (tmp_path / f"{name}.rec").read_bytes()
        assert whole.count(MAGIC) > len(images)  # some records are in parts
        reader = recordio.MXIndexedRecordIO(str(tmp_path / "ours" / f"{name}.idx"), str(tmp_path / "ours" / f"{name}.rec"), "r")
        for key, which in enumerate(order(len(images), 0, name)):
            header, data = recordio.unpack(reader.read_idx(key))
            assert header.label == images[which].label and data == (with_magic / name / images[which].path).read_bytes()


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
    assert unpack(packed, tmp_path / "back") == {"classes": 7, "train": 63, "val": 28}
    for name in ("train", "val"):
        wanted = {path.relative_to(tree): path.read_bytes() for path in (tree / name).glob("*/*")}
        assert {
            path.relative_to(tmp_path / "back"): path.read_bytes() for path in (tmp_path / "back" / name).glob("*/*")
        } == wanted
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["train", "val"]


def test_records_without_lists_are_unpacked_by_label_and_key(packed, tmp_path):
    for name in FILES:
        shutil.copy(str(packed / name), str(tmp_path))
    unpack(tmp_path, tmp_path / "back")
    header, image = records(packed, "train")[5]
    assert (tmp_path / "back" / "train" / f"{int(header.label):04d}" / f"{int(header.label):04d}_5.JPEG").read_bytes() == image


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


def test_a_packing_that_is_there_is_left_alone(tree, packed):
    before = {path: path.stat().st_mtime_ns for path in packed.iterdir()}
    pack(tree, packed, progress=lambda done, total: pytest.fail("an image was packed"))
    assert {path: path.stat().st_mtime_ns for path in packed.iterdir()} == before


def stop_at(count):
    def progress(done, total):
        if done >= count:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("count", [1, 8, 30, 63, 64, 80, 91])
def test_the_same_command_goes_on_after_ctrl_c(tree, packed, tmp_path, monkeypatch, count):
    monkeypatch.setattr(packing, "CHUNK", 4)
    with pytest.raises(KeyboardInterrupt):
        pack(tree, tmp_path, progress=stop_at(count))
    assert [path.name for path in tmp_path.iterdir()] == [PARTIAL]
    began = []
    pack(tree, tmp_path, progress=lambda done, total: began.append(done))
    # Not from the beginning: of each set only the last record a second time.
    assert all(done >= count - 1 for done in began if done not in (62, 63))
    assert contents(tmp_path) == contents(packed)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((*FILES, *PACKED))


@pytest.mark.parametrize("kind", ["rec", "idx", "tsv"])
@pytest.mark.parametrize("lost", [1, 7, 50])
def test_the_ends_of_files_that_a_kill_left_are_not_trusted(tree, packed, tmp_path, monkeypatch, kind, lost):
    monkeypatch.setattr(packing, "CHUNK", 4)
    with pytest.raises(KeyboardInterrupt):
        pack(tree, tmp_path, progress=stop_at(32))
    path = tmp_path / PARTIAL / f"train.{kind}"
    if kind == "rec":  # the index never is ahead of it
        path.write_bytes(path.read_bytes() + b"\0" * lost)
    else:
        path.write_bytes(path.read_bytes()[:-lost])
    pack(tree, tmp_path)
    assert contents(tmp_path) == contents(packed)


@pytest.mark.parametrize("placed", range(8))
def test_a_kill_between_two_renames_is_mended(tree, packed, tmp_path, monkeypatch, placed):
    replace, calls = os.replace, []

    def killed(source, target):
        if Path(target).parent == tmp_path:
            calls.append(target)
            if len(calls) > placed:
                raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            pack(tree, tmp_path)
    assert not (tmp_path / "pack.json").exists()
    pack(tree, tmp_path, progress=lambda done, total: pytest.fail("an image was packed again"))
    assert contents(tmp_path) == contents(packed) and not (tmp_path / PARTIAL).exists()


def test_other_images_or_another_seed_do_not_go_on(tree, copy, packed, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        pack(tree, tmp_path / "out", progress=stop_at(32))
    for source, seed in ((copy, 0), (tree, 1)):
        with pytest.raises(UserError, match="another seed was begun here; give that command again, or delete this folder"):
            pack(source, tmp_path / "out", seed=seed)
        with pytest.raises(UserError, match=r"pack\.json: a packing of other images or another seed; choose another folder"):
            pack(source, packed, seed=seed)


def test_after_another_start_of_the_machine_it_begins_afresh(tree, packed, tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        pack(tree, tmp_path, progress=stop_at(32))
    rec = tmp_path / PARTIAL / "train.rec"
    rec.write_bytes(bytes(rec.stat().st_size))  # as a power cut leaves a file
    monkeypatch.setattr(packing, "_boot", lambda: "another")
    pack(tree, tmp_path)
    assert contents(tmp_path) == contents(packed)


def test_an_image_that_changed_since_it_was_packed_is_noticed(copy, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        pack(copy, tmp_path / "out", progress=stop_at(32))
    path = copy / "train" / scan(copy).images["train"][order(63, 0, "train")[3]].path
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(UserError, match=f"{path.name} has changed since it was packed; delete .*{PARTIAL}"):
        pack(copy, tmp_path / "out")


def test_data_of_somebody_else_are_refused(tree, tmp_path):
    (tmp_path / "val.idx").write_bytes(b"precious")
    with pytest.raises(UserError, match=r"val\.idx: is there already and was not packed from"):
        pack(tree, tmp_path)
    assert (tmp_path / "val.idx").read_bytes() == b"precious"


SPOILT = [
    ("no train", lambda s: shutil.rmtree(str(s / "train")), r"train: no such folder; give a folder with train/<class>"),
    ("no val", lambda s: shutil.rmtree(str(s / "val")), r"val: no such folder"),
    (
        "flat train",
        lambda s: (
            [p.rename(s / "train" / p.name) for p in (s / "train").glob("*/*")]
            and [p.rmdir() for p in (s / "train").iterdir() if p.is_dir()]
        ),
        r"train: holds no class folders; extract",
    ),
    (
        "empty class",
        lambda s: [p.unlink() for p in (s / "train" / class_names(7)[2]).iterdir()],
        r"holds no image; extract its archive",
    ),
    (
        "class missing in val",
        lambda s: shutil.rmtree(str(s / "val" / class_names(7)[2])),
        r"val/n01440838: no such folder, though",
    ),
    ("class missing in train", lambda s: shutil.rmtree(str(s / "train" / class_names(7)[2])), r"train/n01440838: no such folder"),
    (
        "val in one folder",
        lambda s: (
            (s / "val" / "val").mkdir()
            or [p.rename(s / "val" / "val" / p.name) for p in (s / "val").glob("n*/*")]
            and [p.rmdir() for p in (s / "val").glob("n*")]
        ),
        r"the two sets must have the same classes",
    ),
    ("loose image", lambda s: (s / "val" / "a.JPEG").write_bytes(b"x"), r"val/a\.JPEG: an image beside the class folders"),
    ("archive", lambda s: (s / "val" / class_names(7)[0] / "a.tar").write_bytes(b"x"), r"a\.tar: no image file"),
    ("folder in a class", lambda s: (s / "train" / class_names(7)[0] / "more").mkdir(), r"more: no image file"),
    (
        "empty image",
        lambda s: (s / "train" / class_names(7)[1] / "empty.JPEG").write_bytes(b""),
        r"empty\.JPEG: is no JPEG, it is empty",
    ),
    (
        "web page",
        lambda s: (s / "train" / class_names(7)[1] / "page.JPEG").write_bytes(b"<html>"),
        r"page\.JPEG: is no JPEG, it starts",
    ),
    ("broken link", lambda s: (s / "val" / class_names(7)[1] / "link.JPEG").symlink_to("nowhere"), r"link\.JPEG: no image file"),
]


@pytest.mark.parametrize("spoil, says", [case[1:] for case in SPOILT], ids=[case[0] for case in SPOILT])
def test_what_is_not_the_layout_is_refused(copy, tmp_path, spoil, says):
    spoil(copy)
    with pytest.raises(UserError, match=says) as error:
        pack(copy, tmp_path / "out")
    assert "\n" not in str(error.value)
    assert not any((tmp_path / "out" / name).exists() for name in FILES)


def test_hidden_files_and_archives_beside_the_classes_are_left_out(copy, packed, tmp_path):
    (copy / "train" / f"{class_names(7)[0]}.tar").write_bytes(b"x")
    (copy / "train" / class_names(7)[0] / ".DS_Store").write_bytes(b"x")
    pack(copy, tmp_path / "out")
    assert contents(tmp_path / "out") == contents(packed)


@pytest.fixture
def flat(tmp_path):
    """A tree with a flat validation folder, and the label of every image in it."""
    return tmp_path / "flat", make(tmp_path / "flat", classes=7, train=2, val=3, flat=True)


def test_a_flat_validation_folder_without_classes_is_refused(flat, tmp_path):
    with pytest.raises(UserError, match="val: 21 images without class folders, so nobody knows their classes .*--val-truth FILE"):
        pack(flat[0], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def official(path, truth, classes):
    """The development kit's list, whose numbers are another order of the classes, and what they mean."""
    from scipy.io import savemat

    ids = {label: (label * 3) % len(classes) + 1 for label in range(len(classes))}
    path.write_text("".join(f"{ids[truth[name]]}\n" for name in sorted(truth)))
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O")]
    table = np.array(
        [(ids[label], name, "a word") for label, name in enumerate(classes)] + [(1001, "n00000001", "above")], dtype=kind
    )
    savemat(str(path.parent / "meta.mat"), {"synsets": table.reshape(-1, 1)})


TRUTHS = [
    ("official", official),
    ("classes", lambda path, truth, classes: path.write_text("".join(f"{classes[truth[name]]}\n" for name in sorted(truth)))),
    ("names and classes", lambda path, truth, classes: path.write_text("".join(f"{n} {classes[k]}\n" for n, k in truth.items()))),
    ("names and ranks", lambda path, truth, classes: path.write_text("".join(f"{n} {k}\n" for n, k in truth.items()))),
    (
        "Kaggle",
        lambda path, truth, classes: path.write_text(
            "ImageId,PredictionString\n"
            + "".join(f"{Path(n).stem},{classes[k]} 85 1 499 272 {classes[k]} 1 2 3 4\n" for n, k in truth.items())
        ),
    ),
]


@pytest.mark.parametrize("write", [case[1] for case in TRUTHS], ids=[case[0] for case in TRUTHS])
def test_a_flat_validation_folder_with_a_list(flat, tmp_path, write):
    source, truth = flat
    write(tmp_path / "truth.txt", truth, class_names(7))
    pack(source, tmp_path / "out", truth=tmp_path / "truth.txt")
    found = {
        entry.path: int(header.label)
        for entry, (header, _) in zip(read_list(tmp_path / "out", "val"), records(tmp_path / "out", "val"))
    }
    assert found == truth
    unpack(tmp_path / "out", tmp_path / "back")
    assert {path.name: class_names(7).index(path.parent.name) for path in (tmp_path / "back" / "val").glob("*/*")} == truth


def test_the_development_kit_is_found_by_itself(flat, tmp_path):
    source, truth = flat
    kit = source / "ILSVRC2012_devkit_t12" / "data"
    kit.mkdir(parents=True)
    official(kit / "ILSVRC2012_validation_ground_truth.txt", truth, class_names(7))
    pack(source, tmp_path / "out")
    assert sorted(int(header.label) for header, _ in records(tmp_path / "out", "val")) == sorted(truth.values())


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "truth.txt: empty"),
        ("1\n" * 20, "has 20 lines, and the validation folder 21 images"),
        ("1\n" * 21, "has ILSVRC2012_IDs, which are not labels; put the development kit's meta.mat beside it"),
        ("n99999999\n" * 21, "line 1 names the class n99999999, of which train/ has no folder"),
        ("ILSVRC2012_val_00000001.JPEG 3\n" * 21, "line 2 is not about one more image"),
        ("another.JPEG 3\n" * 21, "line 1 is not about one more image"),
    ],
)
def test_a_list_that_does_not_belong_to_the_folder_is_refused(flat, tmp_path, text, says):
    (tmp_path / "truth.txt").write_text(text)
    with pytest.raises(UserError, match=says):
        pack(flat[0], tmp_path / "out", truth=tmp_path / "truth.txt")


def test_too_little_space_is_said_before_anything_is_written(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**6, 10**6, 1000))
    with pytest.raises(UserError, match="0.0 GB are free; free space or choose another folder"):
        pack(tree, tmp_path)
    assert not (tmp_path / PARTIAL / "train.rec").exists()


def start(tree, folder, before=""):
    """The command in a process of its own, one image at a time."""
    code = (
        f"import time\nfrom rn50.data.packing import pack\nfrom rn50 import cli\npack.CHUNK = 1\n{before}\n"
        f"cli.main(['pack', {str(tree)!r}, {str(folder)!r}])"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


SLOWLY = (
    "in_order = pack._in_order\ndef slow(*arguments):\n    for each in in_order(*arguments):\n        yield each\n"
    "        time.sleep(0.05)\npack._in_order = slow"
)


def until_bytes(count, folder, process):
    path = folder / PARTIAL / "train.rec"
    while not path.exists() or path.stat().st_size < count:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_nothing_that_is_taken_for_whole_and_the_command_goes_on(tree, packed, tmp_path, number):
    process = start(tree, tmp_path, SLOWLY)
    until_bytes(20_000, tmp_path, process)
    os.killpg(process.pid, number)
    _, messages = process.communicate(timeout=60)
    assert process.returncode != 0 and "Traceback" not in messages
    if number == signal.SIGINT:
        assert process.returncode == 130 and "the same command starts again" in messages
    assert [path.name for path in tmp_path.iterdir()] == [PARTIAL]
    whole = (tmp_path / PARTIAL / "train.idx").read_bytes().count(b"\n")
    assert whole > 2
    began = []
    pack(tree, tmp_path, progress=lambda done, total: began.append(done))
    assert began[0] == whole - 1  # the last one may be cut short
    assert contents(tmp_path) == contents(packed)


def test_a_process_that_is_killed_is_one_line_and_the_command_goes_on(tree, packed, tmp_path):
    process = start(tree, tmp_path, SLOWLY)
    until_bytes(20_000, tmp_path, process)
    workers = [each for each in psutil.Process(process.pid).children() if "spawn_main" in " ".join(each.cmdline())]
    assert workers
    workers[0].kill()
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 2
    last = messages.splitlines()[-1]
    assert "a process that packs was killed, perhaps for want of memory; the same command goes on where it stopped" in last
    pack(tree, tmp_path)
    assert contents(tmp_path) == contents(packed)


def test_a_disk_that_takes_no_more_is_one_line_and_the_command_goes_on(tree, packed, tmp_path):
    process = start(tree, tmp_path, "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))")
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "cannot be written (File too large); mend that, and the same command goes on" in messages.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == [PARTIAL]
    pack(tree, tmp_path)
    assert contents(tmp_path) == contents(packed)


def test_a_second_process_in_the_same_folder_is_refused(tree, tmp_path):
    process = start(tree, tmp_path, SLOWLY)
    until_bytes(1, tmp_path, process)
    try:
        with pytest.raises(UserError, match="another process is packing a data set there"):
            pack(tree, tmp_path)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)


def test_what_the_command_prints_is_true(tree, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "rn50", "pack", str(tree), str(tmp_path / "out"), "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    assert json.loads(done.stdout) == {"classes": 7, "train": 63, "val": 28, "folder": str(tmp_path / "out")}

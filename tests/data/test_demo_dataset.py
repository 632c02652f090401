"""The demo data set: deterministic, without overlap, never half there, never overwriting what is not its
own.

Processes: signals, killed workers and full disks end a process.
"""

import collections
import functools
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest

from rn50.data.certification import certificate
from rn50.data.certification.certify import certify
from rn50.data.demo import dataset
from rn50.data.demo.dataset import PARTIAL, Settings
from rn50.data.demo.images import CLASSES, SHAPES, draw, encode
from rn50.data.layout import CERTIFICATE, DEMO_CLASSES, DEMO_RECORD, FILES
from rn50.data.preflight import check_record_set, find_bad_record
from rn50.data.recordio import IndexedRecordReader
from rn50.errors import UserError
from tests.conftest import in_test_all
from tests.support.ended import group_ends

ROOT = Path(__file__).resolve().parents[2]
SMALL = Settings(seed=3, train=150, val=70)
generate = functools.partial(dataset.generate, workers=1)


def contents(folder):
    return {name: (folder / name).read_bytes() for name in FILES}


def records(folder, name):
    with IndexedRecordReader(folder / f"{name}.rec", folder / f"{name}.idx") as reader:
        return [reader.read(position) for position in range(len(reader))]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "made" / "here"
    generate(folder, SMALL)
    return folder


@pytest.fixture
def copy(small, tmp_path):
    """A finished data set that a test may spoil."""
    for name in FILES + (DEMO_RECORD, CERTIFICATE):
        (tmp_path / name).write_bytes((small / name).read_bytes())
    return tmp_path


def test_every_class_is_called_after_its_shape():
    names = [f"{colouring} {shape.__name__}" for colouring in ("coloured", "grey") for shape in SHAPES]
    assert names == DEMO_CLASSES and len(names) == CLASSES


def test_it_is_a_whole_data_set(small):
    for name, samples in (("train", 150), ("val", 70)):
        check_record_set(small / f"{name}.rec", small / f"{name}.idx", samples, "NUMEXAMPLES")
        assert find_bad_record(small / f"{name}.rec", small / f"{name}.idx", classes=10) is None
    assert sorted(path.name for path in small.iterdir()) == sorted(FILES + (DEMO_RECORD, CERTIFICATE))


def test_classes_are_balanced_and_shuffled(small):
    for name, each in (("train", 15), ("val", 7)):
        labels = [int(header.label) for header, _ in records(small, name)]
        assert collections.Counter(labels) == dict.fromkeys(range(10), each)
        assert labels != sorted(labels) and labels != [index % 10 for index in range(len(labels))]


def test_every_image_is_the_one_of_its_index(small):
    expected = collections.Counter(encode(3, "val", index) for index in range(70))
    assert (
        collections.Counter((int(header.label), image) for header, image in records(small, "val")) == expected
    )


def test_images_are_small_jpegs_of_varied_size(small):
    images = [image for _, image in records(small, "train")]
    shapes = {cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR).shape for image in images}
    assert len(shapes) > 50
    assert {channels for _, _, channels in shapes} == {3}
    assert min(min(height, width) for height, width, _ in shapes) >= 72
    assert max(min(height, width) for height, width, _ in shapes) <= 110
    assert 2000 < np.mean([len(image) for image in images]) < 5000


def test_files_do_not_depend_on_the_number_of_processes(small, tmp_path):
    generate(tmp_path, SMALL, workers=2)
    assert contents(tmp_path) == contents(small)


def test_another_seed_gives_other_images(small, tmp_path):
    generate(tmp_path, SMALL._replace(seed=4))
    images = {image for name in ("train", "val") for _, image in records(tmp_path, name)}
    assert images.isdisjoint(image for name in ("train", "val") for _, image in records(small, name))


def test_the_tune_split_leaves_the_training_set_as_it_is(small, tmp_path):
    generate(tmp_path, SMALL._replace(val_split="tune"))
    tuned, shipped = contents(tmp_path), contents(small)
    assert tuned["train.rec"] == shipped["train.rec"] and tuned["val.rec"] != shipped["val.rec"]


def test_no_image_is_in_two_splits():
    hashes = collections.Counter(
        hashlib.sha256(encode(0, split, index)[1]).digest() for split in ("train", "val", "tune")
        for index in range(300))
    assert max(hashes.values()) == 1


@pytest.mark.parametrize("label", range(CLASSES))
def test_every_class_can_be_drawn(label):
    image = draw(label, np.random.RandomState(0))
    assert image.dtype == np.uint8 and image.ndim == 3 and image.std() > 5


def test_a_scaled_image_is_the_same_drawing():
    (label, plain), (same, large) = encode(3, "train", 5), encode(3, "train", 5, 4)
    plain, large = (
        cv2.imdecode(np.frombuffer(each, np.uint8), cv2.IMREAD_COLOR).astype(float) for each in (plain, large)
    )
    assert label == same and large.shape == (4 * plain.shape[0], 4 * plain.shape[1], 3)
    shrunk = cv2.resize(large, plain.shape[1::-1], interpolation=cv2.INTER_AREA)
    assert np.corrcoef(shrunk.ravel(), plain.ravel())[0, 1] > 0.95


def test_a_set_of_another_scale_is_another_set(copy):
    with pytest.raises(UserError, match="scale 1 instead of 4"):
        generate(copy, SMALL._replace(scale=4))


def test_progress_counts_every_image(tmp_path):
    calls = []
    generate(tmp_path, SMALL, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(done, 220) for done in range(1, 221)]


def test_a_finished_set_is_not_made_again(copy):
    before = {path.name: path.stat().st_mtime_ns for path in copy.iterdir()}
    generate(copy, SMALL, progress=lambda done, total: pytest.fail("an image was drawn"))
    assert {path.name: path.stat().st_mtime_ns for path in copy.iterdir()} == before


def test_it_has_a_certificate_that_verifying_confirms(small, copy):
    before = (small / CERTIFICATE).read_bytes()
    content = certificate.read(small).content
    assert (content["passed"], content["classes"], content["train"], content["val"]) == (True, 10, 150, 70)
    assert certify(copy).checked.passed and (copy / CERTIFICATE).read_bytes() == before
    assert certify(copy, decode=True).checked.passed


def test_a_set_of_an_older_version_without_certificate_gets_one(small, copy):
    (copy / CERTIFICATE).unlink()
    assert certificate.expected(copy).by == DEMO_RECORD
    generate(copy, SMALL)
    assert (copy / CERTIFICATE).read_bytes() == (small / CERTIFICATE).read_bytes()


@pytest.mark.parametrize("present", [(), *in_test_all((("train.rec", "train.idx", "val.rec"),))])
def test_a_set_whose_files_were_not_all_put_in_place_is_finished(copy, small, present):
    for name in set(FILES) - set(present):
        (copy / name).unlink()
    generate(copy, SMALL)
    assert contents(copy) == contents(small)


@pytest.mark.parametrize(
    "change, words",
    [({"seed": 4}, "seed 3 instead of 4"), ({"train": 151}, "train 150 instead of 151"),
     ({"val": 71}, "val 70 instead of 71"), ({"scale": 2}, "scale 1 instead of 2"),
     ({"val_split": "tune"}, "val_split val instead of tune")])
def test_a_set_of_other_settings_is_refused(copy, small, change, words):
    with pytest.raises(UserError, match=rf"{DEMO_RECORD}: a demo data set of other settings \({words}\)"):
        generate(copy, SMALL._replace(**change))
    assert contents(copy) == contents(small)


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_refused(copy, name):
    changed = bytearray((copy / name).read_bytes())
    changed[-3] ^= 1
    (copy / name).write_bytes(changed)
    with pytest.raises(UserError, match=f"{name}: was changed since it was generated"):
        generate(copy, SMALL)
    assert (copy / name).read_bytes() == changed


@pytest.mark.parametrize("name", FILES)
def test_files_of_somebody_else_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"precious")
    with pytest.raises(UserError, match=f"{name}: is there already and no demo data set"):
        generate(tmp_path, SMALL)
    assert (tmp_path / name).read_bytes() == b"precious"
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 1}', "\udcff", "[" * 99_999])
def test_a_damaged_record_is_refused(copy, text):
    (copy / DEMO_RECORD).write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(UserError, match=f"{DEMO_RECORD}: .*; choose another folder or delete "):
        generate(copy, SMALL)


@pytest.mark.parametrize("settings", [{"seed": -1}, {"seed": 2**32}, {"train": 0}, {"val": 0}, {"scale": 0}])
def test_impossible_settings_are_refused(tmp_path, settings):
    with pytest.raises(UserError, match="a demo data set has a seed in"):
        generate(tmp_path / "demo", SMALL._replace(**settings))
    assert not (tmp_path / "demo").exists()


def start(folder, before=""):
    """A process that generates 100,000 images into ``folder``, in a process group of its own, as a shell
    starts it."""
    call = f"dataset.generate({str(folder)!r}, dataset.Settings(train=100_000), workers=2)"
    code = f"from rn50.data.demo import dataset\n{before}\n{call}"
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for_bytes(count, folder, process):
    """Wait until ``process`` has written ``count`` bytes of records: with 0 its workers are about to
    start."""
    path = folder / PARTIAL / "train.rec"
    while not path.exists() or path.stat().st_size < count:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)


@pytest.mark.parametrize("written, pause", [(0, 0), (1, 0), *in_test_all((0, 0.2), (0, 0.4))])
def test_ctrl_c_removes_everything_and_every_process(tmp_path, written, pause):
    process = start(tmp_path / "demo")
    wait_for_bytes(written, tmp_path / "demo", process)
    time.sleep(pause)
    os.killpg(process.pid, signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    assert process.returncode != 0
    assert messages.count("Traceback") == 1 and messages.rstrip().endswith(
        "KeyboardInterrupt"
    )  # none from a worker
    assert list((tmp_path / "demo").iterdir()) == []
    assert group_ends(process.pid)


def test_sigterm_to_all_processes_leaves_nothing_and_no_traceback(tmp_path):
    """As timeout(1) sends it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rn50", "demo-data", str(tmp_path / "demo")], stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_for_bytes(1, tmp_path / "demo", process)
    os.killpg(process.pid, signal.SIGTERM)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM and "Traceback" not in messages, messages
    assert list((tmp_path / "demo").iterdir()) == [] and group_ends(process.pid)


def test_a_killed_process_leaves_no_files_and_no_workers_and_the_next_one_starts_afresh(tmp_path, small):
    process = start(tmp_path)
    wait_for_bytes(1, tmp_path, process)
    process.kill()
    process.communicate(timeout=60)
    assert not any((tmp_path / name).exists() for name in FILES)
    assert group_ends(process.pid)
    generate(tmp_path, SMALL)
    assert contents(tmp_path) == contents(small)
    assert not (tmp_path / PARTIAL).exists()


def test_a_second_process_in_the_same_folder_is_refused(tmp_path):
    process = start(tmp_path)
    wait_for_bytes(1, tmp_path, process)
    try:
        with pytest.raises(UserError, match="another process is generating a data set there"):
            generate(tmp_path, SMALL)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)


def test_a_killed_worker_is_one_line(tmp_path):
    before = (
        "import multiprocessing, os, signal, threading, time\n" "def kill_a_worker():\n"
        "    while not multiprocessing.active_children(): time.sleep(0.05)\n" "    time.sleep(1)\n"
        "    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)\n"
        "threading.Thread(target=kill_a_worker, daemon=True).start()")
    process = start(tmp_path, before)
    _, messages = process.communicate(timeout=60)
    assert process.returncode != 0
    assert (
        "UserError" in messages.splitlines()[-1]
        and "a process generating a data set was killed" in messages.splitlines()[-1])
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_no_more_is_one_line(tmp_path):
    before = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))"
    process = start(tmp_path, before)
    _, messages = process.communicate(timeout=60)
    assert process.returncode != 0
    assert (
        f"{tmp_path}: cannot be written (File too large); free space or choose another folder"
        in messages.splitlines()[-1])
    assert list(tmp_path.iterdir()) == []

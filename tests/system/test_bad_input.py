"""Bad data, bad values, a bad place for the log: one line that names file or variable and the remedy, then a
quick end."""

import contextlib
import re
import shutil
import struct
import subprocess

import pytest

from rn50.data.recordio import IndexedRecordReader, encode_image, read_index
from tests.system.job import RN50, ROOT, Job, assert_aborted

USER_CAN_MEND = 2
RECORD_HEADER = 8
LABEL = RECORD_HEADER + 4
IMAGE = RECORD_HEADER + 24


@pytest.fixture
def data(tiny_folder, tmp_path):
    """A copy of the tiny data set, to be spoiled."""
    return shutil.copytree(str(tiny_folder), str(tmp_path / "data")) and tmp_path / "data"


def overwrite(folder, name, position, place, content):
    """Puts ``content`` at byte ``place`` of record ``position`` of a set."""
    _, offsets = read_index(folder / f"{name}.idx")
    with (folder / f"{name}.rec").open("r+b") as stream:
        stream.seek(int(offsets[position]) + place)
        stream.write(content)


def no_jpeg(folder, name, position):
    """A record with a text where its image starts."""
    overwrite(folder, name, position, IMAGE, b"this is no JPEG")


def label(folder, name, position, value):
    """A record of another class."""
    overwrite(folder, name, position, LABEL, struct.pack("<f", value))


def packed_again(folder, encode):
    """The training set with what ``encode(position, header, image)`` makes of each record."""
    with IndexedRecordReader(folder / "train.rec", folder / "train.idx") as reader:
        records = [encode(position, *reader.read(position)) for position in range(len(reader))]
    starts = [sum(map(len, records[:position])) for position in range(len(records))]
    (folder / "train.rec").write_bytes(b"".join(records))
    (folder / "train.idx").write_text("".join(f"{key}\t{start}\n" for key, start in enumerate(starts)))
    (folder / "certificate.json").unlink()


def cut(folder):
    """Half of an image."""
    packed_again(
        folder,
        lambda position, header, image: encode_image(
            position, header.label, image[: len(image) // 2] if position == 150 else image))


def truncate(path, keep):
    """The first part of a file."""
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])


# What is seen from outside of the files, before anything starts.
MISSING = [
    ("empty folder", lambda folder: [path.unlink() for path in folder.iterdir()],
     r"train\.rec: No such file .*; set DATADIR"),
    ("empty index", lambda folder: (folder / "train.idx").write_bytes(b""),
     r"train\.idx: empty; set DATADIR")]


@pytest.mark.smoke("no rank may start")
@pytest.mark.parametrize("spoil, says", [case[1:] for case in MISSING], ids=[case[0] for case in MISSING])
def test_missing_data_is_an_error_before_anything_starts(start, data, results, spoil, says):
    spoil(data)
    job = start(DATADIR=str(data))
    assert job.wait() == USER_CAN_MEND
    assert re.search(says, job.complaint)
    assert [path.name for path in results.iterdir()] == ["result_0.txt"]


# What only shows once the files are open and the clock runs: one case for the check on opening, one for
# labels, two for what DALI finds. The same code gives every fault its line in tests/data/test_verify.py.
DAMAGED = [
    ("truncated records", lambda folder: truncate(folder / "train.rec", 0.5),
     r"train\.rec: truncated: record 202 .*pack"),
    ("no JPEG to validate on", lambda folder: no_jpeg(folder, "val", 40),
     r"val\.rec: record 40 .*no JPEG.*replace the image"),
    ("label that is not a number", lambda folder: label(folder, "val", 40, float("nan")),
     r"val\.rec: record 40 .*label nan, no"),
    ("image cut short", lambda folder: cut(folder),
     r"train\.rec: record 150 .*does not decode .*; rn50 verify --full")]


@pytest.mark.parametrize("spoil, says", [case[1:] for case in DAMAGED], ids=[case[0] for case in DAMAGED])
def test_damaged_data_ends_the_run(start, data, results, spoil, says):
    spoil(data)
    job = start(DATADIR=str(data), WARMUP_EPOCHS="0", NUMEPOCHS="1")
    assert job.wait() == USER_CAN_MEND
    assert re.search(says, job.complaint)
    assert_aborted(results / "result_1.txt")


def test_a_record_that_is_no_jpeg_ends_both_ranks(start, data, results):
    no_jpeg(data, "train", 150)
    job = start(DATADIR=str(data), DGXNGPU="2", WARMUP_EPOCHS="0", NUMEPOCHS="1")
    assert job.wait() == USER_CAN_MEND
    assert re.search(
        r"train\.rec: record 150 at byte \d+ is no JPEG.*; replace the image and pack", job.complaint)
    assert_aborted(results / "result_1.txt")


def test_a_label_out_of_range(start, data, results):
    label(data, "train", 150, 1000)
    job = start(DATADIR=str(data))
    assert job.wait() == USER_CAN_MEND
    assert re.search(
        r"train\.rec: record 150 at byte \d+ has label 1000, no class of \[0, 10\); set NUMCLASSES",
        job.complaint)
    assert_aborted(results / "result_1.txt")


def test_other_number_of_validation_images(start, results):
    job = start(NUMVALEXAMPLES="58")
    assert job.wait() == USER_CAN_MEND
    told = "val.idx: lists 57 records, but NUMVALEXAMPLES is 58; set DATADIR to the data that are meant, or "
    assert f"{told}NUMVALEXAMPLES=57" in job.complaint
    assert_aborted(results / "result_1.txt")


@pytest.mark.parametrize(
    "name, value, says",
    [pytest.param("LR", "fast", "LR=fast .*for example LR=", marks=pytest.mark.smoke("no rank may start")),
     ("OMP_NUM_THREADS", "abc", "OMP_NUM_THREADS=abc is not a number; correct or unset it"),
     ("SUBMISSION_ORG", "caf\udce9", r"SUBMISSION_ORG=caf.* is not UTF-8"),
     ("RN50_WATCHDOG_S", "soon",
      "RN50_WATCHDOG_S=soon: no whole number of seconds .*; correct or unset it"),
     ("FRAMEWORK", "abacus", r"FRAMEWORK=abacus is not an implementation \(choose from .*mxnet")])
def test_impossible_value(start, results, name, value, says):
    job = start(**{name: value})
    assert job.wait() == USER_CAN_MEND
    assert re.search(says, job.complaint)
    assert [path.name for path in results.iterdir()] == ["result_0.txt"]


@pytest.mark.smoke("a limit of a process")
def test_too_little_memory_is_a_line():
    job = Job({}, ["bash", "-c", 'ulimit -v 200000; exec "$@"', "bash", *RN50, "launch"])
    assert job.wait() == USER_CAN_MEND
    assert job.complaint == (
        "rn50: ulimit -v 200000: rn50 needs 800 MiB of memory at least; raise it, as with ulimit -v unlimited"
    )


def test_misspelled_name_in_one_of_our_files(tiny_environment, tmp_path):
    # Ours is what lies in configs/ of the checkout that runs: so it is a checkout of the test's own.
    for part in ("rn50", "implementations", "configs"):
        shutil.copytree(
            str(ROOT / part), str(tmp_path / part), symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(str(ROOT / "run_and_time.sh"), str(tmp_path))
    with (tmp_path / "configs" / "config_DEMO_CPU.sh").open("a") as stream:
        stream.write("export LABELSMOTHING=0.2\n")
    job = Job(
        {"DGXSYSTEM": "DEMO_CPU", "DATADIR": tiny_environment["DATADIR"]}, ["./run_and_time.sh"], tmp_path)
    assert job.wait() == USER_CAN_MEND
    assert re.search(r"LABELSMOTHING in .*config_DEMO_CPU\.sh .*did you mean LABELSMOOTHING\?", job.complaint)


def test_more_ranks_than_there_is_horovod_for(start, results, tmp_path):
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").touch()  # stands before an installed one
    job = start(DGXNGPU="2", LAUNCHER="horovodrun", PYTHONPATH=str(tmp_path))
    assert job.wait() == USER_CAN_MEND
    assert re.search(
        "LAUNCHER=horovodrun: 2 ranks need Horovod; requirements/install.sh horovod", job.complaint)
    assert_aborted(results / "result_1.txt", clock_ran=False)


def test_existing_result(start, results):
    job = start(RESULT_FILE=str(results / "result_0.txt"))
    assert job.wait() == USER_CAN_MEND
    assert (
        "result_0.txt: a result of this name exists; move it away or set another RESULT_FILE" in job.complaint
    )
    assert [path.name for path in results.iterdir()] == ["result_0.txt"]


def test_result_file_where_nothing_can_be_written(start, results):
    job = start(
        RESULT_FILE=str(results / "result_0.txt" / "result_1.txt")
    )  # a file is no folder; nor for root
    assert job.wait() == USER_CAN_MEND
    assert re.search(
        r"result_0\.txt.*: cannot write the result log .*; set another RESULT_FILE", job.complaint)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, of 1 MiB; what was written there is left in place."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], stderr=subprocess.PIPE, text=True)
    if mount.returncode:
        pytest.skip(f"a full disk needs the right to mount one: {mount.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder):
    """Leaves not a byte of room."""
    with (folder / "filler").open("ab", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(bytes(1024))


def test_disk_full_from_the_start(start, small_disk):
    fill(small_disk)
    job = start(RESULT_FILE=str(small_disk / "result_1.txt"))
    assert job.wait() == USER_CAN_MEND
    assert re.search(r"disk/result_1.*: cannot .*No space left.*; free the disk", job.complaint)
    assert_aborted(small_disk / "result_1.txt", clock_ran=False)


def test_disk_full_in_mid_run(start, small_disk):
    job = start(RESULT_FILE=str(small_disk / "result_1.txt"), NUMEPOCHS="1000")
    job.until_logged(small_disk / "result_1.txt", "run_start")
    fill(small_disk)
    assert job.wait() == USER_CAN_MEND
    # Which of the two it is that finds no room depends on the moment.
    failed = (
        r"disk/result_1\.(txt.*: cannot write the result log|json: cannot be written) .*No space "
        r"left.*; free the disk")
    assert re.search(failed, job.complaint)
    assert_aborted(small_disk / "result_1.txt")

"""The check of a data folder before a run, on real files that are each broken in one way."""

import os
import re
import struct
import sys

import cv2
import numpy as np
import pytest

from rn50.data.demo.dataset import encode
from rn50.data.jpeg import read_header
from rn50.data.layout import FILES
from rn50.data.preflight import check, check_files, check_record_set, find_bad_record
from rn50.data.recordio import IndexedRecordWriter, encode_record, read_index
from rn50.errors import UserError
from rn50.settings import named

SAMPLES = 12


@pytest.fixture(scope="module")
def images():
    return [encode(0, "train", index)[1] for index in range(SAMPLES)]


@pytest.fixture
def record_set(tmp_path, images):
    """A whole set of twelve images of the classes 0-9: the paths of its .rec and .idx."""
    with IndexedRecordWriter(tmp_path / "train") as writer:
        for key, image in enumerate(images):
            writer.write(key, key % 10, image)
    return tmp_path / "train.rec", tmp_path / "train.idx"


def fill(folder):
    for name in FILES:
        (folder / name).write_bytes(b"x")


def test_preflight_passes_a_full_folder(tmp_path):
    fill(tmp_path)
    check_files(tmp_path)


def test_preflight_opens_no_file(tmp_path):
    fill(tmp_path)
    opened = []
    watching = True

    def watch(event, arguments):
        if watching and event in ("open", "os.listdir", "os.scandir") and str(tmp_path) in str(arguments[0]):
            opened.append((event, arguments))

    sys.addaudithook(watch)
    check_files(tmp_path)
    assert opened == []
    with open(tmp_path / FILES[0], "rb"):
        watching = False
    assert len(opened) == 1  # the hook does see an open


@pytest.mark.parametrize("name", FILES)
def test_preflight_names_the_missing_file_and_the_remedy(tmp_path, name):
    fill(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(UserError) as error:
        check_files(tmp_path)
    line = str(error.value)
    assert line.startswith(f"{tmp_path / name}: No such file or directory; set DATADIR to ")
    assert line.endswith(f"rn50 demo-data {tmp_path}")
    assert "\n" not in line


@pytest.mark.parametrize("name", FILES)
def test_preflight_names_the_empty_file(tmp_path, name):
    fill(tmp_path)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(UserError, match=f"{name}: empty; set DATADIR"):
        check_files(tmp_path)


@pytest.mark.parametrize(
    "make, kind",
    [(os.mkdir, "folder"), (os.mkfifo, "pipe"), (lambda path: path.symlink_to("/dev/zero"), "device")])
def test_preflight_names_what_is_no_file(tmp_path, make, kind):
    fill(tmp_path)
    (tmp_path / "val.rec").unlink()
    make(tmp_path / "val.rec")
    with pytest.raises(UserError, match=f"val.rec: is a {kind}, no regular file; set DATADIR"):
        check_files(tmp_path)


def test_preflight_names_the_missing_folder(tmp_path):
    with pytest.raises(UserError, match="nowhere: No such file or directory; set DATADIR"):
        check_files(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "name, says",
    [("DEMO_GPU_PYTORCH", "make the demo data set: rn50 demo-data --scale 4 "),
     ("DEMO_CPU", "make the demo data set: rn50 demo-data /"),
     ("H200", "pack it from its images: rn50 pack /path/to/ILSVRC2012 /")])
def test_preflight_names_the_command_that_makes_these_data(name, says, tmp_path):
    config = named.read(name, environ={**os.environ, "DATADIR": str(tmp_path / "absent")})
    with pytest.raises(UserError, match=re.escape(says) + ".*absent$"):
        check(config)


def test_an_index_that_is_too_short_for_the_number_of_records_is_refused_unopened(tmp_path):
    fill(tmp_path)
    ours = named.read("DGXH100", environ={**os.environ, "DATADIR": str(tmp_path)})
    os.truncate(tmp_path / "train.idx", 4 * 1281167 - 2)
    says = "train.idx: too short for 1281167 records; set NUMEXAMPLES or DATADIR to match"
    with pytest.raises(UserError, match=says):
        check(ours)


def test_a_whole_set_passes(record_set):
    check_record_set(*record_set, SAMPLES, "NUMEXAMPLES")


@pytest.mark.parametrize(
    "expected, variable", [(SAMPLES + 1, "NUMEXAMPLES"), (SAMPLES - 1, "NUMVALEXAMPLES")])
def test_a_wrong_count_names_the_variable(record_set, expected, variable):
    told = rf"idx: lists 12 records, but {variable} is {expected}; set DATADIR .*, or {variable}=12"
    with pytest.raises(UserError, match=told):
        check_record_set(*record_set, expected, variable)


@pytest.mark.parametrize("lost", [8, 100])  # at the least a word more than the padding
def test_a_truncated_rec_is_found(record_set, lost):
    rec, idx = record_set
    rec.write_bytes(rec.read_bytes()[:-lost])
    with pytest.raises(UserError, match=r"train\.rec: truncated: record 11 at byte"):
        check_record_set(rec, idx, SAMPLES, "NUMEXAMPLES")


def test_a_truncated_rec_is_found_through_a_shuffled_index(record_set):
    rec, idx = record_set
    lines = idx.read_text().splitlines()
    idx.write_text("\n".join(lines[6:] + lines[:6]) + "\n")
    rec.write_bytes(rec.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"train\.rec: truncated: record 5 at byte"):
        check_record_set(rec, idx, SAMPLES, "NUMEXAMPLES")


@pytest.mark.parametrize(
    "order, line", [([0] * 12, 2), ([*range(6), 3, *range(6, 11)], 7), ([*range(11, 0, -1), 11], 12)])
def test_an_index_that_names_a_record_twice_is_found(record_set, order, line):
    rec, idx = record_set
    _, offsets = read_index(idx)
    idx.write_text("".join(f"{key}\t{offsets[position]}\n" for key, position in enumerate(order)))
    with pytest.raises(
        UserError, match=f"idx: line {line} names the record at byte {offsets[order[line - 1]]} a second time"
    ):
        check_record_set(rec, idx, SAMPLES, "NUMEXAMPLES")


def test_an_index_that_ends_amid_a_number_is_found(record_set):
    rec, idx = record_set
    idx.write_text(idx.read_text()[:-2])
    with pytest.raises(UserError, match="record 11 at byte .* does not start as a record does"):
        check_record_set(rec, idx, SAMPLES, "NUMEXAMPLES")


def test_a_rec_that_is_no_recordio_is_found(record_set):
    rec, idx = record_set
    rec.write_bytes(b"?" * rec.stat().st_size)
    with pytest.raises(UserError, match="record 0 at byte 0 does not start as a record does"):
        check_record_set(rec, idx, SAMPLES, "NUMEXAMPLES")


def rewrite(record_set, position, label, image):
    """Replace the record at ``position`` by appending another and pointing its index line there; returns its
    offset."""
    rec, idx = record_set
    keys, offsets = read_index(idx)
    offsets[position] = rec.stat().st_size
    with open(rec, "ab") as file:
        file.write(encode_record(struct.pack("<IfQQ", 0, label, position, 0) + image))
    idx.write_text("".join(f"{key}\t{offset}\n" for key, offset in zip(keys, offsets, strict=False)))
    return offsets[position]


def test_a_whole_set_has_no_bad_record(record_set):
    assert find_bad_record(*record_set, classes=10) is None


@pytest.mark.parametrize(
    "image, words",
    [(b"hello, world", "is no JPEG, it starts with the bytes 68 65 6c 6c"),
     (b"", "is no JPEG, it is empty"),
     (b"\xff\xd8\xff\xe0\x00\x10JFIF", "is a JPEG that is damaged or cut short before its frame header")])
def test_a_record_that_is_no_jpeg_is_named(record_set, image, words):
    offset = rewrite(record_set, 7, 0, image)
    line = find_bad_record(*record_set, classes=10)
    assert (
        line.startswith(f"{record_set[0]}: record 7 at byte {offset} {words}; replace the image")
        and "\n" not in line)


@pytest.mark.parametrize(
    "label, shown", [(10, "10"), (-1, "-1"), (2.5, "2.5"), (float("nan"), "nan"), (float("inf"), "inf")])
def test_a_label_outside_the_classes_is_named(record_set, images, label, shown):
    offset = rewrite(record_set, 3, label, images[3])
    assert find_bad_record(*record_set, classes=10).startswith(
        f"{record_set[0]}: record 3 at byte {offset} has label {shown}, no class of [0, 10); set NUMCLASSES")


def test_a_record_of_several_labels_is_named(record_set, images):
    rec, idx = record_set
    offset = rewrite(record_set, 3, 0, struct.pack("<2f", 1, 2) + images[3])
    data = bytearray(rec.read_bytes())
    data[offset + 8] = 2  # the flag of its header
    rec.write_bytes(data)
    assert find_bad_record(rec, idx, classes=10) == (
        f"{rec}: record 3 at byte {offset} has 2 labels, and a run takes one; pack the file again")


def test_an_image_that_is_cut_short_is_named(record_set, images):
    offset = rewrite(record_set, 7, 0, images[7][: len(images[7]) // 2])
    line = find_bad_record(*record_set, classes=10)
    assert (
        line.startswith(f"{record_set[0]}: record 7 at byte {offset} does not decode (")
        and "truncated" in line)
    assert line.endswith(
        "; replace the image and pack the file again; rn50 verify --full finds every such image")


def test_the_record_that_a_decoder_stumbled_over_is_named_at_once(record_set, images):
    damaged = bytearray(images[5])
    table = damaged.index(b"\xff\xc4") + 5  # how many codes of each length there are
    damaged[table : table + 16] = b"\xff" * 16
    offset = rewrite(record_set, 5, 0, bytes(damaged))
    assert find_bad_record(*record_set, classes=10) is None  # its headers are whole
    line = find_bad_record(*record_set, classes=10, suspect=int(offset), time_limit_s=-1)
    assert line.startswith(f"{record_set[0]}: record 5 at byte {offset} does not decode")


def test_a_broken_frame_is_named(record_set):
    rec, idx = record_set
    data = bytearray(rec.read_bytes())
    data[int(read_index(idx)[1][4])] ^= 0xFF
    rec.write_bytes(data)
    assert "train.rec: record 4 at byte" in find_bad_record(rec, idx, classes=10)


def test_the_search_keeps_to_its_time(record_set):
    rewrite(record_set, 11, 0, b"no JPEG")
    assert find_bad_record(*record_set, classes=10, time_limit_s=-1) is None


def test_a_missing_file_is_what_the_search_reports(tmp_path):
    assert "train.idx: cannot be read" in find_bad_record(
        tmp_path / "train.rec", tmp_path / "train.idx", classes=10)


def test_jpegs_of_every_kind_are_recognised():
    picture = np.random.RandomState(0).randint(0, 255, (40, 50, 3), np.uint8)
    for options in ([], [cv2.IMWRITE_JPEG_PROGRESSIVE, 1], [cv2.IMWRITE_JPEG_RST_INTERVAL, 2]):
        jpeg = cv2.imencode(".jpg", picture, options)[1].tobytes()
        assert read_header(jpeg).fault is None
        assert read_header(jpeg[:2] + b"\xff\xe1\x00\x06Exif" + jpeg[2:]).fault is None  # one more segment
        assert read_header(jpeg[:2] + b"\xff" + jpeg[2:]).fault is None  # a fill byte
    assert read_header(cv2.imencode(".jpg", picture[:, :, 0])[1].tobytes()).fault is None
    assert read_header(cv2.imencode(".png", picture)[1].tobytes()).fault is None


def test_a_jpeg_without_a_frame_header_is_recognised(images):
    jpeg = images[0]
    frame = jpeg.index(b"\xff\xc0")
    assert read_header(jpeg[:frame]).fault is not None
    assert read_header(jpeg[: frame + 6]).fault is not None
    length = int.from_bytes(jpeg[frame + 2 : frame + 4], "big")
    assert read_header(jpeg[:frame] + jpeg[frame + 2 + length :]).fault is not None
    assert read_header(jpeg[: frame + 7] + b"\0\0" + jpeg[frame + 9 :]).fault == "a JPEG without a size"

"""RecordIO: against the real mxnet byte for byte, and against the format's own description where mxnet is
absent."""

import os
import random
import struct

import numpy as np
import pytest

from rn50.data.recordio import MAGIC, IndexedRecordReader, IndexedRecordWriter, encode_record, read_index
from rn50.errors import UserError

PAYLOADS = [
    b"",
    b"x",
    b"\xff\xd8 a picture",
    MAGIC,  # aligned: the 24-byte header before it is a multiple of 4
    MAGIC * 3,
    b"abcd" + MAGIC + b"efgh",
    b"abc" + MAGIC + b"efgh",  # not aligned: stays as it is
    b"abc" + MAGIC + b"e" + MAGIC + b"z",  # one of each
    MAGIC[:3],
    MAGIC[1:] + MAGIC + MAGIC[:1],
    bytes(1000) + MAGIC,
]


def random_payloads(count, seed):
    rng = random.Random(seed)
    pieces = [MAGIC, b"a", b"bc", b"def", b"\0\0\0\0", MAGIC[:2]]
    return [b"".join(rng.choice(pieces) for _ in range(rng.randrange(40))) for _ in range(count)]


def write(prefix, payloads):
    with IndexedRecordWriter(prefix) as writer:
        for key, payload in enumerate(payloads):
            writer.write(key, key % 7, payload)


def open_reader(prefix):
    return IndexedRecordReader(prefix.with_suffix(".rec"), prefix.with_suffix(".idx"))


def test_a_record_without_the_magic_word_is_one_padded_part():
    assert encode_record(b"hello") == bytes.fromhex("0a23d7ce 05000000") + b"hello\0\0\0"


def test_a_record_is_cut_at_the_magic_word():
    encoded = encode_record(b"abcd" + MAGIC + MAGIC + b"xy")
    words = [
        MAGIC, struct.pack("<I", 1 << 29 | 4), b"abcd", MAGIC, struct.pack("<I", 2 << 29), MAGIC,
        struct.pack("<I", 3 << 29 | 2), b"xy\0\0"]
    assert encoded == b"".join(words)


def test_a_record_longer_than_the_length_word_is_refused():
    with pytest.raises(ValueError, match="at most 536870911 bytes"):
        encode_record(bytes(1 << 29))


@pytest.mark.parametrize("payloads", [PAYLOADS, random_payloads(300, seed=1)])
def test_files_are_those_of_mxnet(tmp_path, payloads):
    recordio = pytest.importorskip("implementations.mxnet").mx.recordio
    write(tmp_path / "ours", payloads)
    theirs = recordio.MXIndexedRecordIO(str(tmp_path / "theirs.idx"), str(tmp_path / "theirs.rec"), "w")
    for key, payload in enumerate(payloads):
        theirs.write_idx(key, recordio.pack(recordio.IRHeader(0, key % 7, key, 0), payload))
    theirs.close()
    assert (tmp_path / "ours.rec").read_bytes() == (tmp_path / "theirs.rec").read_bytes()
    assert (tmp_path / "ours.idx").read_bytes() == (tmp_path / "theirs.idx").read_bytes()


def test_label_arrays_of_mxnet_are_read(tmp_path):
    recordio = pytest.importorskip("implementations.mxnet").mx.recordio
    theirs = recordio.MXIndexedRecordIO(str(tmp_path / "theirs.idx"), str(tmp_path / "theirs.rec"), "w")
    theirs.write_idx(
        0, recordio.pack(recordio.IRHeader(0, np.array([4.0, 9.0], np.float32), 17, 0), b"image"))
    theirs.close()
    with open_reader(tmp_path / "theirs") as reader:
        header, image = reader.read(0)
    assert (header.flag, header.label, header.id, image) == (2, 4.0, 17, b"image")


@pytest.mark.parametrize("payloads", [PAYLOADS, random_payloads(300, seed=2)])
def test_what_is_written_is_read_in_any_order(tmp_path, payloads):
    write(tmp_path / "set", payloads)
    with open_reader(tmp_path / "set") as reader:
        assert len(reader) == len(payloads)
        for position in random.Random(3).sample(range(len(payloads)), len(payloads)):
            header, image = reader.read(position)
            assert image == payloads[position]
            assert (header.flag, header.label, header.id, header.id2) == (0, position % 7, position, 0)


@pytest.mark.parametrize("full", ["set.rec", "set.idx"])
@pytest.mark.parametrize(
    "count", [1, 10_000]
)  # a full disk met when the buffer is flushed at the end, and while writing
def test_a_full_disk_is_noticed(tmp_path, full, count):
    (tmp_path / full).symlink_to("/dev/full")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="No space left on device"):
        write(tmp_path / "set", [b"image"] * count)
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_index_that_cannot_be_opened_leaves_no_file_open(tmp_path):
    (tmp_path / "set.idx").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(IsADirectoryError):
        IndexedRecordWriter(tmp_path / "set")
    assert len(os.listdir("/proc/self/fd")) == before


def test_index_keeps_the_order_of_its_lines(tmp_path):
    path = tmp_path / "set.idx"
    path.write_text("5\t3000000000\n3\t0\n")
    keys, offsets = read_index(path)
    assert keys.tolist() == [5, 3] and offsets.tolist() == [3000000000, 0]


def test_index_without_a_last_newline_is_read(tmp_path):
    path = tmp_path / "set.idx"
    path.write_text("0\t0\n1\t40")
    assert read_index(path)[1].tolist() == [0, 40]


@pytest.mark.parametrize(
    "text",
    ["", "\n", "0\n", "0\t0\n1\n", "0\t0\n1\n2\n", "0 0 1 40\n", "zero\t0\n", "0\t1.5\n", "0\t-8\n",
     "0\t0\n\xff\n"])
def test_no_index_is_one_line(tmp_path, text):
    path = tmp_path / "set.idx"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match=r"set\.idx: not an index.*; copy or pack the file again"):
        read_index(path)


@pytest.mark.parametrize("missing", ["set.rec", "set.idx"])
def test_a_missing_file_is_one_line(tmp_path, missing):
    write(tmp_path / "set", [b"image"])
    (tmp_path / missing).unlink()
    with pytest.raises(UserError, match=rf"{missing}: cannot be read \(No such file or directory\)"):
        open_reader(tmp_path / "set")


@pytest.mark.parametrize("kept", [0, 4, 8, 20, 35])
def test_a_truncated_record_is_one_line(tmp_path, kept):
    write(tmp_path / "set", [b"first", b"second"])
    second = int(read_index(tmp_path / "set.idx")[1][1])
    rec = tmp_path / "set.rec"
    rec.write_bytes(rec.read_bytes()[: second + kept])
    with open_reader(tmp_path / "set") as reader:
        assert reader.read(0)[1] == b"first"
        with pytest.raises(
            UserError, match=rf"set\.rec: truncated: record 1 at byte {second} needs \d+ bytes"
        ):
            reader.read(1)


def test_a_folder_in_the_place_of_the_rec_is_one_line(tmp_path):
    write(tmp_path / "set", [b"image"])
    (tmp_path / "set.rec").unlink()
    (tmp_path / "set.rec").mkdir()
    with pytest.raises(UserError, match=r"set\.rec: is a folder, no regular file; copy or pack"):
        open_reader(tmp_path / "set")


def test_an_index_of_another_file_is_one_line(tmp_path):
    write(tmp_path / "set", [b"first", b"second"])
    (tmp_path / "set.idx").write_text("0\t0\n1\t12\n")
    message = "record 1 at byte 12 does not start as a record does"
    with open_reader(tmp_path / "set") as reader, pytest.raises(UserError, match=message):
        reader.read(1)


def test_an_offset_amid_a_cut_record_is_one_line(tmp_path):
    write(tmp_path / "set", [MAGIC + b"second part"])
    middle = (tmp_path / "set.rec").read_bytes().rindex(MAGIC)
    (tmp_path / "set.idx").write_text(f"0\t{middle}\n")
    message = f"record 0 at byte {middle} does not start as a record does"
    with open_reader(tmp_path / "set") as reader, pytest.raises(UserError, match=message):
        reader.read(0)


def test_a_record_too_short_for_its_header_or_labels_is_one_line(tmp_path):
    short = encode_record(b"short")
    labels = encode_record(struct.pack("<IfQQ", 1000, 0, 0, 0))
    (tmp_path / "set.rec").write_bytes(short + labels)
    (tmp_path / "set.idx").write_text(f"0\t0\n1\t{len(short)}\n")
    with open_reader(tmp_path / "set") as reader:
        with pytest.raises(UserError, match="record 0 at byte 0 has 5 bytes, an image record at least 24"):
            reader.read(0)
        with pytest.raises(UserError, match="record 1 at byte 16 announces 1000 labels"):
            reader.read(1)

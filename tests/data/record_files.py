"""Records of a data set as bytes, and ways to spoil them."""

import re
import struct

import numpy as np

from rn50.data.layout import FILES, PACKED
from rn50.data.recordio import MAGIC, IndexedRecordReader, encode_image, encode_record, read_index

NUMBERS = {"classes": 6, "train": 24, "val": 12}


def records(folder, name):
    """Headers and images of a set, in its order."""
    with IndexedRecordReader(folder / f"{name}.rec", folder / f"{name}.idx") as reader:
        return [reader.read(position) for position in range(len(reader))]


def contents(folder):
    """The bytes of all files of a packed data set but the record of the packing."""
    return {name: (folder / name).read_bytes() for name in (*FILES, *PACKED[1:])}


def stop_at(count):
    """A progress function that is Ctrl-C once ``count`` are done."""

    def progress(done, total):
        if done >= count:
            raise KeyboardInterrupt

    return progress


class Records:
    """The records of a set as bytes, and the lines of its index: to be changed and written back."""

    def __init__(self, folder, name="train"):
        self.rec, self.idx = folder / f"{name}.rec", folder / f"{name}.idx"
        whole = self.rec.read_bytes()
        offsets = [*read_index(self.idx)[1].tolist(), len(whole)]
        self.all = [whole[start:end] for start, end in zip(offsets, offsets[1:], strict=False)]

    def image(self, at):
        return self.all[at][32 : 32 + struct.unpack_from("<I", self.all[at], 4)[0] - 24]

    def label(self, at):
        return struct.unpack_from("<f", self.all[at], 12)[0]

    def write(self):
        """Records and an index that fits them."""
        offsets = np.cumsum([0] + [len(record) for record in self.all[:-1]])
        self.rec.write_bytes(b"".join(self.all))
        self.idx.write_text("".join(f"{key}\t{offset}\n" for key, offset in enumerate(offsets)))


def flip(byte, bit=0, at=5, name="train"):
    """A bit of record ``at``."""

    def spoil(folder):
        records = Records(folder, name)
        place = sum(map(len, records.all[:at])) + (byte if byte >= 0 else len(records.all[at]) + byte)
        whole = bytearray(records.rec.read_bytes())
        whole[place] ^= 1 << bit
        records.rec.write_bytes(whole)

    return spoil


def shorten(at):
    """The length of record ``at`` says one byte less."""

    def spoil(folder):
        records = Records(folder)
        place = sum(map(len, records.all[:at])) + 4
        whole = bytearray(records.rec.read_bytes())
        struct.pack_into("<I", whole, place, struct.unpack_from("<I", whole, place)[0] - 1)
        records.rec.write_bytes(whole)

    return spoil


def truncate(left):
    """The last record of the training set, 23, down to ``left`` bytes."""

    def spoil(folder):
        records = Records(folder)
        records.rec.write_bytes(b"".join(records.all[:-1]) + records.all[-1][:left])

    return spoil


def change(edit, name="train"):
    """``edit(records)``, then records and index are written as they belong together."""

    def spoil(folder):
        records = Records(folder, name)
        edit(records)
        records.write()

    return spoil


def lines(edit, file="train.idx"):
    """``edit(list of lines)`` of a text file."""

    def spoil(folder):
        kept = (folder / file).read_text().splitlines()
        kept = edit(kept) or kept
        (folder / file).write_text("".join(f"{line}\n" for line in kept))

    return spoil


def put(at, record):
    """Another record in the place of ``at``: ``record(records)``."""

    def edit(records):
        records.all[at] = record(records)

    return change(edit)


def swap(items, left, right):
    items[left], items[right] = items[right], items[left]


def swap_columns(column):
    def edit(kept):
        rows = [line.split("\t") for line in kept]
        rows[3][column], rows[8][column] = rows[8][column], rows[3][column]
        return ["\t".join(row) for row in rows]

    return edit


def swap_sets(folder):
    for kind in ("rec", "idx"):
        (folder / f"train.{kind}").rename(folder / "other")
        (folder / f"val.{kind}").rename(folder / f"train.{kind}")
        (folder / "other").rename(folder / f"val.{kind}")


def shift_labels(records):
    """Every label is that of the next class, as where the validation set was sorted by another list than the
    training set."""
    records.all = [
        encode_image(key, (records.label(key) + 1) % 6, records.image(key)) for key in range(len(records.all))
    ]


def relabel(label):
    return put(5, lambda r: encode_record(struct.pack("<IfQQ", 0, label, 5, 0) + r.image(5)))


def labelled(at, labels, image=None):
    """Record ``at`` with an array of labels, and its image or another."""

    def record(records):
        header = struct.pack("<IfQQ", len(labels), 0, at, 0) + struct.pack(f"<{len(labels)}f", *labels)
        return encode_record(header + (records.image(at) if image is None else image))

    return put(at, record)


def unescaped(records):
    image = records.image(5)
    record = struct.pack("<IfQQ", 0, records.label(5), 5, 0) + image[: len(image) // 4 * 4] + MAGIC
    return MAGIC + struct.pack("<I", len(record)) + record


def half(records):
    return encode_image(5, records.label(5), records.image(5)[: len(records.image(5)) // 2])


def assert_found(verdict, file, record, says):
    assert not verdict.checked.passed
    found = [
        finding for finding in verdict.checked.faults.kept if (finding.file, finding.record) == (file, record)
    ]
    assert any(re.search(says, finding.text) for finding in found), [
        str(finding) for finding in verdict.checked.faults.kept]
    assert all(finding.remedy and "\n" not in str(finding) for finding in verdict.checked.faults.kept)

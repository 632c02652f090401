"""rn50 verify: every way to spoil a data set is found, with file, record and remedy; a whole one gets its certificate."""

import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from rn50.benchmark import rules
from rn50.data.certification import certificate
from rn50.data.certification.certify import certify
from rn50.data.certification.finding import KEPT
from rn50.data.jpeg import decoding_fault, has_end, read_header
from rn50.data.layout import CERTIFICATE, FILES, PACKED
from rn50.data.packing import packing_list
from rn50.data.packing.pack import pack
from rn50.data.recordio import MAGIC, IndexedRecordWriter, encode_image, encode_record, read_index
from rn50.errors import UserError
from tests.conftest import with_changes
from tests.support.image_tree import class_names, make, numbered, pictures

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = (6, 24, 12)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certified")
    make(folder / "source", classes=6, train=4, val=2)
    pack(folder / "source", folder / "data")
    return folder / "data"


@pytest.fixture
def data(packed, tmp_path):
    """A packed set of 24 + 12 images, to be spoilt."""
    return shutil.copytree(str(packed), str(tmp_path / "data")) and tmp_path / "data"


@pytest.fixture
def bare(data):
    """The same as anybody's packer would have left it: without lists."""
    for name in PACKED:
        (data / name).unlink()
    return data


class Records:
    """The records of a set as bytes, and the lines of its index: to be changed and written back."""

    def __init__(self, folder, name="train"):
        self.rec, self.idx = folder / f"{name}.rec", folder / f"{name}.idx"
        whole = self.rec.read_bytes()
        offsets = [*read_index(self.idx)[1].tolist(), len(whole)]
        self.all = [whole[start:end] for start, end in zip(offsets, offsets[1:])]

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
    """Every label is that of the next class, as where the validation set was sorted by another list than the training set."""
    records.all = [encode_image(key, (records.label(key) + 1) % 6, records.image(key)) for key in range(len(records.all))]


def relabel(label):
    return put(5, lambda r: encode_record(struct.pack("<IfQQ", 0, label, 5, 0) + r.image(5)))


def unescaped(records):
    image = records.image(5)
    record = struct.pack("<IfQQ", 0, records.label(5), 5, 0) + image[: len(image) // 4 * 4] + MAGIC
    return MAGIC + struct.pack("<I", len(record)) + record


def half(records):
    return encode_image(5, records.label(5), records.image(5)[: len(records.image(5)) // 2])


# (what, how, file, record or None, words, found without the packing list too)
SPOILT = [
    ("magic word", flip(0), "train.rec", 5, "does not start as a record does", True),
    # One byte more may still lie in the filling up to a multiple of four, and be no part of the picture.
    ("length, lowest bit", flip(4), "train.rec", 5, "record|SHA-256", False),
    ("length, one less", shorten(5), "train.rec", 5, "record|SHA-256", True),
    ("length, 256s", flip(5), "train.rec", 5, "record|bytes", True),
    ("length, millions", flip(6, 7), "train.rec", 5, "says .* bytes where", True),
    ("continuation flag", flip(7, 5), "train.rec", 5, "part|flag|cut where", True),
    ("continuation flag, last", flip(7, 6), "train.rec", 5, "continuation flag 2 where a record begins", True),
    ("header flag", flip(8), "train.rec", 5, "announces an array of 1 labels", True),
    ("label, sign", flip(15, 7), "train.rec", 5, "with a bit that nobody reads set|no class", True),
    ("label, exponent", flip(15, 6), "train.rec", 5, "has label .*(no class of|in the packing list)", False),
    ("id", flip(16, 3), "train.rec", 5, "has the id", True),
    ("second id", flip(24, 3), "train.rec", 5, "with a bit that nobody reads set", True),
    ("start of image", flip(32), "train.rec", 5, "is no JPEG, it starts with", True),
    ("quantisation table", flip(32 + 60), "train.rec", 5, "SHA-256 differs", False),
    ("compressed data", flip(700, 3), "train.rec", 5, "SHA-256 differs", False),
    ("end of image", flip(-5, 4, at=2), "train.rec", 2, "SHA-256|end-of-image|decode|zeros", False),
    ("validation image", flip(400, 1, at=3, name="val"), "val.rec", 3, "SHA-256 differs", False),
    *[
        (f"truncated at {left}", truncate(left), "train.rec", 23, "ends after|says", True)
        for left in (1, 4, 7, 8, 9, 20, 31, 32, 33, 500)
    ],
    ("truncated before the last record", truncate(0), "train.idx", 23, r"points to byte \d+, and train.rec has", True),
    ("last record gone from both", change(lambda r: r.all.pop()), "train.idx", None, "23 records, 1 fewer than the 24", True),
    ("record missing", change(lambda r: r.all.pop(5)), "train.rec", 5, "has the id 6", True),
    ("record twice", change(lambda r: r.all.insert(5, r.all[4])), "train.rec", 5, "has the id 4", True),
    ("record in the place of another", change(lambda r: r.all.__setitem__(5, r.all[4])), "train.rec", 5, "has the id 4", True),
    (
        "copy under the other's id",
        put(5, lambda r: encode_image(5, r.label(4), r.image(4))),
        "train.rec",
        5,
        "SHA-256 differs",
        False,
    ),
    (
        "extra record with its line",
        change(lambda r: r.all.append(encode_image(24, 0, r.image(0)))),
        "train.idx",
        None,
        "25 records, 1 more than the 24",
        True,
    ),
    (
        "extra record without a line",
        lambda f: (f / "train.rec").write_bytes((f / "train.rec").read_bytes() + encode_record(b"x" * 40)),
        "train.rec",
        23,
        "48 bytes behind it belong to no record",
        True,
    ),
    (
        "zeros behind the last record",
        lambda f: (f / "val.rec").write_bytes((f / "val.rec").read_bytes() + bytes(512)),
        "val.rec",
        11,
        "512 bytes behind it",
        True,
    ),
    (
        "bytes before the first record",
        lambda f: (
            Records(f).rec.write_bytes(b"\0" * 8 + (f / "train.rec").read_bytes()),
            lines(lambda k: [f"{n}\t{int(line.split()[1]) + 8}" for n, line in enumerate(k)])(f),
        ),
        "train.rec",
        None,
        "the first 8 bytes",
        True,
    ),
    ("two records changed places", change(lambda r: swap(r.all, 3, 8)), "train.rec", 3, "has the id 8", True),
    ("offsets swapped", lines(swap_columns(1)), "train.idx", 4, "line 5 points to byte", True),
    ("keys swapped", lines(swap_columns(0)), "train.rec", 3, "has the id 3, and its line in the index the key 8", True),
    ("lines swapped", lines(lambda k: swap(k, 3, 8)), "train.idx", 4, "not behind the line before it", True),
    ("line twice", lines(lambda k: k.insert(5, k[4])), "train.idx", 5, "has the key 4", True),
    ("line missing", lines(lambda k: k.pop(5) and None), "train.rec", 4, r"\d+ bytes behind it belong to no record", True),
    (
        "offset 4 too far",
        lines(lambda k: k.__setitem__(5, f"5\t{int(k[5].split()[1]) + 4}")),
        "train.rec",
        5,
        "does not start",
        True,
    ),
    (
        "offset beyond the file",
        lines(lambda k: k.__setitem__(23, "23\t99999999")),
        "train.idx",
        23,
        "points to byte 99999999",
        True,
    ),
    (
        "index cut in a number",
        lambda f: (f / "train.idx").write_text((f / "train.idx").read_text()[:-2]),
        "train.idx",
        23,
        "points to byte",
        True,
    ),
    ("index is no index", lambda f: (f / "val.idx").write_text("<html>"), "val.idx", None, "not an index", True),
    (
        "index of the other set",
        lambda f: shutil.copy(str(f / "val.idx"), str(f / "train.idx")),
        "train.idx",
        None,
        "12 fewer",
        True,
    ),
    ("sets swapped", swap_sets, "train.idx", None, "12 records, 12 fewer than the 24", True),
    ("label of another class", relabel(3), "train.rec", 5, "in the packing list label", False),
    ("label of no class", relabel(6), "train.rec", 5, r"has label 6, no class of \[0, 6\)", True),
    ("negative label", relabel(-1), "train.rec", 5, "has label -1, no class", True),
    ("label between classes", relabel(2.5), "train.rec", 5, "has label 2.5, no class", True),
    ("label not a number", relabel(float("nan")), "train.rec", 5, "has label nan, no class", True),
    ("validation labels of another list", change(shift_labels, "val"), "val.rec", 0, "in the packing list label", False),
    (
        "all validation labels 0",
        change(lambda r: setattr(r, "all", [encode_image(k, 0, r.image(k)) for k in range(12)]), "val"),
        "val.rec",
        None,
        "label 5.* has 0 images",
        True,
    ),
    ("empty JPEG", put(5, lambda r: encode_image(5, r.label(5), b"")), "train.rec", 5, "is no JPEG, it is empty", True),
    ("JPEG cut in half", put(5, half), "train.rec", 5, "does not decode.*truncated", True),
    (
        "JPEG cut in its header",
        put(5, lambda r: encode_image(5, r.label(5), r.image(5)[:100])),
        "train.rec",
        5,
        "damaged or cut short before its frame header",
        True,
    ),
    (
        "web page",
        put(5, lambda r: encode_image(5, r.label(5), b"<html>404</html>")),
        "train.rec",
        5,
        "is no JPEG, it starts",
        True,
    ),
    ("no header", put(5, lambda r: encode_record(b"short")), "train.rec", 5, "has 5 bytes, an image record at least 24", True),
    ("magic word unescaped", put(5, unescaped), "train.rec", 5, "holds the magic word, at which it should have been cut", True),
    (
        "part missing",
        put(5, lambda r: encode_record(r.all[5][8:36] + MAGIC + b"more")[:36]),
        "train.rec",
        5,
        "ends after 0 bytes",
        True,
    ),
    ("padding", put(5, lambda r: encode_record(r.image(5)[:41])[:-1] + b"\1"), "train.rec", 5, "not filled up with zeros", True),
    (
        "class list in another order",
        lines(lambda k: swap(k, 1, 2), "classes.txt"),
        "classes.txt",
        None,
        "not the list that rn50",
        False,
    ),
    (
        "class list too short",
        lines(lambda k: k.pop() and None, "classes.txt"),
        "classes.txt",
        None,
        "names 5 classes, 6 are",
        False,
    ),
    ("class list missing", lambda f: (f / "classes.txt").unlink(), "classes.txt", None, "is missing", False),
    (
        "packing list edited",
        lines(lambda k: swap(k, 1, 2), "train.tsv"),
        "train.tsv",
        None,
        "not the list that rn50 pack wrote",
        False,
    ),
    (
        "packing list of other labels",
        lines(lambda k: [line.replace("\t2\t", "\t3\t") for line in k], "val.tsv"),
        "val.tsv",
        None,
        "not the list",
        False,
    ),
    (
        "packing list damaged",
        lines(lambda k: k.__setitem__(3, "nonsense"), "val.tsv"),
        "val.tsv",
        None,
        "line 4 is not key, label",
        False,
    ),
]


def test_the_list_is_long():
    assert len(SPOILT) >= 25


def assert_found(verdict, file, record, says):
    assert not verdict.passed
    found = [finding for finding in verdict.faults.kept if (finding.file, finding.record) == (file, record)]
    assert any(re.search(says, finding.text) for finding in found), [str(finding) for finding in verdict.faults.kept]
    assert all(finding.remedy and "\n" not in str(finding) for finding in verdict.faults.kept)


@pytest.mark.parametrize("spoil, file, record, says", [case[1:5] for case in SPOILT], ids=[case[0] for case in SPOILT])
def test_what_is_spoilt_is_found(data, spoil, file, record, says):
    spoil(data)
    assert_found(certify(data, workers=1), file, record, says)


@pytest.mark.parametrize(
    "spoil, file, record, says", [case[1:5] for case in SPOILT if case[5]], ids=[case[0] for case in SPOILT if case[5]]
)
def test_it_is_found_without_the_packing_list(bare, spoil, file, record, says):
    spoil(bare)
    assert_found(certify(bare, numbers=NUMBERS, workers=1), file, record, says)


@pytest.mark.parametrize(
    "spoil",
    [case[1] for case in SPOILT if case[2].endswith((".rec", ".idx"))],
    ids=[case[0] for case in SPOILT if case[2].endswith((".rec", ".idx"))],
)
def test_it_is_found_where_an_earlier_certificate_is_all_there_is(bare, spoil):
    assert certify(bare, numbers=NUMBERS).passed
    spoil(bare)
    assert not certify(bare).passed
    assert not certify(bare).passed  # what was found wrong is no measure for the next time
    with_list = json.loads((bare / CERTIFICATE).read_text())
    assert with_list["passed"] is False and with_list["set_sha256"] is None


def test_a_whole_set_is_certified(packed, data):
    calls = []
    verdict = certify(data, progress=lambda done, total: calls.append((done, total)))
    assert verdict.passed and calls[-1] == (36, 36)
    content = json.loads((data / CERTIFICATE).read_text())
    assert {name: facts["sha256"] for name, facts in content["files"].items()} == {
        name: hashlib.sha256((packed / name).read_bytes()).hexdigest() for name in FILES
    }
    printed = subprocess.run(["sha256sum", *FILES], cwd=data, stdout=subprocess.PIPE, check=True).stdout
    assert content["set_sha256"] == hashlib.sha256(printed).hexdigest()
    assert (content["classes"], content["train"], content["val"], content["imagenet"]) == (6, 24, 12, False)
    assert verdict.certificate.sha256 == hashlib.sha256((data / CERTIFICATE).read_bytes()).hexdigest()


def test_the_same_data_have_the_same_certificate_everywhere(packed, data, tmp_path):
    other = shutil.copytree(str(packed), str(tmp_path / "elsewhere")) and tmp_path / "elsewhere"
    assert certify(data, workers=1).certificate.sha256 == certify(other, workers=3).certificate.sha256
    again = certify(data).certificate
    assert again.sha256 == certificate.read(data).sha256


def test_full_decodes_every_image(data, bare):
    records = Records(data)
    image = bytearray(records.image(5))
    scan = image.index(b"\xff\xda")
    image[scan + 3] = 9  # components of the scan: no decoder takes that, and the chain of segments is whole
    records.all[5] = encode_image(5, records.label(5), bytes(image))
    records.write()
    assert certify(data, numbers=NUMBERS).passed
    (data / CERTIFICATE).unlink()
    assert_found(certify(data, decode=True, numbers=NUMBERS), "train.rec", 5, "does not decode")


def test_the_known_oddities_of_imagenet_are_remarks(data, bare):
    from PIL import Image

    records = Records(data)
    picture = np.random.RandomState(0).randint(0, 255, (40, 50, 4), np.uint8)
    Image.fromarray(picture, "CMYK").save(str(data / "cmyk.jpg"))
    cmyk = (data / "cmyk.jpg").read_bytes()
    png = cv2.imencode(".png", picture[:, :, :3])[1].tobytes()
    for at, image in ((3, cmyk), (4, png), (5, records.image(6)), (7, records.image(7).replace(b"\xff\xd9", b""))):
        records.all[at] = encode_image(at, records.label(at), image)
    records.write()
    verdict = certify(data, decode=True, numbers=NUMBERS)
    assert {(finding.kind, finding.file, finding.record) for finding in verdict.remarks.kept} == {
        ("CMYK", "train.rec", 3),
        ("PNG", "train.rec", 4),
        ("duplicate", "train.rec", 6),
    }
    assert [finding.record for finding in verdict.faults.kept] == [7]  # no end-of-image marker: decoders call that truncated
    assert verdict.remarks.counts["CMYK"] == verdict.remarks.counts["PNG"] == verdict.remarks.counts["duplicate"] == 1


def test_an_image_in_both_sets_is_named_with_both_labels(bare):
    train, val = Records(bare), Records(bare, "val")
    label = (val.label(3) + 1) % 6
    train.all[5] = encode_image(5, label, val.image(3))
    train.write()
    duplicates = [finding for finding in certify(bare, numbers=NUMBERS).remarks.kept if finding.kind == "duplicate"]
    assert [(finding.file, finding.record) for finding in duplicates] == [("val.rec", 3)]
    assert f"record 5 of train.rec, with label {val.label(3):g} here and {label:g} there" in duplicates[0].text


def test_an_archive_that_was_unpacked_twice_is_a_fault(bare):
    records = Records(bare)
    records.all = [encode_image(key, records.label(key % 12), records.image(key % 12)) for key in range(24)]
    records.write()
    verdict = certify(bare, numbers=NUMBERS)
    assert "12 of all 36 images are there twice" in str(verdict.faults.kept[-1])


def test_many_findings_of_a_kind_are_counted(bare):
    records = Records(bare)
    records.all = [encode_image(key, 0, b"no JPEG") for key in range(24)]
    records.write()
    faults = certify(bare, numbers=NUMBERS, workers=1).faults
    assert faults.counts["image"] == 24 and len([finding for finding in faults.kept if finding.kind == "image"]) == KEPT


def test_without_any_record_imagenet_is_expected(bare):
    verdict = certify(bare)
    assert f"1,281,143 fewer than the {rules.TRAIN_SAMPLES:,} of ImageNet" in " ".join(map(str, verdict.faults.kept))


def test_classes_of_imagenet_have_their_numbers(monkeypatch, bare):
    monkeypatch.setattr(rules, "CLASSES", 6)
    monkeypatch.setattr(rules, "TRAIN_SAMPLES", 24)
    monkeypatch.setattr(rules, "EVAL_SAMPLES", 12)
    monkeypatch.setattr("rn50.data.certification.certify.IMAGENET_PER_CLASS", {"train": (3, 5), "val": (2, 2)})
    assert certify(bare).certificate.content["imagenet"] is True
    (bare / CERTIFICATE).unlink()
    relabel((Records(bare, "val").label(5) + 1) % 6)(bare)  # of train: 3 and 5 images, which may be
    assert certify(bare).passed
    (bare / CERTIFICATE).unlink()
    records = Records(bare, "val")
    records.all[5] = encode_image(5, (records.label(5) + 1) % 6, records.image(5))
    records.write()
    found = [finding.text for finding in certify(bare).faults.kept if finding.file == "val.rec"]
    assert sorted(text.split(" has ")[1].split(",")[0] for text in found) == ["1 images", "3 images"]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_one_line(data, name):
    (data / name).unlink()
    with pytest.raises(UserError, match=f"{name}: no such file; give a folder with"):
        certify(data)


@pytest.mark.parametrize("text, says", [
    ("{", "no JSON"), ("[" * 99_999, "no JSON .nested"), ("[]", "damaged, it is no JSON object"),
    ('{"classes": NaN}', "no JSON"), ('{"passed": true, "classes": 2, "train": 1e99, "val": 1}', "damaged, it"),
    ('{"passed": true, "classes": 2, "train": 1, "val": 1, "files": []}', "damaged, it does not say what each file is"),
    ('{"passed": true, "classes": 2, "train": 1, "val": 1, "files": {"train.rec": 1}}', "damaged, it does not say"),
])  # fmt: skip
def test_a_damaged_certificate_is_one_line(data, text, says):
    (data / CERTIFICATE).write_text(text)
    for read in (certify, certificate.read):
        with pytest.raises(UserError, match=rf"{CERTIFICATE}: {says}.*; take it from another copy of the data, or delete it$"):
            read(data)


@pytest.mark.parametrize("classes", ["true", "-1", "2.5", "null", '"2"'])
def test_a_certificate_whose_numbers_are_none(data, classes):
    (data / CERTIFICATE).write_text(f'{{"classes": {classes}, "train": 1, "val": 1, "files": {{}}}}')
    with pytest.raises(UserError, match=f"{CERTIFICATE}: damaged, it lacks the numbers of images"):
        certify(data)


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(data):
    for name in (CERTIFICATE, "classes.txt", "pack.json"):
        (data / name).unlink(missing_ok=True)
        os.mkfifo(data / name)
        with pytest.raises(UserError, match=f"{name}: is a pipe, no regular file; take it from another copy"):
            certify(data)
        (data / name).unlink()


@pytest.mark.parametrize("name, text", [
    ("classes.txt", "..\nb\n"), ("classes.txt", "/tmp/x\nb\n"), ("train.tsv", "0\t0\t00\ta/..\n"),
    ("train.tsv", "0\t0\t00\t/a/b\n"),
])  # fmt: skip
def test_no_name_of_a_list_leaves_its_folder(data, name, text):
    (data / name).write_text(text)
    with pytest.raises(UserError, match=f"{name}: (line 1 is not|.* is no name of a folder)"):
        packing_list.read_classes(data) if name == "classes.txt" else packing_list.read_list(data, "train")


@pytest.mark.parametrize("record", [{"lists": []}, {"lists": {"../../x": "00"}}, {"source": 1}])
def test_a_record_of_another_shape_is_one_line(data, record):
    (data / "pack.json").write_text(json.dumps({"classes": 2, "train": 1, "val": 1, **record}))
    with pytest.raises(UserError, match="pack.json: damaged, not what rn50 pack writes; take it from another copy"):
        certify(data)


def test_records_in_parts_are_verified(tmp_path):
    jpegs = [numbered(pictures([(40, 50)])[0], number) for number in range(12)]
    for name in ("train", "val"):
        with IndexedRecordWriter(tmp_path / name) as writer:
            for key, jpeg in enumerate(jpegs):
                writer.write(key, key % 2, jpeg + b"x" * (-len(jpeg) % 4) + MAGIC * 2 + b"x" + name.encode())
    assert certify(tmp_path, numbers=(2, 12, 12), decode=True).passed


@pytest.fixture
def configured(tiny_config, data):
    """A configuration of the packed set, which is certified."""
    certify(data)
    return with_changes(tiny_config, data={"folder": str(data), "classes": 6, "train_samples": 24, "eval_samples": 12})


def test_a_run_takes_data_that_match(configured, data):
    assert certificate.check(configured).sha256 == hashlib.sha256((data / CERTIFICATE).read_bytes()).hexdigest()
    (data / CERTIFICATE).unlink()
    assert certificate.check(configured) is None


@pytest.mark.parametrize(
    "field, value, says",
    [
        ("classes", 7, "certifies classes 6, but NUMCLASSES is 7; set NUMCLASSES=6"),
        ("train_samples", 25, "certifies train 24, but NUMEXAMPLES is 25; set NUMEXAMPLES=24"),
        ("eval_samples", 11, "certifies val 12, but NUMVALEXAMPLES is 11; set NUMVALEXAMPLES=12"),
    ],
)
def test_a_run_refuses_data_that_do_not_match(configured, field, value, says):
    with pytest.raises(UserError, match=f"{CERTIFICATE}: {says}"):
        certificate.check(with_changes(configured, data={field: value}))


def test_a_run_refuses_files_that_changed(configured, data):
    with (data / "val.rec").open("ab") as stream:
        stream.write(b"more")
    with pytest.raises(UserError, match=r"val\.rec: has \d+ bytes, and \d+ when it was certified; .*rn50 verify"):
        certificate.check(configured)


def test_a_run_refuses_data_at_fault(configured, data):
    flip(700)(data)
    assert not certify(data).passed
    with pytest.raises(UserError, match=rf"{CERTIFICATE}: rn50 verify found these data at fault; run rn50 verify"):
        certificate.check(configured)


def test_the_command_says_what_it_found_and_exits_1(data):
    def run(*options):
        return subprocess.run(
            [sys.executable, "-m", "rn50", "verify", str(data), *options], cwd=ROOT, capture_output=True, text=True
        )

    done = run()
    assert done.returncode == 0 and "whole: 24 + 12 images of 6 classes (as pack.json says; not the benchmark" in done.stdout
    flip(700)(data)
    done = run()
    assert done.returncode == 1 and "FAULT  train.rec: record 5: the image is not the one that was packed" in done.stdout
    done = run("--json")
    assert done.returncode == 1 and json.loads(done.stdout)["faults"]["counts"] == {"content": 1, "changed": 1}
    shutil.rmtree(str(data))
    done = run()
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


@pytest.mark.parametrize("quality", [30, 95])
def test_headers_of_every_kind_are_read(quality):
    picture = np.random.RandomState(0).randint(0, 255, (40, 50, 3), np.uint8)
    for options in ([], [cv2.IMWRITE_JPEG_PROGRESSIVE, 1], [cv2.IMWRITE_JPEG_RST_INTERVAL, 2]):
        jpeg = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality, *options])[1].tobytes()
        assert read_header(jpeg) == (None, False, 3, jpeg.index(b"\xff\xda") + 2) and decoding_fault(jpeg) is None
        assert has_end(jpeg + bytes(100), read_header(jpeg))
        for kept in (0.4, 0.7, 0.9):
            cut = jpeg[: int(len(jpeg) * kept)]
            assert not has_end(cut, read_header(cut)) and decoding_fault(cut)
    grey = cv2.imencode(".jpg", picture[:, :, 0])[1].tobytes()
    assert read_header(grey).components == 1
    assert class_names(2) == sorted(class_names(2))

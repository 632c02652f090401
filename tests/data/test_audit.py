"""``rn50 verify`` finds every way to spoil a data set, and names file, record and remedy."""

import json
import shutil

import pytest

from rn50.data.certification.certify import certify
from rn50.data.layout import CERTIFICATE, FILES, PACKED
from rn50.data.recordio import MAGIC, encode_image, encode_record
from tests.data.record_files import (
    NUMBERS,
    Records,
    assert_found,
    change,
    flip,
    half,
    labelled,
    lines,
    put,
    relabel,
    shift_labels,
    shorten,
    swap,
    swap_columns,
    swap_sets,
    truncate,
    unescaped,
)

pytestmark = pytest.mark.xdist_group("certification")

# (what, how, file, record or None, words, found without the packing list too)
SPOILT = [
    ("magic word", flip(0), "train.rec", 5, "does not start as a record does", True),
    # One byte more may still lie in the filling up to a multiple of four, and be no part of the picture.
    ("length, lowest bit", flip(4), "train.rec", 5, "record|SHA-256", False),
    ("length, one less", shorten(5), "train.rec", 5, "record|SHA-256", True),
    ("length, 256s", flip(5), "train.rec", 5, "record|bytes", True),
    ("length, millions", flip(6, 7), "train.rec", 5, "says .* bytes where", True),
    ("continuation flag", flip(7, 5), "train.rec", 5, "part|flag|cut where", True),
    ("continuation flag, last", flip(7, 6), "train.rec", 5, "continuation flag 2 where a record begins",
     True),
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
        for left in (1, 4, 7, 8, 9, 20, 31, 32, 33, 500)],
    ("truncated before the last record", truncate(0), "train.idx", 23,
     r"points to byte \d+, and train.rec has", True),
    ("last record gone from both", change(lambda r: r.all.pop()), "train.idx", None,
     "23 records, 1 fewer than the 24", True),
    ("record missing", change(lambda r: r.all.pop(5)), "train.rec", 5, "has the id 6", True),
    ("record twice", change(lambda r: r.all.insert(5, r.all[4])), "train.rec", 5, "has the id 4", True),
    ("record in the place of another", change(lambda r: r.all.__setitem__(5, r.all[4])), "train.rec", 5,
     "has the id 4", True),
    ("copy under the other's id", put(5, lambda r: encode_image(5, r.label(4), r.image(4))), "train.rec",
     5, "SHA-256 differs", False),
    ("extra record with its line", change(lambda r: r.all.append(encode_image(24, 0, r.image(0)))),
     "train.idx", None, "25 records, 1 more than the 24", True),
    ("extra record without a line",
     lambda f: (f / "train.rec").write_bytes((f / "train.rec").read_bytes() + encode_record(b"x" * 40)),
     "train.rec", 23, "48 bytes behind it belong to no record", True),
    ("zeros behind the last record",
     lambda f: (f / "val.rec").write_bytes((f / "val.rec").read_bytes() + bytes(512)), "val.rec", 11,
     "512 bytes behind it", True),
    ("bytes before the first record",
     lambda f: (
         Records(f).rec.write_bytes(b"\0" * 8 + (f / "train.rec").read_bytes()),
         lines(lambda k: [f"{n}\t{int(line.split()[1]) + 8}" for n, line in enumerate(k)])(f)),
     "train.rec", None, "the first 8 bytes", True),
    ("two records changed places", change(lambda r: swap(r.all, 3, 8)), "train.rec", 3, "has the id 8", True),
    ("offsets swapped", lines(swap_columns(1)), "train.idx", 4, "line 5 points to byte", True),
    ("keys swapped", lines(swap_columns(0)), "train.rec", 3,
     "has the id 3, and its line in the index the key 8", True),
    ("lines swapped", lines(lambda k: swap(k, 3, 8)), "train.idx", 4, "not behind the line before it", True),
    ("line twice", lines(lambda k: k.insert(5, k[4])), "train.idx", 5, "has the key 4", True),
    ("line missing", lines(lambda k: k.pop(5) and None), "train.rec", 4,
     r"\d+ bytes behind it belong to no record", True),
    ("offset 4 too far", lines(lambda k: k.__setitem__(5, f"5\t{int(k[5].split()[1]) + 4}")), "train.rec",
     5, "does not start", True),
    ("offset beyond the file", lines(lambda k: k.__setitem__(23, "23\t99999999")), "train.idx", 23,
     "points to byte 99999999", True),
    ("index cut in a number", lambda f: (f / "train.idx").write_text((f / "train.idx").read_text()[:-2]),
     "train.idx", 23, "points to byte", True),
    ("index of a program that could not tell a place",
     lines(lambda k: k.__setitem__(5, "5\t18446744073709551615")), "train.idx", None,
     "not an index, line 6 holds 18446744073709551615", True),
    ("labels of a face set", labelled(5, (4.0, 9.0), b""), "train.rec", 5,
     "announces an array of 2 labels, where one label is wanted", True),
    ("index is no index", lambda f: (f / "val.idx").write_text("<html>"), "val.idx", None, "not an index",
     True),
    ("index of the other set", lambda f: shutil.copy(str(f / "val.idx"), str(f / "train.idx")),
     "train.idx", None, "12 fewer", True),
    ("sets swapped", swap_sets, "train.idx", None, "12 records, 12 fewer than the 24", True),
    ("label of another class", relabel(3), "train.rec", 5, "in the packing list label", False),
    ("label of no class", relabel(6), "train.rec", 5, r"has label 6, no class of \[0, 6\)", True),
    ("negative label", relabel(-1), "train.rec", 5, "has label -1, no class", True),
    ("label between classes", relabel(2.5), "train.rec", 5, "has label 2.5, no class", True),
    ("label not a number", relabel(float("nan")), "train.rec", 5, "has label nan, no class", True),
    ("validation labels of another list", change(shift_labels, "val"), "val.rec", 0,
     "in the packing list label", False),
    ("all validation labels 0",
     change(lambda r: setattr(r, "all", [encode_image(k, 0, r.image(k)) for k in range(12)]), "val"),
     "val.rec", None, "label 5.* has 0 images", True),
    ("empty JPEG", put(5, lambda r: encode_image(5, r.label(5), b"")), "train.rec", 5,
     "is no JPEG, it is empty", True),
    ("JPEG cut in half", put(5, half), "train.rec", 5, "does not decode.*truncated", True),
    ("JPEG cut in its header", put(5, lambda r: encode_image(5, r.label(5), r.image(5)[:100])),
     "train.rec", 5, "damaged or cut short before its frame header", True),
    ("web page", put(5, lambda r: encode_image(5, r.label(5), b"<html>404</html>")), "train.rec", 5,
     "is no JPEG, it starts", True),
    ("no header", put(5, lambda r: encode_record(b"short")), "train.rec", 5,
     "has 5 bytes, an image record at least 24", True),
    ("magic word unescaped", put(5, unescaped), "train.rec", 5,
     "holds the magic word, at which it should have been cut", True),
    ("part missing", put(5, lambda r: encode_record(r.all[5][8:36] + MAGIC + b"more")[:36]), "train.rec",
     5, "ends after 0 bytes", True),
    ("padding", put(5, lambda r: encode_record(r.image(5)[:41])[:-1] + b"\1"), "train.rec", 5,
     "not filled up with zeros", True),
    ("class list in another order", lines(lambda k: swap(k, 1, 2), "classes.txt"), "classes.txt", None,
     "not the list that rn50", False),
    ("class list too short", lines(lambda k: k.pop() and None, "classes.txt"), "classes.txt", None,
     "names 5 classes, 6 are", False),
    ("class list missing", lambda f: (f / "classes.txt").unlink(), "classes.txt", None, "is missing", False),
    ("packing list edited", lines(lambda k: swap(k, 1, 2), "train.tsv"), "train.tsv", None,
     "not the list that rn50 pack wrote", False),
    ("packing list of other labels",
     lines(lambda k: [line.replace("\t2\t", "\t3\t") for line in k], "val.tsv"), "val.tsv", None,
     "not the list", False),
    ("packing list damaged", lines(lambda k: k.__setitem__(3, "nonsense"), "val.tsv"), "val.tsv", None,
     "line 4 is not key, label", False),
]


@pytest.mark.parametrize(
    "spoil, file, record, says, without_list", [case[1:] for case in SPOILT], ids=[case[0] for case in SPOILT]
)
def test_what_is_spoilt_is_found(data, spoil, file, record, says, without_list):
    """With the packing list of our packer, and without where the data themselves tell."""
    spoil(data)
    assert_found(certify(data, workers=1), file, record, says)
    if without_list:
        for name in (*PACKED, CERTIFICATE):
            (data / name).unlink()
        assert_found(certify(data, numbers=NUMBERS, workers=1), file, record, says)


def test_of_several_labels_it_is_their_number_that_is_at_fault_and_not_the_image(bare):
    labelled(5, (1.0, 2.0))(bare)
    faults = certify(bare, numbers=NUMBERS, workers=1).checked.faults
    assert [finding.kind for finding in faults.kept if finding.record == 5] == ["header"]


def test_an_array_of_one_label_is_a_label(bare):
    """Which MXNet and DALI read."""
    label = Records(bare).label(5)
    labelled(5, (label,))(bare)
    assert certify(bare, numbers=NUMBERS, decode=True, workers=1).checked.passed
    (bare / CERTIFICATE).unlink()
    labelled(5, (6.0,))(bare)
    assert_found(certify(bare, numbers=NUMBERS, workers=1), "train.rec", 5, "has label 6, no class of")


@pytest.mark.parametrize("name", FILES)
def test_any_change_is_found_where_an_earlier_certificate_is_all_there_is(bare, name):
    """A certificate holds a hash of each file, so how a file is spoilt is all one."""
    assert certify(bare, numbers=NUMBERS, workers=1).checked.passed
    # No other check sees either: a bit of a picture's quantisation table, the spelling of a number.
    if name.endswith(".rec"):
        flip(32 + 60, name=name.partition(".")[0])(bare)
    else:
        lines(lambda k: k.__setitem__(5, k[5].replace("\t", "\t0")), name)(bare)
    assert_found(certify(bare, workers=1), name, None, "is not what it was")
    assert not certify(bare, workers=1).checked.passed  # what was found wrong is no measure for the next time
    written = json.loads((bare / CERTIFICATE).read_text())
    assert written["passed"] is False and written["set_sha256"] is None

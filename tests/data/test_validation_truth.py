"""A list of validation labels is read in every form that people have, and refused with two readings."""

import re

import pytest
from click.testing import CliRunner

from rn50.benchmark import rules
from rn50.cli import group
from rn50.data.packing import validation_truth
from rn50.data.packing.imagenet_folder import scan
from rn50.errors import UserError
from tests.support.image_tree import class_names, make

CLASSES = class_names(3)
NAMES = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in (1, 2, 3, 4)]
LABELS = (2, 0, 1, 0)
TRUTH = dict(zip(NAMES, LABELS, strict=True))


def read(folder, text, names=NAMES, classes=CLASSES, encoding="utf-8"):
    file = folder / "list"
    file.write_text(text, encoding=encoding)
    return validation_truth.read(file, names, classes, folder)


def of_each(line):
    """A list with a line for each image."""
    rows = enumerate(TRUTH.items())
    return "".join(
        line.format(key=key, name=name, stem=name.split(".")[0], label=label, wnid=CLASSES[label]) + "\n"
        for key, (name, label) in rows)


@pytest.mark.parametrize(
    "text",
    ["ImageId,Class\n" + of_each("{stem},{wnid}"), "filename\tlabel\n" + of_each("{name}\t{label}"),
     "\ufeff" + of_each("{name} {wnid}"),
     "\ufeffImageId,PredictionString\r\n" + of_each("{stem},{wnid} 1 2 3 4\r"),
     "class\n" + of_each("{wnid}"), of_each('"{name}","{wnid}"'),
     of_each("{key}\t{label}.000000\tval/{name}"), of_each("{key}\t{label}\t{wnid}/{name}"),
     of_each("{wnid} {name}"), of_each("{label}, val/{name}"), of_each("{name}\t{wnid}\t0\t32\t44\t62"),
     "\n\n" + of_each("val/{name} {label}")])
def test_lists_that_people_have(tmp_path, text):
    assert read(tmp_path, text) == TRUTH


def test_a_class_of_two_words_is_not_taken_for_that_of_its_first(tmp_path):
    assert read(tmp_path, "a.JPEG bear cub\nb.JPEG bear\n", ["a.JPEG", "b.JPEG"], ["bear", "bear cub"]) == {
        "a.JPEG": 1, "b.JPEG": 0}


TEN = [str(number) for number in range(11)]
TEXT_ORDER = sorted(TEN)
PLAIN = [f"{number}.JPEG" for number in range(11)]
LETTERS = [f"{letter}.JPEG" for letter in "abcdefghijk"]
TWO_READINGS = {
    "folders named by numbers, which sort otherwise": (
        "".join(f"{name} {number}\n" for name, number in zip(LETTERS, TEN, strict=True)), LETTERS, TEXT_ORDER,
        r"c\.JPEG is of class 2 \(by name, column 2\) or 10 \(counted from 0, column 2\)"),
    "neither 0 nor the number of classes": (
        "a.JPEG 1\nb.JPEG 2\n", ["a.JPEG", "b.JPEG"], CLASSES,
        rf"a\.JPEG is of class {CLASSES[1]} \(counted from 0.*\) or {CLASSES[0]} \(counted from 1"),
    "images in the order of text or of numbers": (
        "".join(f"{CLASSES[number % 3]}\n" for number in range(11)), sorted(PLAIN), CLASSES,
        r"10\.JPEG is of class .* \(by name\) or .* \(by name, images sorted by number\)"),
    "columns exchanged": ("0 1\n1 2\n2 0\n", ["0.JPEG", "1.JPEG", "2.JPEG"], CLASSES, "column 2.* column 1"),
    "key or path": (
        "0\t0.0\t1.JPEG\n1\t1.0\t0.JPEG\n", ["0.JPEG", "1.JPEG"], CLASSES[:2], r"has two readings: 0\.JPEG")}


@pytest.mark.parametrize("text, names, classes, says", TWO_READINGS.values(), ids=TWO_READINGS)
def test_a_list_with_two_readings_is_refused_and_named(tmp_path, text, names, classes, says):
    with pytest.raises(UserError, match="list: has two readings: .*; sort the images into class") as error:
        read(tmp_path, text, names, classes)
    assert re.search(says, str(error.value)) and "\n" not in str(error.value)


def test_numbers_may_count_the_classes_of_a_list_in_another_order(tmp_path):
    text = of_each("{name} {label}")
    (tmp_path / "sorted.txt").write_text("\n".join(CLASSES))
    (tmp_path / "words.txt").write_text("n01 a word\n")
    assert read(tmp_path, text) == TRUTH
    (tmp_path / "wnids.txt").write_text("\n".join(reversed(CLASSES)))
    with pytest.raises(UserError, match=r"has two readings: .*\(by wnids.txt"):
        read(tmp_path, text)
    assert read(tmp_path, of_each("{name} {wnid}")) == TRUTH


@pytest.mark.parametrize(
    "text, says",
    [(of_each("{name} {label}").replace(" 2", " 3"), "line 1 names the class 3, of which train/ has no"),
     ("a 1\nb 2\nc 3\nd 3\n", "line 1 is not about one more image of the validation folder: a 1"),
     (of_each("{name} x {label}").replace("4.JPEG", "3.JPEG"), "line 4 is not about one more image"),
     (of_each("{key} {name} {label}"), "line 1 is not about one more image"),
     ("1\n2\n3\n1\n", "has ILSVRC2012_IDs, which are not labels"),
     (of_each("{name} 3"), "has ILSVRC2012_IDs, which are not labels"),
     ("0\n1\n2\n0\n", "does not say for certain which class each image has"),
     (f"0\n1\n2\n{CLASSES[0]}\n", "does not say for certain"),
     ("what,ever\n" + of_each("{name} {label}") * 2, "has 9 lines, and the validation folder 4 images")])
def test_a_list_that_does_not_say_the_classes_is_refused(tmp_path, text, says):
    with pytest.raises(UserError, match=f"list: {says}"):
        read(tmp_path, text)


def test_class_folders_named_by_numbers_of_equal_length_have_one_order(tmp_path):
    names = [f"{number:02d}" for number in range(11)]
    text = "".join(f"{name} {number}\n" for name, number in zip(LETTERS, names, strict=True))
    assert list(read(tmp_path, text, LETTERS, names).values()) == list(range(11))


@pytest.mark.parametrize("flat", [True, False])
def test_the_first_image_of_imagenet_tells_an_order_that_is_not_its_own(tmp_path, monkeypatch, flat):
    """As of a list of ILSVRC2012_IDs less 1, which looks like one of labels."""
    truth = make(tmp_path / "source", classes=2, train=1, val=1, flat=flat)
    monkeypatch.setattr(rules, "CLASSES", 2)
    for folder in (tmp_path / "source").glob("*/n01440764"):
        folder.rename(folder.with_name("n01751748"))
    (tmp_path / "list").write_text("".join(f"{name} {label}\n" for name, label in truth.items()))
    order = ["n01440801", "n01751748"]  # the other way round
    first = "ILSVRC2012_val_00000001.JPEG"
    if flat:
        with pytest.raises(
            UserError, match=f"list: gives {first} the class {order[0]}, and ImageNet {order[1]}"
        ):
            scan(tmp_path / "source", tmp_path / "list")
        (tmp_path / "list").write_text("".join(f"{name} {1 - label}\n" for name, label in truth.items()))
        assert scan(tmp_path / "source", tmp_path / "list").classes == order
    else:
        (wrong,) = (tmp_path / "source" / "val" / order[1]).iterdir()
        assert wrong.name == first and scan(tmp_path / "source")
        other = next((tmp_path / "source" / "val" / order[0]).iterdir())
        wrong.rename(wrong.with_name("x")), other.rename(other.with_name(first))
        (wrong.with_name("x")).rename(wrong.with_name(other.name))
        with pytest.raises(UserError, match=f"val: gives {first} the class {order[0]}"):
            scan(tmp_path / "source")


def test_packing_tells_an_order_of_classes_that_nobody_expects(tmp_path):
    make(tmp_path / "source", classes=3, train=1, val=1)
    run = CliRunner()
    done = run.invoke(
        group.main, ["pack", str(tmp_path / "source"), str(tmp_path / "plain"), "--workers", "1"])
    assert done.exit_code == 0 and "labels follow" not in done.output
    for split in ("train", "val"):
        for name, number in zip(CLASSES, ("1", "10", "2"), strict=True):
            (tmp_path / "source" / split / name).rename(tmp_path / "source" / split / number)
    done = run.invoke(group.main, ["pack", str(tmp_path / "source"), str(tmp_path / "out"), "--workers", "1"])
    assert done.exit_code == 0, done.output
    assert "labels follow the class names as text: label 1 is the class 10, not 2\n" in done.output

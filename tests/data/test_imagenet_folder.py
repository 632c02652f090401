"""``rn50 pack`` refuses what has not the layout of ImageNet, and packs a flat validation folder with a list
of its classes."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from rn50.data.layout import FILES
from rn50.data.packing.pack import pack
from rn50.data.packing.packing_list import read_list
from rn50.data.packing.unpack import unpack
from rn50.errors import UserError
from tests.data.record_files import contents, records
from tests.support.image_tree import class_names, make

pytestmark = pytest.mark.xdist_group("packing")
SPOILT = [
    ("no train", lambda s: shutil.rmtree(str(s / "train")),
     r"train: no such folder; give a folder with train/<class>"),
    ("no val", lambda s: shutil.rmtree(str(s / "val")), r"val: no such folder"),
    ("flat train",
     lambda s: (
         [p.rename(s / "train" / p.name) for p in (s / "train").glob("*/*")]
         and [p.rmdir() for p in (s / "train").iterdir() if p.is_dir()]),
     r"train: holds no class folders; extract"),
    ("empty class", lambda s: [p.unlink() for p in (s / "train" / class_names(7)[2]).iterdir()],
     r"holds no image; extract its archive"),
    ("class missing in val", lambda s: shutil.rmtree(str(s / "val" / class_names(7)[2])),
     r"val/n01440838: no such folder, though"),
    ("class missing in train", lambda s: shutil.rmtree(str(s / "train" / class_names(7)[2])),
     r"train/n01440838: no such folder"),
    ("val in one folder",
     lambda s: (
         (s / "val" / "val").mkdir()
         or [p.rename(s / "val" / "val" / p.name) for p in (s / "val").glob("n*/*")]
         and [p.rmdir() for p in (s / "val").glob("n*")]),
     r"the two sets must have the same classes"),
    ("loose image", lambda s: (s / "val" / "a.JPEG").write_bytes(b"x"),
     r"val/a\.JPEG: an image beside the class folders"),
    ("archive", lambda s: (s / "val" / class_names(7)[0] / "a.tar").write_bytes(b"x"),
     r"a\.tar: no image file"),
    ("folder in a class", lambda s: (s / "train" / class_names(7)[0] / "more").mkdir(),
     r"more: no image file"),
    ("empty image", lambda s: (s / "train" / class_names(7)[1] / "empty.JPEG").write_bytes(b""),
     r"empty\.JPEG: is no JPEG, it is empty"),
    ("web page", lambda s: (s / "train" / class_names(7)[1] / "page.JPEG").write_bytes(b"<html>"),
     r"page\.JPEG: is no JPEG, it starts"),
    ("broken link", lambda s: (s / "val" / class_names(7)[1] / "link.JPEG").symlink_to("nowhere"),
     r"link\.JPEG: no image file or folder, but a link to nowhere, which is not there"),
    ("broken link in the place of a class",
     lambda s: [
         (shutil.rmtree(str(s / name / class_names(7)[6])),
          (s / name / class_names(7)[6]).symlink_to("no"))
         for name in ("train", "val")],
     r"train/n01440986: no image file or folder, but a link to no, which is not there"),
    ("TAB in the name of an image",
     lambda s: (s / "val" / class_names(7)[1] / "a\tb.JPEG").write_bytes(b"x"),
     r"b\.JPEG: has a TAB or a line end in its name, .*; rename it"),
    ("line end in the name of a class",
     lambda s: [(s / name / class_names(7)[1]).rename(s / name / "a\nb") for name in ("train", "val")],
     r"b: has a TAB or a line end in its name"),
    ("Tiny ImageNet",
     lambda s: [
         [p.mkdir(), [i.rename(p / i.name) for i in p.parent.glob("*.JPEG")]]
         for p in [folder / "images" for folder in (*(s / "train").iterdir(), s / "val")]],
     r"train/n01440764/images: a folder where images belong, as Tiny ImageNet has them; move .*val_annota",
    ),
    ("images of val in a folder of their own",
     lambda s: (shutil.rmtree(str(s / "val")), (s / "val" / "images").mkdir(parents=True)),
     r"val/images: a folder where images belong")]


@pytest.mark.parametrize("spoil, says", [case[1:] for case in SPOILT], ids=[case[0] for case in SPOILT])
def test_what_is_not_the_layout_is_refused(copy, tmp_path, spoil, says):
    spoil(copy)
    with pytest.raises(UserError, match=says) as error:
        pack(copy, tmp_path / "out")
    assert "\n" not in str(error.value).replace("a\nb", "")
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
    with pytest.raises(
        UserError,
        match="val: 21 images without class folders, so nobody knows their classes .*--val-truth FILE",
    ):
        pack(flat[0], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def official(path, truth, classes):
    """The development kit's list, whose numbers are another order of the classes, and what they mean."""
    from scipy.io import savemat

    ids = {label: (label * 3) % len(classes) + 1 for label in range(len(classes))}
    path.write_text("".join(f"{ids[truth[name]]}\n" for name in sorted(truth)))
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O")]
    table = np.array(
        [(ids[label], name, "a word") for label, name in enumerate(classes)] + [(1001, "n00000001", "above")],
        dtype=kind)
    savemat(str(path.parent / "meta.mat"), {"synsets": table.reshape(-1, 1)})


TRUTHS = [
    ("official", official),
    ("classes",
     lambda path, truth, classes: path.write_text(
         "".join(f"{classes[truth[name]]}\n" for name in sorted(truth)))),
    ("names and classes",
     lambda path, truth, classes: path.write_text(
         "".join(f"{n} {classes[k]}\n" for n, k in truth.items()))),
    ("names and ranks",
     lambda path, truth, classes: path.write_text("".join(f"{n} {k}\n" for n, k in truth.items()))),
    ("Kaggle",
     lambda path, truth, classes: path.write_text(
         "ImageId,PredictionString\n"
         + "".join(
             f"{Path(n).stem},{classes[k]} 85 1 499 272 {classes[k]} 1 2 3 4\n" for n, k in truth.items())))]


@pytest.mark.parametrize("write", [case[1] for case in TRUTHS], ids=[case[0] for case in TRUTHS])
def test_a_flat_validation_folder_with_a_list(flat, tmp_path, write):
    source, truth = flat
    write(tmp_path / "truth.txt", truth, class_names(7))
    pack(source, tmp_path / "out", truth=tmp_path / "truth.txt")
    found = {
        entry.path: int(header.label)
        for entry, (header, _) in zip(
            read_list(tmp_path / "out", "val"), records(tmp_path / "out", "val"), strict=False)}
    assert found == truth
    unpack(tmp_path / "out", tmp_path / "back")
    assert {
        path.name: class_names(7).index(path.parent.name) for path in (tmp_path / "back" / "val").glob("*/*")
    } == truth


def test_ids_behind_names_may_be_places_of_classes(flat, tmp_path):
    source, truth = flat
    official(tmp_path / "ids", truth, class_names(7))
    ids = (tmp_path / "ids").read_text().split()
    lines = [f"{name} {number}\n" for name, number in zip(sorted(truth), ids, strict=True)]
    (tmp_path / "named").write_text("".join(lines))
    with pytest.raises(UserError, match=r"named: has two readings: .*by ILSVRC2012_ID.*counted from 1"):
        pack(source, tmp_path / "out", truth=tmp_path / "named")
    (tmp_path / "meta.mat").unlink()
    with pytest.raises(
        UserError, match="named: has ILSVRC2012_IDs, which are not labels; put the development"
    ):
        pack(source, tmp_path / "out", truth=tmp_path / "named")


def test_the_development_kit_is_found_by_itself(flat, tmp_path):
    source, truth = flat
    kit = source / "ILSVRC2012_devkit_t12" / "data"
    kit.mkdir(parents=True)
    official(kit / "ILSVRC2012_validation_ground_truth.txt", truth, class_names(7))
    pack(source, tmp_path / "out")
    assert sorted(int(header.label) for header, _ in records(tmp_path / "out", "val")) == sorted(
        truth.values())


@pytest.mark.parametrize("given", ["", "ILSVRC", "ILSVRC/Data/CLS-LOC"])
def test_the_layout_of_kaggle_is_taken_from_its_root_on(flat, tmp_path, monkeypatch, given):
    source, truth = flat
    images = tmp_path / "kaggle" / "ILSVRC" / "Data" / "CLS-LOC"
    images.parent.mkdir(parents=True)
    shutil.move(source, images)
    (images / "test").mkdir()
    monkeypatch.chdir(tmp_path / "kaggle" / given)
    with pytest.raises(UserError, match="val: 21 images without class folders"):
        pack(Path(), tmp_path / "out")
    solution = [f"{Path(name).stem},{class_names(7)[label]} 1 2 3 4\n" for name, label in truth.items()]
    (tmp_path / "kaggle" / "LOC_val_solution.csv").write_text("ImageId,Prediction\n" + "".join(solution))
    pack(Path(), tmp_path / "out")
    assert sorted(int(header.label) for header, _ in records(tmp_path / "out", "val")) == sorted(
        truth.values())


@pytest.mark.parametrize("ending", ["{}", "{}.copy", "n99999999"])
def test_names_that_end_in_their_class_need_no_list(flat, tmp_path, ending):
    """As those of Hugging Face; all of them, and only classes of train/."""
    source, truth = flat
    for name, label in truth.items():
        image = source / "val" / name
        image.rename(image.with_stem(f"{image.stem}_{ending.format(class_names(7)[label])}"))
    if ending == "{}":
        pack(source, tmp_path / "out")
        entries = read_list(tmp_path / "out", "val")
        assert {entry.path: entry.label for entry in entries} == {
            f"{Path(name).stem}_{class_names(7)[label]}.JPEG": label for name, label in truth.items()}
    else:
        with pytest.raises(UserError, match="val: 21 images without class folders"):
            pack(source, tmp_path / "out")


@pytest.mark.parametrize(
    "text, says",
    [("", "truth.txt: empty"), ("1\n" * 20, "has 20 lines, and the validation folder 21 images"),
     ("1\n" * 21,
      "has ILSVRC2012_IDs, which are not labels; put the development kit's meta.mat beside it"),
     ("n99999999\n" * 21, "line 1 names the class n99999999, of which train/ has no folder"),
     ("ILSVRC2012_val_00000001.JPEG 3\n" * 21, "line 2 is not about one more image"),
     ("another.JPEG 3\n" * 21, "line 1 is not about one more image")])
def test_a_list_that_does_not_belong_to_the_folder_is_refused(flat, tmp_path, text, says):
    (tmp_path / "truth.txt").write_text(text)
    with pytest.raises(UserError, match=says):
        pack(flat[0], tmp_path / "out", truth=tmp_path / "truth.txt")


def test_unpacking_what_is_no_data_set_leaves_nothing(tmp_path):
    (tmp_path / "data").mkdir()
    with pytest.raises(UserError, match=r"train\.(rec|idx)"):
        unpack(tmp_path / "data", tmp_path / "back")
    assert not (tmp_path / "back").exists()

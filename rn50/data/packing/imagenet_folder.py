"""The ImageNet layout: one folder of images per class; the sorted folders give the labels."""

import hashlib
import os
import re
from pathlib import Path
from typing import NamedTuple

from rn50.benchmark import rules
from rn50.data.packing import validation_truth
from rn50.errors import UserError

SUFFIXES = (".jpeg", ".jpg", ".png")
FIRST_IMAGE, ITS_CLASS = "ILSVRC2012_val_00000001.JPEG", "n01751748"
"""A validation image of ImageNet."""
_WITH_CLASS = re.compile(r".*_(n\d{8})\.\w+", re.DOTALL)
"""Name of an image that ends in its class, as Hugging Face has them."""


class Image(NamedTuple):
    """A file to pack."""

    path: str
    """Path below ``train`` or ``val``."""
    label: int
    bytes: int
    changed_ns: int
    """Time of the last change, renaming or replacement: the ctime, which no archive sets back."""


class ImageFolder(NamedTuple):
    """The listing of an image folder."""

    folder: Path
    classes: list[str]
    """Sorted names; the index of a class is its label."""
    images: dict[str, list[Image]]
    """Images of "train" and "val", sorted by path."""

    @property
    def fingerprint(self) -> str:
        """Hash that changes with every file that comes or goes, and with every change of a class."""
        digest = hashlib.sha256()
        for name, images in self.images.items():
            for image in images:
                digest.update(f"{name}\t{image.path}\t{image.label}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    @property
    def numbers(self) -> dict[str, int]:
        """Number of classes, and number of images of each split."""
        return {"classes": len(self.classes), **{name: len(images) for name, images in self.images.items()}}

    @property
    def bytes(self) -> int:
        """Total bytes of all images."""
        return sum(image.bytes for images in self.images.values() for image in images)


def scan(folder: Path, truth: Path | None = None) -> ImageFolder:
    """List ``folder/train/<class>/*`` and ``folder/val``, which has the same class folders or is flat.

    A flat validation folder needs ``truth``, one of the lists that ``validation_truth`` reads, unless the
    names of its images end in their classes. The official list is found automatically if the development kit
    lies in the folder or beside it, and Kaggle's where that has it. ``folder`` may be Kaggle's too, or its
    ILSVRC/. Raises UserError for any other layout.
    """
    layouts = [folder / below for below in ("", "ILSVRC/Data/CLS-LOC", "Data/CLS-LOC")]
    folder = next((layout for layout in layouts if (layout / "train").is_dir()), folder)
    for path in (folder, folder / "train", folder / "val"):
        if not path.is_dir():
            raise UserError(path, "no such folder", "give a folder with train/<class>/*.JPEG and val/")
    try:
        return _listed(folder, truth or validation_truth.find(folder))
    except OSError as error:
        remedy = "fix its permissions, or extract the archive again"
        raise UserError(error.filename or folder, f"cannot be read ({error.strerror})", remedy) from error


def _listed(folder: Path, truth: Path | None) -> ImageFolder:
    train, val = folder / "train", folder / "val"
    classes = _class_folders(train)
    if not classes:
        problem = "holds no class folders"
        raise UserError(train, problem, "extract each class's archive into a folder of its name")
    val_classes = _class_folders(val)
    for nested in (train / classes[0] / "images", val / "images"):
        if nested.is_dir() and nested.name not in classes:
            away = "*_boxes.txt and val_annotations.txt out of train/ and val/"
            remedy = f"move such images one folder up, {away}, and pack with --val-truth val_annotations.txt"
            raise UserError(nested, "a folder where images belong, as Tiny ImageNet has them", remedy)
    for missing in sorted(set(classes) ^ set(val_classes or classes)):
        where, other = (val, train) if missing in classes else (train, val)
        again = "Extract the archives again, or sort the validation images into class folders"
        remedy = f"the two sets must have the same classes. {again}"
        raise UserError(where / missing, f"no such folder, though {other} has it", remedy)

    def labelled(split: Path) -> list[Image]:
        return [image for label, name in enumerate(classes) for image in _images(split, name, label)]

    images = labelled(val) if val_classes else _flat(folder, classes, truth)
    taken = next((classes[image.label] for image in images if image.path.endswith(FIRST_IMAGE)), ITS_CLASS)
    if taken != ITS_CLASS and ITS_CLASS in classes and len(classes) == rules.CLASSES:
        problem = f"gives {FIRST_IMAGE} the class {taken}, and ImageNet {ITS_CLASS}: another order of classes"
        raise UserError(val if val_classes else truth, problem, "give another list with --val-truth")
    return ImageFolder(folder, classes, {"train": labelled(train), "val": images})


def _class_folders(folder: Path) -> list[str]:
    """Return the sorted names of the class folders, without hidden ones. Raises UserError for images beside
    class folders."""
    entries = _entries(folder)
    folders = [entry.name for entry in entries if entry.is_dir()]
    loose = [entry.path for entry in entries if entry.name.lower().endswith(SUFFIXES) and not entry.is_dir()]
    if folders and loose:
        problem = "an image beside the class folders, so without a class"
        raise UserError(loose[0], problem, "move it into one, or away")
    return folders


def _entries(folder: Path) -> list[os.DirEntry]:
    """Return what a folder holds but for hidden files, sorted by name. Raises UserError for a link to nothing
    and for a name that no list can hold."""
    with os.scandir(folder) as entries:
        shown = [entry for entry in entries if not entry.name.startswith(".")]
    for entry in shown:
        if "\t" in entry.name or "\n" in entry.name:
            problem = "has a TAB or a line end in its name, which ends a column of the packing list"
            raise UserError(entry.path, problem, "rename it")
        if entry.is_symlink() and not os.path.exists(entry.path):
            problem = f"no image file or folder, but a link to {os.readlink(entry.path)}, which is not there"
            raise UserError(entry.path, problem, "mend the link, or move it away")
    return sorted(shown, key=lambda entry: entry.name)


def _images(split: Path, class_name: str = "", label: int = 0) -> list[Image]:
    """Return the image files of a class, or of a flat split, sorted by name. Raises UserError for any other
    file."""
    images = []
    for entry in _entries(split / class_name):
        if not (entry.is_file() and entry.name.lower().endswith(SUFFIXES)):
            problem = f"no image file ({', '.join(SUFFIXES)}), so the folder is not what the archive held"
            raise UserError(entry.path, problem, "move it away, or extract the archive again")
        status = entry.stat()
        images.append(Image(os.path.join(class_name, entry.name), label, status.st_size, status.st_ctime_ns))
    if not images:
        raise UserError(split / class_name, "holds no image", "extract its archive, or remove the folder")
    return images


def _flat(folder: Path, classes: list[str], truth: Path | None) -> list[Image]:
    images = _images(folder / "val")
    named = [match[1] for image in images if (match := _WITH_CLASS.fullmatch(image.path))]
    if truth is None and len(named) == len(images) and set(named) <= set(classes):
        labels = {image.path: classes.index(name) for image, name in zip(images, named, strict=True)}
    elif truth is None:
        problem = f"{len(images):,} images without class folders, so nobody knows their classes "
        problem += "(packed like that, a network trains to the end and is never right)"
        lists = f"the development kit's {validation_truth.OFFICIAL.name}, or lines of name and class"
        remedy = f"give the list of their classes with --val-truth FILE: {lists}"
        raise UserError(folder / "val", problem, remedy)
    else:
        labels = validation_truth.read(truth, [image.path for image in images], classes, folder)
    return [image._replace(label=labels[image.path]) for image in images]

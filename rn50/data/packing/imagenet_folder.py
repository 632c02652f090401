"""The list of the images of an ImageNet folder, with their labels: ``scan``, which ``rn50 pack`` calls.

The layout is one folder of images per class. The label of a class is its index among the sorted class names.
"""

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
"""A validation image of ImageNet, and its class. Labels that give the image another class have the classes in
another order."""
_WITH_CLASS = re.compile(r".*_(n\d{8})\.\w+", re.DOTALL)
"""File name that ends in the class of the image, as ILSVRC2012_val_00000001_n01751748.JPEG in Hugging Face's
copy of ImageNet."""


class Image(NamedTuple):
    """An image file that is to be packed."""

    path: str
    """Path below ``train`` or ``val``."""
    label: int
    bytes: int
    """Size of the file."""
    changed_ns: int
    """The ctime, in nanoseconds: the time at which the file was last changed, renamed or replaced. Unlike the
    mtime, an archive program cannot set it to an earlier time."""


class ImageFolder(NamedTuple):
    """The listing of an image folder."""

    folder: Path
    classes: list[str]
    """Sorted names; the index of a class is its label."""
    images: dict[str, list[Image]]
    """Images of "train" and "val", sorted by path."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the paths and labels of all images, in hexadecimal digits."""
        digest = hashlib.sha256()
        for name, images in self.images.items():
            for image in images:
                digest.update(f"{name}\t{image.path}\t{image.label}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    @property
    def numbers(self) -> dict[str, int]:
        """The number of classes under "classes", and the numbers of images under "train" and "val"."""
        return {"classes": len(self.classes), **{name: len(images) for name, images in self.images.items()}}

    @property
    def bytes(self) -> int:
        """Total size of all images."""
        return sum(image.bytes for images in self.images.values() for image in images)


def scan(folder: Path, truth: Path | None = None) -> ImageFolder:
    """Return the list of the images in ``folder/train`` and ``folder/val``.

    ``folder/train`` has a folder for each class. ``folder/val`` has the same class folders, or is flat: all
    images lie directly in it. The labels of a flat folder come from the list ``truth``, in one of the forms
    that ``validation_truth`` reads. If ``truth`` is None, they come from the official list or Kaggle's, if
    either is found, else from the class at the end of each file name.

    ``folder`` may also be the folder of Kaggle's archive, or ILSVRC/ inside it. Raises UserError for any
    other layout.
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
    """Return the list of the images, for ``scan``; ``folder`` contains ``train`` and ``val``."""
    train, val = folder / "train", folder / "val"
    classes = _class_folders(train)
    if not classes:
        problem = "holds no class folders"
        raise UserError(train, problem, "extract each class's archive into a folder of its name")
    val_classes = _class_folders(val)
    # Tiny ImageNet has its images one folder deeper.
    for nested in (train / classes[0] / "images", val / "images"):
        if nested.is_dir() and nested.name not in classes:
            away = "*_boxes.txt and val_annotations.txt out of train/ and val/"
            remedy = f"move such images one folder up, {away}, and pack with --val-truth val_annotations.txt"
            raise UserError(nested, "a folder where images belong, as Tiny ImageNet has them", remedy)
    # Class folders that only one of the two sets has. A flat validation folder has none to compare.
    for missing in sorted(set(classes) ^ set(val_classes or classes)):
        without, having = (val, train) if missing in classes else (train, val)
        again = "Extract the archives again, or sort the validation images into class folders"
        remedy = f"the two sets must have the same classes. {again}"
        raise UserError(without / missing, f"no such folder, though {having} has it", remedy)

    def labelled(split: Path) -> list[Image]:
        """Return the images of a split that has class folders."""
        return [image for label, name in enumerate(classes) for image in _images(split, name, label)]

    val_images = labelled(val) if val_classes else _flat(folder, classes, truth)
    # The class of FIRST_IMAGE, a WordNet ID; ITS_CLASS if there is no such image.
    first_images = (image for image in val_images if image.path.endswith(FIRST_IMAGE))
    wnid = next((classes[image.label] for image in first_images), ITS_CLASS)
    # Checked only for the whole of ImageNet: 1,000 classes, and ITS_CLASS among them.
    if wnid != ITS_CLASS and ITS_CLASS in classes and len(classes) == rules.CLASSES:
        problem = f"gives {FIRST_IMAGE} the class {wnid}, and ImageNet {ITS_CLASS}: another order of classes"
        raise UserError(val if val_classes else truth, problem, "give another list with --val-truth")
    return ImageFolder(folder, classes, {"train": labelled(train), "val": val_images})


def _class_folders(folder: Path) -> list[str]:
    """Return the sorted names of the class folders in ``folder``, without hidden folders. Raises UserError if
    there are images beside the class folders."""
    entries = _entries(folder)
    class_folders = [entry.name for entry in entries if entry.is_dir()]
    images = [file.path for file in entries if file.name.lower().endswith(SUFFIXES) and not file.is_dir()]
    if class_folders and images:
        problem = "an image beside the class folders, so without a class"
        raise UserError(images[0], problem, "move it into one, or away")
    return class_folders


def _entries(folder: Path) -> list[os.DirEntry]:
    """Return the files and folders in ``folder`` that are not hidden, sorted by name. Raises UserError for a
    broken symbolic link, and for a name that the packing list cannot hold."""
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    for entry in visible:
        if "\t" in entry.name or "\n" in entry.name:
            problem = "has a TAB or a line end in its name, which ends a column of the packing list"
            raise UserError(entry.path, problem, "rename it")
        if entry.is_symlink() and not os.path.exists(entry.path):
            problem = f"no image file or folder, but a link to {os.readlink(entry.path)}, which is not there"
            raise UserError(entry.path, problem, "mend the link, or move it away")
    return sorted(visible, key=lambda entry: entry.name)


def _images(split: Path, class_name: str = "", label: int = 0) -> list[Image]:
    """Return the image files of a class, sorted by name; without ``class_name``, the files of a flat split.

    Raises UserError for a file that is not an image, and for a folder without images.
    """
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
    """Return the validation images of a flat ``folder/val``, with labels from the list ``truth``, or from the
    file names if ``truth`` is None."""
    images = _images(folder / "val")  # every label is 0 so far
    class_names = [match[1] for image in images if (match := _WITH_CLASS.fullmatch(image.path))]
    if truth is None and len(class_names) == len(images) and set(class_names) <= set(classes):
        labels = {image.path: classes.index(name) for image, name in zip(images, class_names, strict=True)}
    elif truth is None:
        problem = f"{len(images):,} images without class folders, so nobody knows their classes "
        problem += "(packed like that, a network trains to the end and is never right)"
        lists = f"the development kit's {validation_truth.OFFICIAL.name}, or lines of name and class"
        remedy = f"give the list of their classes with --val-truth FILE: {lists}"
        raise UserError(folder / "val", problem, remedy)
    else:
        labels = validation_truth.read(truth, [image.path for image in images], classes, folder)
    return [image._replace(label=labels[image.path]) for image in images]

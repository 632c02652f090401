"""The ImageNet layout: one folder of images per class; the sorted folders give the labels."""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from rn50.data.packing import validation_truth
from rn50.errors import UserError

SUFFIXES = (".jpeg", ".jpg", ".png")


class Image(NamedTuple):
    """A file to pack."""

    path: str
    """Path below ``train`` or ``val``."""
    label: int
    bytes: int
    changed_ns: int
    """Time of the last change, renaming or replacement: the ctime, which no archive sets back."""


class Source(NamedTuple):
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


def scan(folder: Path, truth: Path | None = None) -> Source:
    """List ``folder/train/<class>/*`` and ``folder/val``, which has the same class folders or is flat.

    A flat validation folder needs ``truth``, one of the lists that ``validation_truth`` reads. The official
    list is found automatically if the development kit lies in the folder or beside it. Raises UserError for
    any other layout.
    """
    for path in (folder, folder / "train", folder / "val"):
        if not path.is_dir():
            raise UserError(path, "no such folder", "give a folder with train/<class>/*.JPEG and val/")
    train = _class_folders(folder / "train")
    if not train:
        problem = "holds no class folders"
        raise UserError(folder / "train", problem, "extract each class's archive into a folder of its name")
    classes = sorted(train)
    labels = {name: label for label, name in enumerate(classes)}
    val = _class_folders(folder / "val")
    if val:
        for missing in sorted(set(train) ^ set(val)):
            where, other = ("val", "train") if missing in train else ("train", "val")
            raise UserError(
                folder / where / missing,
                f"no such folder, though {folder / other} has it",
                "the two sets must have the same classes. Extract the archives again, or sort the "
                "validation images into class folders",
            )
        images = _labelled(folder / "val", val, labels)
    else:
        images = _flat(folder, classes, truth)
    return Source(folder, classes, {"train": _labelled(folder / "train", train, labels), "val": images})


def _class_folders(folder: Path) -> dict[str, list[os.DirEntry]]:
    """Return the image files by class folder, without hidden ones. Raises UserError for images beside class
    folders."""
    folders: dict[str, list[os.DirEntry]] = {}
    loose: list[str] = []
    for entry in _entries(folder):
        if entry.is_dir():
            folders[entry.name] = _images(Path(entry.path))
        elif entry.name.lower().endswith(SUFFIXES):
            loose.append(entry.path)
    if folders and loose:
        problem = "an image beside the class folders, so without a class"
        raise UserError(min(loose), problem, "move it into one, or away")
    return folders


def _entries(folder: Path) -> list[os.DirEntry]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise UserError(folder, f"cannot be read ({error.strerror})", "fix its permissions") from error


def _images(folder: Path) -> list[os.DirEntry]:
    """Return the image files of a folder, sorted by name. Raises UserError for any other file."""
    entries = sorted(_entries(folder), key=lambda entry: entry.name)
    for entry in entries:
        is_image = entry.is_file() and entry.name.lower().endswith(SUFFIXES)
        if not is_image or "\t" in entry.name or "\n" in entry.name:
            problem = f"no image file ({', '.join(SUFFIXES)}), so the folder is not what the archive held"
            raise UserError(entry.path, problem, "move it away, or extract the archive again")
    if not entries:
        raise UserError(folder, "holds no image", "extract its archive, or remove the folder")
    return entries


def _image(entry: os.DirEntry, path: str, label: int) -> Image:
    try:
        status = entry.stat()
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise UserError(entry.path, problem, "extract the archive again") from error
    return Image(path, label, status.st_size, status.st_ctime_ns)


def _labelled(folder: Path, folders: dict[str, list[os.DirEntry]], labels: dict[str, int]) -> list[Image]:
    return [
        _image(entry, f"{name}/{entry.name}", labels[name])
        for name in sorted(folders)
        for entry in folders[name]
    ]


def _flat(folder: Path, classes: list[str], truth: Path | None) -> list[Image]:
    entries = _images(folder / "val")
    truth = truth or validation_truth.find(folder)
    if truth is None:
        raise UserError(
            folder / "val",
            f"{len(entries):,} images without class folders, so nobody knows their classes (packed like "
            "that, a network trains to the end and is never right)",
            "give the list of their classes with --val-truth FILE: the development kit's "
            f"{Path(validation_truth.OFFICIAL).name}, or lines of name and class",
        )
    labels = validation_truth.read(truth, [entry.name for entry in entries], classes)
    return [_image(entry, entry.name, labels[entry.name]) for entry in entries]

"""The lists that ``rn50 pack`` writes beside the records, and their readers, for ``rn50 verify`` and ``rn50
unpack``.

``classes.txt`` has one class name per line, label 0 first. ``train.tsv`` and ``val.tsv``, the packing lists,
have a line for each record, in the order of the index, with four columns: key, label, SHA-256 of the image
file, path of the image file in the source folder. Where ``rn50 pack`` made an image smaller, the SHA-256 is
that of the smaller one. ``pack.json`` holds the settings of the packing and the SHA-256 of the three other
files.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rn50 import files
from rn50.data.layout import CLASSES, DEMO_CLASSES, DEMO_RECORD, LISTS, PACK_RECORD
from rn50.errors import UserError

_REMEDY = "take it from another copy of the data, or delete it"
_LARGEST = 1 << 32
"""Limit in bytes of a list that is read into memory; ImageNet's train.tsv takes about 140 MB."""


class Packed(NamedTuple):
    """Folder that was packed or unpacked, and its numbers of classes and images."""

    folder: Path
    """Folder that was written."""
    classes: int
    train: int
    """Training images."""
    val: int
    """Validation images."""


class Entry(NamedTuple):
    """A line of a packing list: the image file from which a record was made."""

    label: int
    sha256: bytes
    """SHA-256 of the image in the record: of the image file, or of the smaller image made of it."""
    path: str
    """Path below ``train`` or ``val``: <class>/<file>, or <file> if the validation set had no class
    folders."""

    def line(self, key: int) -> str:
        """Return the line of the packing list, without the newline. ``key`` is the key of the record."""
        return f"{key}\t{self.label}\t{self.sha256.hex()}\t{self.path}"

    @staticmethod
    def parse(line: str) -> "Entry":
        """Return the entry in a line of a packing list. Raises ValueError if the line is not an entry."""
        _, label, sha256, path = line.rstrip("\n").split("\t")
        if not all(_is_name(part) for part in path.split("/")):
            raise ValueError("a path that leaves its folder")
        return Entry(int(label), bytes.fromhex(sha256), path)


def _is_name(name: str) -> bool:
    """Return whether ``name`` is the name of a file or folder, and not a path, which could lead out of the
    folder."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def natural(name: str) -> list[Any]:
    """Return a sort key that sorts names as a person does: 2 before 10, upper and lower case alike."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name.casefold())]


def surprises(classes: Sequence[str]) -> Iterator[str]:
    """Yield a sentence about the order of ``classes``, the sorted class names, if a person would expect
    another order; else yield nothing."""
    for label, (name, expected) in enumerate(zip(classes, sorted(classes, key=natural), strict=True)):
        if name != expected:
            yield f"labels follow the class names as text: label {label} is the class {name}, not {expected}"
            return


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file. Bytes that are not UTF-8, as in some file names, become surrogate
    escapes. Raises UserError if the file cannot be read."""
    return files.read_text(path, _LARGEST, _REMEDY, errors="surrogateescape").split("\n")


def read_list(folder: Path, name: str) -> list[Entry] | None:
    """Return the packing list of split ``name``, or None if the folder has none. Raises UserError if the file
    is not a packing list."""
    path = folder / f"{name}.tsv"
    try:
        lines = read_lines(path)
    except files.MissingError:
        return None
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            entries += [Entry.parse(line)] if line else []
        except ValueError as error:
            removal = f"delete {PACK_RECORD}, {CLASSES} and the .tsv files to go without them"
            remedy = f"{removal}, or pack the data again"
            raise UserError(path, f"line {number} is not key, label, SHA-256 and path", remedy) from error
    return entries


def read_classes(folder: Path) -> list[str] | None:
    """Return the class names, label 0 first, or None if the folder has no classes.txt. Raises UserError if
    the file is not a list of folder names."""
    path = folder / CLASSES
    with contextlib.suppress(files.MissingError):
        classes = [line for line in read_lines(path) if line]
        for name in classes:
            if not _is_name(name):
                raise UserError(path, f"{name} is not a folder name", _REMEDY)
        return classes
    return None


def known_classes(folder: Path) -> list[str]:
    """Return the classes of classes.txt or of the demo data set, label 0 first; empty if neither is there.
    Raises UserError as ``read_classes`` does."""
    return read_classes(folder) or (DEMO_CLASSES if (folder / DEMO_RECORD).exists() else [])


def class_names(folder: Path, classes: int) -> list[str]:
    """Return the names of the ``classes`` classes of a data set for display, label 0 first: those of
    classes.txt or of the demo data set. If there are not as many names, the labels are the names. Raises
    UserError as ``read_classes`` does."""
    # Bytes of a folder's name that are not UTF-8 become escapes.
    shown = [name.encode("utf-8", "backslashreplace").decode() for name in known_classes(folder)]
    return shown if len(shown) == classes else [str(label) for label in range(classes)]


def read_record(folder: Path) -> dict[str, Any]:
    """Return the content of pack.json, empty if there is no such file. Missing keys ``lists`` and ``source``
    are added with empty values. Raises UserError if the file is not one of ``rn50 pack``."""
    path = folder / PACK_RECORD
    record = read_json(path) or {}
    lists, source = record.setdefault("lists", {}), record.setdefault("source", "")
    # ``lists`` maps the name of a list to its SHA-256.
    if not (isinstance(lists, dict) and set(lists) <= {CLASSES, *LISTS} and isinstance(source, str)):
        raise UserError(path, "damaged, not what rn50 pack writes", _REMEDY)
    return record


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if there is no such file. Raises UserError if the file cannot
    be read or holds something else."""
    with contextlib.suppress(files.MissingError):
        content = files.read_json(path, remedy=_REMEDY)
        if not isinstance(content, dict):
            raise UserError(path, "damaged, it is no JSON object", _REMEDY)
        return content
    return None

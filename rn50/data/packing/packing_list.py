"""Lists that ``rn50 pack`` writes beside the records: the class of every label and the source of every
record.

``classes.txt`` has one class name per line, label 0 first. ``train.tsv`` and ``val.tsv`` have one line per
record, in the order of the index: key, label, SHA-256 of the image file, its path in the source folder.
``pack.json`` says what was packed and how.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rn50 import files
from rn50.data.layout import CLASSES, LISTS, PACK_RECORD
from rn50.errors import UserError

_REMEDY = "take it from another copy of the data, or delete it"
_LARGEST = 1 << 32


class Packed(NamedTuple):
    """A folder of images."""

    folder: Path
    """Folder that was written."""
    classes: int
    train: int
    """Training images."""
    val: int
    """Validation images."""


class Entry(NamedTuple):
    """A record of a split, described by its source file."""

    label: int
    sha256: bytes
    """SHA-256 of the image file."""
    path: str
    """Path below ``train`` or ``val``: <class>/<file>, or <file> if the validation set had no class
    folders."""

    def line(self, key: int) -> str:
        """Return the entry's line in the list, without the newline."""
        return f"{key}\t{self.label}\t{self.sha256.hex()}\t{self.path}"

    @staticmethod
    def parse(line: str) -> "Entry":
        """Return the entry of a line. Raises ValueError if it is not an entry."""
        _, label, sha256, path = line.rstrip("\n").split("\t")
        if not all(_is_name(part) for part in path.split("/")):
            raise ValueError("a path that leaves its folder")
        return Entry(int(label), bytes.fromhex(sha256), path)


def _is_name(name: str) -> bool:
    """Return whether ``name`` is a single file or folder name, which cannot lead out of its folder."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def natural(name: str) -> list[Any]:
    """Return a key by which names sort as a person sorts them: 2 before 10, whatever the case of letters."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name.casefold())]


def surprises(classes: Sequence[str]) -> Iterator[str]:
    """Yield the order of sorted ``classes``, in a sentence, where a person would sort them otherwise."""
    for label, (name, expected) in enumerate(zip(classes, sorted(classes, key=natural), strict=True)):
        if name != expected:
            yield f"labels follow the class names as text: label {label} is the class {name}, not {expected}"
            return


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file, which may hold file names that are not UTF-8. Raises UserError."""
    return files.read_text(path, _LARGEST, _REMEDY, errors="surrogateescape").split("\n")


def read_list(folder: Path, name: str) -> list[Entry] | None:
    """Return the packing list of split ``name``, or None if there is none. Raises UserError for a file that
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
            without = f"delete {PACK_RECORD}, {CLASSES} and the .tsv files to go without them"
            remedy = f"{without}, or pack the data again"
            raise UserError(path, f"line {number} is not key, label, SHA-256 and path", remedy) from error
    return entries


def read_classes(folder: Path) -> list[str] | None:
    """Return the class names, label 0 first, or None if there is no list. Raises UserError."""
    path = folder / CLASSES
    with contextlib.suppress(files.MissingError):
        classes = [line for line in read_lines(path) if line]
        for name in classes:
            if not _is_name(name):
                raise UserError(path, f"{name} is not a folder name", _REMEDY)
        return classes
    return None


def read_record(folder: Path) -> dict[str, Any]:
    """Return pack.json, with ``lists`` and ``source`` empty if they, or the file itself, are absent. Raises
    UserError."""
    path = folder / PACK_RECORD
    record = read_json(path) or {}
    lists, source = record.setdefault("lists", {}), record.setdefault("source", "")
    if not (isinstance(lists, dict) and set(lists) <= {CLASSES, *LISTS} and isinstance(source, str)):
        raise UserError(path, "damaged, not what rn50 pack writes", _REMEDY)
    return record


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a JSON object, or None if there is no file. Raises UserError if it cannot be read or is not a
    JSON object."""
    with contextlib.suppress(files.MissingError):
        content = files.read_json(path, remedy=_REMEDY)
        if not isinstance(content, dict):
            raise UserError(path, "damaged, it is no JSON object", _REMEDY)
        return content
    return None

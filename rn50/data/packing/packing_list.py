"""What ``rn50 pack`` writes beside the records: which class is which label, and of every record where it came from.

``classes.txt`` has the name of a class a line, label 0 first. ``train.tsv`` and ``val.tsv`` have a line a record, in the order of
the index: key, label, SHA-256 of the image file, its path in the source folder. ``pack.json`` says what was packed how.
"""

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

from rn50 import files
from rn50.data.layout import CLASSES, LISTS, PACK_RECORD
from rn50.errors import UserError

_REMEDY = "take it from another copy of the data, or delete it"
_LARGEST = 1 << 32


class Entry(NamedTuple):
    """A record of a set, in the words of its source folder."""

    label: int
    sha256: bytes
    """Of the image file."""
    path: str
    """Below ``train`` or ``val``: <class>/<file>, or <file> where the validation set had no class folders."""

    def line(self, key: int) -> str:
        """Its line in the list, without the newline."""
        return f"{key}\t{self.label}\t{self.sha256.hex()}\t{self.path}"

    @staticmethod
    def parse(line: str) -> "Entry":
        """The entry of a line. Raises ValueError."""
        _, label, sha256, path = line.rstrip("\n").split("\t")
        if not all(_is_name(part) for part in path.split("/")):
            raise ValueError("a path that leaves its folder")
        return Entry(int(label), bytes.fromhex(sha256), path)


def _is_name(name: str) -> bool:
    """Whether a file or folder of this name lies where it is said to."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def read_lines(path: Path) -> List[str]:
    """Lines of a text file, whatever bytes its file names are made of. Raises UserError."""
    return files.read_text(path, _LARGEST, _REMEDY, errors="surrogateescape").split("\n")


def read_list(folder: Path, name: str) -> Optional[List[Entry]]:
    """The packing list of set ``name``; None where there is none. Raises UserError for a file that is none."""
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
            remedy = f"delete {PACK_RECORD}, {CLASSES} and the .tsv files to go without them, or pack the data again"
            raise UserError(path, f"line {number} is not key, label, SHA-256 and path", remedy) from error
    return entries


def read_classes(folder: Path) -> Optional[List[str]]:
    """Names of the classes, the one of label 0 first; None where no list is there. Raises UserError."""
    path = folder / CLASSES
    try:
        classes = [line for line in read_lines(path) if line]
    except files.MissingError:
        return None
    for name in classes:
        if not _is_name(name):
            raise UserError(path, f"{name} is no name of a folder", _REMEDY)
    return classes


def read_record(folder: Path) -> Optional[Dict[str, Any]]:
    """pack.json, its ``lists`` and ``source`` there as far as it names any; None where it is not there. Raises UserError."""
    path = folder / PACK_RECORD
    found = read_json(path)
    if found is None:
        return None
    lists = found.setdefault("lists", {})
    if not isinstance(lists, dict) or not set(lists) <= {CLASSES, *LISTS} or not isinstance(found.setdefault("source", ""), str):
        raise UserError(path, "damaged, not what rn50 pack writes", _REMEDY)
    return found


def read_json(path: Path) -> Optional[Dict[str, Any]]:
    """A JSON object; None where the file is not there. Raises UserError where it cannot be read or is none."""
    try:
        found = files.read_json(path, remedy=_REMEDY)
    except files.MissingError:
        return None
    if not isinstance(found, dict):
        raise UserError(path, "damaged, it is no JSON object", _REMEDY)
    return found

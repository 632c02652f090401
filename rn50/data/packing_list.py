"""What ``rn50 pack`` writes beside the records: which class is which label, and of every record where it came from.

``classes.txt`` has the name of a class a line, label 0 first. ``train.tsv`` and ``val.tsv`` have a line a record, in the order of
the index: key, label, SHA-256 of the image file, its path in the source folder. ``pack.json`` says what was packed how.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

from rn50.errors import UserError

CLASSES = "classes.txt"
RECORD = "pack.json"
LISTS = ("train.tsv", "val.tsv")
PACKED = (RECORD, CLASSES, *LISTS)
"""Files beside the four of a data set."""


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
        return Entry(int(label), bytes.fromhex(sha256), path)


def read_lines(path: Path) -> List[str]:
    """Lines of a text file, whatever bytes its file names are made of. Raises UserError."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def read_list(folder: Path, name: str) -> Optional[List[Entry]]:
    """The packing list of set ``name``; None where there is none. Raises UserError for a file that is none."""
    path = folder / f"{name}.tsv"
    if not path.exists():
        return None
    entries = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            entries += [Entry.parse(line)] if line else []
        except ValueError as error:
            raise UserError(f"{path}: line {number} is not key, label, SHA-256 and path; delete {RECORD}, {CLASSES} and the .tsv "
                            f"files to go without them, or pack the data again") from error
    return entries


def read_classes(folder: Path) -> Optional[List[str]]:
    """Names of the classes, the one of label 0 first; None where no list is there. Raises UserError."""
    path = folder / CLASSES
    return [line for line in read_lines(path) if line] if path.exists() else None


def read_json(path: Path) -> Optional[Dict[str, Any]]:
    """A JSON object; None where the file is not there. Raises UserError where it cannot be read or is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UserError(f"{path}: damaged, it is no JSON object; take it from another copy of the data, or delete it")
    return found


def fingerprint(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()

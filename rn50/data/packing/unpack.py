"""Unpack RecordIO into an image folder: ``OUT/train/<class>/<file>`` and ``OUT/val/<class>/<file>``."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rn50 import files
from rn50.data.jpeg import read_header
from rn50.data.packing import packing_list
from rn50.data.packing.packing_list import Entry, Packed
from rn50.data.recordio import IndexedRecordReader
from rn50.data.workers import writing
from rn50.errors import UserError

PARTIAL = ".unpack.partial"
SOURCE = "source"
NAMES = ("train", "val")
CHUNK = 32
_GO_ON = "fix that, and the same command goes on"


def unpack(
    data: Path,
    folder: Path,
    workers: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Packed:
    """Write every image of ``data`` into the folder of its class below ``folder``; return the numbers of
    classes and images.

    Names of classes and files are those of the packing list of ``rn50 pack``. Without one, classes are named
    by label (``0007``) and files by class and key (``0007_123.JPEG``). Nothing appears under ``train`` and
    ``val`` before all is written. After an interruption the same command continues. Raises ``UserError``.
    """
    classes = packing_list.read_classes(data)
    partial = folder / PARTIAL
    with contextlib.ExitStack() as opened:
        readers = {
            name: opened.enter_context(IndexedRecordReader(data / f"{name}.rec", data / f"{name}.idx"))
            for name in NAMES
        }  # first, so that nothing is made for data that cannot be read
        opened.enter_context(writing(folder, "unpacking a data set", _GO_ON))
        _begin(partial, data)
        executor = opened.enter_context(ThreadPoolExecutor(workers or len(os.sched_getaffinity(0))))
        done, total = 0, sum(map(len, readers.values()))
        for name, reader in readers.items():
            if not (folder / name).exists():  # else put in place before an interruption
                entries = _entries(data, name, len(reader))
                writer = _Writer(reader, data / f"{name}.rec", partial / name, classes, entries)
                chunks = [range(len(reader))[start : start + CHUNK] for start in range(0, len(reader), CHUNK)]
                for chunk, _ in zip(chunks, executor.map(writer.write, chunks), strict=True):
                    progress(done + chunk.stop, total)
            done += len(reader)
        for name in NAMES:
            if (partial / name).exists():
                os.replace(partial / name, folder / name)
        shutil.rmtree(partial)
        folders = {path.name for name in NAMES for path in (folder / name).iterdir()}
    return Packed(folder, len(classes or folders), *map(len, readers.values()))


def _begin(partial: Path, data: Path) -> None:
    """Make the hidden folder, or accept the one of an interrupted unpacking of the same data. Raises
    UserError for other data."""
    for name in NAMES:
        if (partial.parent / name).exists() and not partial.exists():
            raise UserError(partial.parent / name, "is there already", "choose another folder")
    source = partial / SOURCE
    origin = str(data.resolve()).encode("utf-8", "backslashreplace").decode()  # as it is written
    if source.exists() and files.read_text(source) != origin:
        problem = "an unpacking of other data was begun here"
        raise UserError(partial, problem, "delete it, or choose another folder")
    partial.mkdir(exist_ok=True)
    files.write(source, origin, files.ANY, remedy=_GO_ON)


def _entries(data: Path, name: str, records: int) -> list[Entry] | None:
    """Return the packing list of a split, None without one. Raises UserError unless it has ``records``
    records."""
    entries = packing_list.read_list(data, name)
    if entries is not None and len(entries) != records:
        problem = f"has {len(entries)} lines, and {name}.idx {records}"
        raise UserError(f"{data / name}.tsv", problem, f"see rn50 verify {data}")
    return entries


@dataclass(frozen=True)
class _Writer:
    """Writer of the images of one split."""

    reader: IndexedRecordReader
    rec: Path
    folder: Path
    classes: list[str] | None
    entries: list[Entry] | None

    def write(self, positions: range) -> None:
        """Write the images of records, except those already there."""
        for position in positions:
            header, image = self.reader.read(position)
            remedy = f"see rn50 verify {self.rec.parent}"
            is_class = header.flag < 2 and header.is_in(len(self.classes or range(1 << 24)))
            no_image = read_header(image).fault
            if no_image or not is_class:
                labels = f"{header.flag} labels" if header.flag > 1 else f"label {header.label:g}"
                fault = f"is {no_image}" if is_class else f"has {labels}, which is not a class"
                raise UserError(self.rec, f"record {position} {fault}", remedy)
            label = int(header.label)
            folder = self.folder / (Path(self.classes[label]).name if self.classes else f"{label:04d}")
            name = f"{folder.name}_{self.reader.keys[position]}.JPEG"
            if self.entries:
                entry = self.entries[position]
                name = Path(entry.path).name
                if hashlib.sha256(image).digest() != entry.sha256:
                    fault = f"record {position} ({entry.path}) is not the image that was packed"
                    raise UserError(self.rec, fault, remedy)
            path = folder / name
            if not path.exists() or path.read_bytes() != image:
                folder.mkdir(parents=True, exist_ok=True)
                temporary = folder / f".{name}.partial"
                temporary.write_bytes(image)
                os.replace(temporary, path)

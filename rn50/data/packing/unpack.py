"""Unpack RecordIO into an image folder: ``OUT/train/<class>/<file>`` and ``OUT/val/<class>/<file>``."""

import contextlib
import functools
import hashlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rn50 import files
from rn50.data.jpeg import read_header
from rn50.data.packing import packing_list
from rn50.data.packing.packing_list import Entry, Packed
from rn50.data.recordio import IndexedRecordReader
from rn50.data.workers import writing
from rn50.errors import UserError
from rn50.progress import Progress, silent

PARTIAL = ".unpack.partial"
SOURCE = "source"
NAMES = ("train", "val")
CHUNK = 32
_GO_ON = "fix that, and the same command goes on"


def unpack(data: Path, folder: Path, workers: int | None = None, progress: Progress = silent) -> Packed:
    """Write every image of ``data`` into the folder of its class below ``folder``; return the numbers of
    classes and images.

    Names of classes and files are those of the packing list of ``rn50 pack``. Without one, classes are named
    by label (``0007``) and files by class and key (``0007_123.JPEG``). Nothing appears under ``train`` and
    ``val`` before all is written. After an interruption the same command continues. Raises ``UserError``.
    """
    classes = packing_list.read_classes(data) or []
    partial = folder / PARTIAL
    with contextlib.ExitStack() as opened:
        # First, so that nothing is made for data that cannot be read.
        readers = {name: opened.enter_context(IndexedRecordReader(data / f"{name}.rec")) for name in NAMES}
        opened.enter_context(writing(folder, "unpacking a data set", _GO_ON))
        _begin(partial, data)
        executor = opened.enter_context(ThreadPoolExecutor(workers or len(os.sched_getaffinity(0))))
        done, total = 0, sum(map(len, readers.values()))
        for name, reader in readers.items():
            if not (folder / name).exists():  # else put in place before an interruption
                entries = _entries(data, name, len(reader))
                write = functools.partial(_write, reader, partial / name, classes, entries)
                chunks = [range(len(reader))[start : start + CHUNK] for start in range(0, len(reader), CHUNK)]
                for chunk, _ in zip(chunks, executor.map(write, chunks), strict=True):
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


def _entries(data: Path, name: str, records: int) -> list[Entry]:
    """Return the packing list of a split, empty without one. Raises UserError unless it has ``records``
    records."""
    entries = packing_list.read_list(data, name)
    if entries is not None and len(entries) != records:
        problem = f"has {len(entries)} lines, and {name}.idx {records}"
        raise UserError(f"{data / name}.tsv", problem, f"see rn50 verify {data}")
    return entries or []


def _write(
    reader: IndexedRecordReader, folder: Path, classes: list[str], entries: list[Entry], positions: range
) -> None:
    """Write the images of records into the folders of their classes below ``folder``, except those already
    there; ``classes`` and ``entries`` are empty without the lists of ``rn50 pack``."""
    remedy = f"see rn50 verify {reader.path.parent}"
    for position in positions:
        header, image = reader.read(position)
        is_class = header.flag < 2 and header.is_in(len(classes) or 1 << 24)
        if (no_image := read_header(image).fault) or not is_class:
            labels = f"{header.flag} labels" if header.flag > 1 else f"label {header.label:g}"
            fault = f"is {no_image}" if is_class else f"has {labels}, which is not a class"
            raise UserError(reader.path, f"record {position} {fault}", remedy)
        label = int(header.label)
        class_folder = folder / (Path(classes[label]).name if classes else f"{label:04d}")
        name = f"{class_folder.name}_{reader.keys[position]}.JPEG"
        if entries:
            name = Path(entries[position].path).name
            if hashlib.sha256(image).digest() != entries[position].sha256:
                fault = f"record {position} ({entries[position].path}) is not the image that was packed"
                raise UserError(reader.path, fault, remedy)
        path = class_folder / name
        if not path.exists() or path.read_bytes() != image:
            class_folder.mkdir(parents=True, exist_ok=True)
            temporary = class_folder / f".{name}.partial"
            temporary.write_bytes(image)
            os.replace(temporary, path)

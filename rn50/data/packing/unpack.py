"""Unpack RecordIO into an image folder (``rn50 unpack``): ``OUT/train/<class>/<file>`` and
``OUT/val/<class>/<file>``.

Threads write the images into a hidden folder, whose subfolders are moved to their final names at the end.
After an interruption the same command continues with the images that are missing.
"""

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
"""Hidden folder of an unpacking that has not ended."""
SOURCE = "source"
"""File in the hidden folder with the path of the data set that is unpacked."""
NAMES = ("train", "val")
"""The splits of a data set."""
CHUNK = 32
"""Number of records that a thread writes at a time."""
_GO_ON = "fix that, and the same command goes on"


def unpack(data: Path, folder: Path, workers: int | None = None, progress: Progress = silent) -> Packed:
    """Write every image of ``data`` into the folder of its class below ``folder``; return the numbers of
    classes and images.

    The names of classes and files are those in the lists of ``rn50 pack``, for the classes of the demo
    data set their own. Without them, a class is named after its label (``0007``), and a file after its class
    and key (``0007_123.JPEG``). ``workers`` is the number of threads, by default one for each core that this
    process may use. ``progress(done, total)`` counts images. Raises ``UserError`` if an image is not the one
    that was packed, or cannot be written.
    """
    classes = packing_list.known_classes(data)
    partial = folder / PARTIAL
    with contextlib.ExitStack() as stack:
        # The readers come first, so that no folder is made if the data cannot be read.
        readers = {name: stack.enter_context(IndexedRecordReader(data / f"{name}.rec")) for name in NAMES}
        stack.enter_context(writing(folder, "unpacking a data set", _GO_ON))
        _begin(partial, data)
        executor = stack.enter_context(ThreadPoolExecutor(workers or len(os.sched_getaffinity(0))))
        done, total = 0, sum(map(len, readers.values()))
        for name, reader in readers.items():
            if not (folder / name).exists():  # else it was moved to its final name before an interruption
                entries = _entries(data, name, len(reader))
                write = functools.partial(_write, reader, partial / name, classes, entries)
                chunks = [range(len(reader))[start : start + CHUNK] for start in range(0, len(reader), CHUNK)]
                # ``write`` returns nothing; taking its results in order waits for them and raises its errors.
                for chunk, _ in zip(chunks, executor.map(write, chunks), strict=True):
                    progress(done + chunk.stop, total)
            done += len(reader)
        for name in NAMES:
            if (partial / name).exists():
                os.replace(partial / name, folder / name)
        shutil.rmtree(partial)
        class_folders = {path.name for name in NAMES for path in (folder / name).iterdir()}
    return Packed(folder, len(classes or class_folders), *map(len, readers.values()))


def _begin(partial: Path, data: Path) -> None:
    """Make the hidden folder ``partial``, or keep it if an unpacking of ``data`` was interrupted here. Raises
    UserError if there is an image folder already, or if other data were being unpacked here."""
    for name in NAMES:
        if (partial.parent / name).exists() and not partial.exists():
            raise UserError(partial.parent / name, "is there already", "choose another folder")
    source = partial / SOURCE
    # A name that is not UTF-8 cannot be written: its bytes are replaced by escapes.
    origin = str(data.resolve()).encode("utf-8", "backslashreplace").decode()
    if source.exists() and files.read_text(source) != origin:
        problem = "an unpacking of other data was begun here"
        raise UserError(partial, problem, "delete it, or choose another folder")
    partial.mkdir(exist_ok=True)
    files.write(source, origin, files.ANY, remedy=_GO_ON)


def _entries(data: Path, name: str, records: int) -> list[Entry]:
    """Return the packing list of split ``name``, empty if there is none. Raises UserError if the list does
    not have ``records`` entries."""
    entries = packing_list.read_list(data, name)
    if entries is not None and len(entries) != records:
        problem = f"has {len(entries)} lines, and {name}.idx {records}"
        raise UserError(f"{data / name}.tsv", problem, f"see rn50 verify {data}")
    return entries or []


def _write(
    reader: IndexedRecordReader, folder: Path, classes: list[str], entries: list[Entry], positions: range
) -> None:
    """Write the images of the records at ``positions`` into the folders of their classes below ``folder``,
    except images that an earlier unpacking wrote.

    ``classes`` and ``entries`` are empty if the data set has no lists of ``rn50 pack``. Raises UserError if a
    record has no class or no image, or not the image that was packed.
    """
    remedy = f"see rn50 verify {reader.path.parent}"
    for position in positions:
        header, image = reader.read(position)
        # A flag of 2 or more is the number of labels, of which an unpacked image may have only one. Without a
        # list of classes, the label may be any whole number below 2^24, up to which float32 has all of them.
        is_class = header.flag < 2 and header.is_in(len(classes) or 1 << 24)
        image_fault = read_header(image).fault
        if image_fault or not is_class:
            labels = f"{header.flag} labels" if header.flag > 1 else f"label {header.label:g}"
            fault = f"is {image_fault}" if is_class else f"has {labels}, which is not a class"
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

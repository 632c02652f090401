"""From RecordIO back to an image folder: ``OUT/train/<class>/<file>`` and ``OUT/val/<class>/<file>``."""

import hashlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Dict, List, Optional

from rn50.data.packing import packing_list
from rn50.data.packing.packing_list import Entry
from rn50.data.recordio import IndexedRecordReader
from rn50.errors import UserError
from rn50.files import only_process

PARTIAL = ".unpack.partial"
SOURCE = "source"
NAMES = ("train", "val")
CHUNK = 32


def unpack(data: Path, folder: Path, workers: Optional[int] = None,
           progress: Callable[[int, int], None] = lambda done, total: None) -> Dict[str, int]:
    """Write every image of ``data`` into the folder of its class below ``folder``; return the numbers of classes and images.

    Names of classes and files are those of the packing list of ``rn50 pack``. Without one, classes are named by label (``0007``)
    and files by class and key (``0007_123.JPEG``). Nothing appears under ``train`` and ``val`` before all is written. After an
    interruption the same command continues. Raises ``UserError``.
    """
    classes = packing_list.read_classes(data)
    partial = folder / PARTIAL
    used = set()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with only_process(folder, "unpacking a data set"):
            _begin(partial, data)
            readers = {name: IndexedRecordReader(data / f"{name}.rec", data / f"{name}.idx") for name in NAMES}
            done, total = 0, sum(map(len, readers.values()))
            for name, reader in readers.items():
                if (folder / name).exists():  # put in place before an interruption
                    done += len(reader)
                    continue
                entries = packing_list.read_list(data, name)
                if entries is not None and len(entries) != len(reader):
                    raise UserError(f"{data / name}.tsv", f"has {len(entries)} lines, and {name}.idx {len(reader)}",
                                    f"see rn50 verify {data}")
                writer = _Writer(reader, data / f"{name}.rec", partial / name, classes, entries)
                starts = range(0, len(reader), CHUNK)
                with reader, ThreadPoolExecutor(workers or len(os.sched_getaffinity(0))) as executor:
                    futures = [executor.submit(writer.write, start, min(start + CHUNK, len(reader))) for start in starts]
                    try:
                        for future in futures:
                            labels = future.result()
                            used.update(labels)
                            done += len(labels)
                            progress(done, total)
                    finally:
                        for future in futures:
                            future.cancel()
            for name in NAMES:
                if (partial / name).exists():
                    os.replace(partial / name, folder / name)
            shutil.rmtree(partial)
    except OSError as error:
        raise UserError(folder, f"the images cannot be written ({error.strerror})",
                        "mend that, and the same command goes on") from error
    return {"classes": len(classes or used), **{name: len(reader) for name, reader in readers.items()}}


def _begin(partial: Path, data: Path) -> None:
    """Make the hidden folder, or accept that of an interrupted unpacking of the same data. Raises UserError for other data."""
    for name in NAMES:
        if (partial.parent / name).exists() and not partial.exists():
            raise UserError(partial.parent / name, "is there already", "choose another folder")
    source, wanted = partial / SOURCE, str(data.resolve())
    if source.exists() and source.read_text(encoding="utf-8") != wanted:
        raise UserError(partial, "an unpacking of other data was begun here", "delete it, or choose another folder")
    partial.mkdir(exist_ok=True)
    source.write_text(wanted, encoding="utf-8")


class _Writer:
    """Writer of the images of one split."""

    def __init__(self, reader: IndexedRecordReader, rec: Path, folder: Path, classes: Optional[List[str]],
                 entries: Optional[List[Entry]]) -> None:
        self._reader, self._rec, self._folder, self._classes, self._entries = reader, rec, folder, classes, entries

    def write(self, begin: int, end: int) -> List[int]:
        """Write the images of records ``begin`` to ``end``, except those already there; return the labels of all."""
        labels = []
        for position in range(begin, end):
            header, image = self._reader.read(position)
            if not header.label.is_integer() or not 0 <= header.label < len(self._classes or range(1 << 24)):
                raise UserError(self._rec, f"record {position} has label {header.label:g}, which is no class",
                                f"see rn50 verify {self._rec.parent}")
            label = int(header.label)
            folder = self._folder / (Path(self._classes[label]).name if self._classes else f"{label:04d}")
            name = f"{folder.name}_{self._reader.keys[position]}.JPEG"
            if self._entries:
                name = Path(self._entries[position].path).name
                if hashlib.sha256(image).digest() != self._entries[position].sha256:
                    raise UserError(self._rec,
                                    f"record {position} ({self._entries[position].path}) is not the image that was packed",
                                    f"see rn50 verify {self._rec.parent}")
            path = folder / name
            if not path.exists() or path.read_bytes() != image:
                folder.mkdir(parents=True, exist_ok=True)
                temporary = folder / f".{name}.partial"
                temporary.write_bytes(image)
                os.replace(temporary, path)
            labels.append(label)
        return labels

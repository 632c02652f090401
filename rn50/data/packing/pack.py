"""Pack an image folder into RecordIO: the bytes of the files unchanged, in an order set by a seed.

Processes read, hash, frame and write the images. Each knows where its records belong, because the sizes of
the files determine that: every byte lands where ``MXIndexedRecordIO`` would have put it. Unfinished files lie
in a hidden folder, with the index as the journal. After Ctrl-C, a full disk or a kill the same command
continues behind the last whole record.
"""

import hashlib
import itertools
import json
import os
import shutil
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rn50
from rn50 import files
from rn50.data import jpeg, layout
from rn50.data.packing import packing_list
from rn50.data.packing.imagenet_folder import Image, ImageFolder, scan
from rn50.data.recordio import MAX_RECORD_BYTES, encode_image, image_bytes
from rn50.data.workers import Processes, writing
from rn50.errors import UserError
from rn50.machine.sources import HERE
from rn50.progress import Progress, silent

PARTIAL = ".pack.partial"
JOURNAL = "settings.json"
FORMAT = 1
"""Increased with every change that makes other files of the same images and seed."""
CHUNK = 64
"""Images of one task of a process."""
OVERHEAD_BYTES = 200
"""Upper estimate of a record's bytes beside its image, in all files."""
LARGEST_BYTES = MAX_RECORD_BYTES - (1 << 20)
"""Limit of an image; the rest of a record is far smaller than the difference to ``MAX_RECORD_BYTES``."""
GO_ON = "fix that, and the same command goes on where it stopped"
STREAMS = {"train": 1, "val": 2}
"""Stream of random numbers that orders each split."""


class _Task(NamedTuple):
    """Consecutive records to write."""

    rec: str
    """Path of their .rec file."""
    offset: int
    """Byte of the file at which they begin."""
    folder: str
    """Folder of their images."""
    first: int
    """Key of the first record."""
    images: list[Image]

    @property
    def end(self) -> int:
        """Byte of the file at which they end, if none has to be cut."""
        return self.offset + sum(image_bytes(image.bytes) for image in self.images)


_Written = list[tuple[int, bytes]]
"""Result of a task: the bytes of each record, and the SHA-256 of its image."""


def order(count: int, seed: int, name: str) -> np.ndarray:
    """Return the index of each record's image among the images sorted by path: int64 (count,), the same for
    ever."""
    # RandomState's streams are frozen, unlike those of numpy.random.Generator.
    return np.random.RandomState([seed, STREAMS[name]]).permutation(count)


def pack(
    source: Path,
    folder: Path,
    seed: int = 0,
    truth: Path | None = None,
    workers: int | None = None,
    progress: Progress = silent,
) -> packing_list.Packed:
    """Pack ``source/train`` and ``source/val`` into train.rec/.idx and val.rec/.idx in ``folder``, with lists
    of the contents.

    ``truth`` is the list of classes of a flat validation folder. ``seed`` is in [0, 2**32). ``workers`` is
    the number of processes, by default one for each core that this one may use; neither it nor an
    interruption changes the files. ``progress(done, total)`` counts images. Returns at once if this very
    packing exists already. Raises ``UserError`` for a source that is not the ImageNet layout or holds a file
    that is not an image, for a folder with other data, and for a full disk.
    """
    listed = scan(source, truth)
    made_of = {"source": str(source.resolve()), "seed": seed, "images": listed.fingerprint}
    settings = {"format": FORMAT, **made_of, **listed.numbers}
    partial, packed = folder / PARTIAL, packing_list.Packed(folder, **listed.numbers)
    least = "the same command goes on where it stopped, --workers 1 with the least memory"
    with writing(folder, "packing a data set", GO_ON, least):
        if _is_there(folder, settings, listed):
            return packed
        if packing_list.read_json(partial / layout.PACK_RECORD) is None:
            began_ns = _begin(folder, settings)
            _check_space(folder, listed)
            _pack_sets(partial, listed, seed, began_ns, workers or len(os.sched_getaffinity(0)), progress)
            _finish(partial, listed, dict(settings, began_ns=began_ns))
        (folder / layout.CERTIFICATE).unlink(missing_ok=True)  # the certificate of data that were here before
        # pack.json last, because it says that all the others are there.
        for name in (*layout.FILES, layout.CLASSES, *layout.LISTS, layout.PACK_RECORD):
            if (partial / name).exists():
                os.replace(partial / name, folder / name)
        shutil.rmtree(partial)
    return packed


def _is_there(folder: Path, settings: dict[str, Any], listed: ImageFolder) -> bool:
    """Return whether ``folder`` has this packing, whole. Raises UserError if it holds other data that would
    be overwritten."""
    record = packing_list.read_json(folder / layout.PACK_RECORD)
    # Whole, and being renamed to its final names.
    moving = packing_list.read_json(folder / PARTIAL / layout.PACK_RECORD)
    written = (*layout.FILES, layout.CLASSES, *layout.LISTS, layout.CERTIFICATE)
    present = [name for name in written if (folder / name).exists()]
    for packing in filter(None, (record, moving)):
        if type(packing.get("began_ns")) is not int or not settings.items() <= packing.items():
            problem = "a packing of other images or another seed"
            raise UserError(folder / layout.PACK_RECORD, problem, "choose another folder, or delete this one")
        every = itertools.chain.from_iterable(listed.images.values())
        _refuse_changed(every, packing["began_ns"], listed.folder, folder)
    if present and record is None and moving is None:
        problem = f"is there already and was not packed from {listed.folder}"
        raise UserError(folder / present[0], problem, "choose another folder")
    return record is not None and set(layout.FILES) <= set(present)


def _refuse_changed(images: Iterator[Image], began_ns: int, source: Path, packed: Path) -> None:
    for image in images:
        if image.changed_ns > began_ns:
            problem = f"{image.path} has changed since it was packed"
            raise UserError(source, problem, f"delete {packed} and pack again")


def _boot() -> str:
    """Return the ID of this boot. After another boot, the latest writes may never have reached the disk."""
    return HERE.text("proc/sys/kernel/random/boot_id")


def _begin(folder: Path, settings: dict[str, Any]) -> int:
    """Make the hidden folder, or find the one of an interrupted packing. Return its start, in nanoseconds of
    ctime."""
    partial = folder / PARTIAL
    journal = packing_list.read_json(partial / JOURNAL)
    if journal is not None and journal.get("settings") != settings:
        problem = "a packing of other images or another seed was begun here"
        raise UserError(partial, problem, "give that command again, or delete this folder")
    if journal is not None and journal.get("boot") == _boot() and type(journal.get("began_ns")) is int:
        return int(journal["began_ns"])
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    began_ns = partial.stat().st_ctime_ns  # by the clock of this file system
    journal = {"settings": settings, "boot": _boot(), "began_ns": began_ns}
    files.write(partial / JOURNAL, json.dumps(journal, indent=1) + "\n", files.ANY, GO_ON)
    return began_ns


def _check_space(folder: Path, listed: ImageFolder) -> None:
    written = sum(path.stat().st_size for path in (folder / PARTIAL).iterdir())
    needed = listed.bytes + OVERHEAD_BYTES * sum(map(len, listed.images.values())) - written
    free = shutil.disk_usage(folder).free
    if free < needed:
        problem = f"{needed / 1e9:.1f} GB more are needed and {free / 1e9:.1f} GB are free"
        raise UserError(folder, problem, "free space or choose another folder")


def _pack_sets(
    partial: Path, listed: ImageFolder, seed: int, began_ns: int, workers: int, progress: Progress
) -> None:
    total = sum(map(len, listed.images.values()))
    before = 0
    with Processes(workers) as processes:
        for name, images in listed.images.items():
            keys = order(len(images), seed, name)
            done, offset = _resume(partial, name)
            packed = (images[number] for number in keys[:done].tolist())
            _refuse_changed(packed, began_ns, listed.folder, partial)
            progress(before + done, total)
            rec, idx, tsv = (partial / f"{name}.{kind}" for kind in ("rec", "idx", "tsv"))
            unpacked = [images[number] for number in keys[done:].tolist()]
            rest = _Task(str(rec), offset, str(listed.folder / name), done, unpacked)
            with (
                rec.open("ab") as records,
                idx.open("a", encoding="ascii", newline="\n") as index_file,
                tsv.open("a", encoding="utf-8", errors="surrogateescape", newline="\n") as list_file,
            ):
                for task, written in _in_order(processes, 2 * workers, rest):
                    index, entries, offset = [], [], task.offset
                    records_written = zip(task.images, written, strict=True)
                    for key, (image, (size, sha256)) in enumerate(records_written, task.first):
                        index.append(f"{key}\t{offset}\n")
                        entries.append(packing_list.Entry(image.label, sha256, image.path).line(key) + "\n")
                        offset += size
                    for journal, lines in ((list_file, entries), (index_file, index)):
                        # A line says that its record is written.
                        journal.write("".join(lines))
                        journal.flush()
                    progress(before + task.first + len(task.images), total)
                os.fsync(records.fileno())
            before += len(images)


def _resume(partial: Path, name: str) -> tuple[int, int]:
    """Return how many records are surely whole and the offset of the next one; cut off everything behind
    that."""
    rec, idx, tsv = (partial / f"{name}.{kind}" for kind in ("rec", "idx", "tsv"))
    if not (rec.exists() and idx.exists() and tsv.exists()):
        return 0, 0
    lines = [path.read_bytes().split(b"\n")[:-1] for path in (idx, tsv)]
    # The end of the last record is stored nowhere, so it is packed again.
    done = max(0, min(map(len, lines)) - 1)
    offset = int(lines[0][done].split(b"\t")[1]) if lines[0] else 0
    for path, kept in zip((idx, tsv), lines, strict=False):
        os.truncate(path, sum(len(line) + 1 for line in kept[:done]))
    os.truncate(rec, offset)
    return done, offset


def _in_order(processes: Processes, ahead: int, rest: _Task) -> Iterator[tuple[_Task, _Written]]:
    """Yield ``rest`` task by task in order, as the processes finish it; at most ``ahead`` tasks are submitted
    at a time.

    If the caller stops early, those few finish uncancelled.
    """
    waiting: deque[tuple[_Task, Future[_Written]]] = deque()
    position, offset = 0, rest.offset
    while waiting or position < len(rest.images):
        while len(waiting) < ahead and position < len(rest.images):
            images = rest.images[position : position + CHUNK]
            task = rest._replace(offset=offset, first=rest.first + position, images=images)
            waiting.append((task, processes.submit(_write_records, task)))
            position, offset = position + len(images), task.end
        task, future = waiting.popleft()
        written = future.result()
        end = task.offset + sum(size for size, _ in written)
        if end != task.end:
            # A record was cut, one in a hundred thousand: its end and the records behind it may have
            # overwritten each other.
            wait([pending for _, pending in waiting])
            waiting.clear()
            written = processes.submit(_write_records, task).result()
            position, offset = task.first - rest.first + len(task.images), end
        yield task, written


def _write_records(task: _Task) -> _Written:
    """Write the records of a task."""
    written: _Written = []
    offset = task.offset
    with open(task.rec, "r+b", buffering=0) as rec:
        for key, image in enumerate(task.images, task.first):
            content = _read(f"{task.folder}/{image.path}", image.bytes)
            record = encode_image(key, image.label, content)
            written.append((len(record), hashlib.sha256(content).digest()))
            left = memoryview(record)
            while left:  # one call may write less than it was given
                count = os.pwrite(rec.fileno(), left, offset)
                left, offset = left[count:], offset + count
    return written


def _read(path: str, size: int) -> bytes:
    """Return the content of an image file that had ``size`` bytes when it was listed."""
    again = "extract its archive again, then give the same command"
    if size > LARGEST_BYTES:
        raise UserError(path, f"has {size} bytes, too many for a record", again)
    with files.errors_of(path, again), open(path, "rb", buffering=0) as image:
        content = image.read(size + 1)
    if len(content) != size:
        remedy = "leave the folder alone and give the same command again"
        raise UserError(path, "changed while it was packed", remedy)
    if fault := jpeg.read_header(content).fault:
        raise UserError(path, f"is {fault}", again)
    return content


def _finish(partial: Path, listed: ImageFolder, settings: dict[str, Any]) -> None:
    """Write the class list, then pack.json, which says that the hidden folder holds all files."""
    text = "".join(f"{name}\n" for name in listed.classes)
    (partial / layout.CLASSES).write_text(text, encoding="utf-8", errors="surrogateescape")
    lists = {name: files.sha256(partial / name) for name in (layout.CLASSES, *layout.LISTS)}
    record = json.dumps(dict(settings, rn50=rn50.__version__, lists=lists), indent=1) + "\n"
    files.write(partial / layout.PACK_RECORD, record, files.ANY, GO_ON)

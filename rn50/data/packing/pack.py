"""Pack an image folder into RecordIO (``rn50 pack``). The bytes of the image files stay unchanged, unless
``short_side`` asks for smaller images; a seed determines the order of the records.

This process divides the images into tasks of ``CHUNK`` images. Worker processes read and hash the images of a
task and write their records into the .rec file; this process writes the index and the packing list. The sizes
of the image files determine the byte offset of every record, so that several workers can write at the same
time. The result is byte for byte the file that MXNet's ``MXIndexedRecordIO`` writes. The size of a smaller
image is known only after its JPEG was made: workers then return their records, and this process writes them.

The files are written in a hidden folder and moved to their final names at the end. A line of the index also
records that its record was written. After Ctrl-C, a full disk or a kill, the same command continues behind
the last whole record.
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
from rn50.data.workers import Processes, in_order, writing
from rn50.errors import UserError
from rn50.machine.sources import HERE
from rn50.progress import Progress, silent

PARTIAL = ".pack.partial"
"""Hidden folder, in the folder of the data set, of a packing that has not ended."""
JOURNAL = "settings.json"
"""File in the hidden folder with the settings of the packing, and the boot and the time in which it began."""
FORMAT = 1
"""Version of the packed files. It is increased with every change after which the same images and seed give
other files."""
CHUNK = 64
"""Number of images of a task."""
OVERHEAD_BYTES = 200
"""Upper estimate of the bytes that the written files hold about an image beyond the image itself."""
LARGEST_BYTES = MAX_RECORD_BYTES - (1 << 20)
"""Size of the largest image that is packed. The other parts of its record are far smaller than 1 MiB."""
GO_ON = "fix that, and the same command goes on where it stopped"
"""Remedy in errors about a file that cannot be written."""
STREAMS = {"train": 1, "val": 2}
"""Stream of random numbers that determines the order of the records of a split."""


class _Task(NamedTuple):
    """Consecutive records that one worker process writes."""

    rec: str
    """Path of the .rec file."""
    offset: int
    """Position in the .rec file, in bytes, at which the first record begins."""
    folder: str
    """Folder of the images."""
    first: int
    """Key of the first record."""
    images: list[Image]
    """The image of each record."""
    short_side: int | None
    """Pixels to which the shorter side of a larger image is reduced; None: images stay unchanged."""

    @property
    def end(self) -> int:
        """Position in the .rec file at which the last record ends, unless an image contains RecordIO's magic
        word, the four bytes with which a record begins: that makes its record longer."""
        return self.offset + sum(image_bytes(image.bytes) for image in self.images)


_Written = list[tuple[int, bytes]]
"""Result of a task: for each record its size in bytes and the SHA-256 of its image."""


def order(count: int, seed: int, name: str) -> np.ndarray:
    """Return the order of the ``count`` records of split ``name``: int64 (count,).

    Element k is the index of the image of record k in the list of images sorted by path. The order for a seed
    never changes.
    """
    # RandomState's streams are frozen, unlike those of numpy.random.Generator.
    return np.random.RandomState([seed, STREAMS[name]]).permutation(count)


def pack(
    source: Path,
    folder: Path,
    seed: int = 0,
    truth: Path | None = None,
    workers: int | None = None,
    progress: Progress = silent,
    short_side: int | None = None,
) -> packing_list.Packed:
    """Pack ``source/train`` and ``source/val`` into train.rec/.idx and val.rec/.idx in ``folder``, and write
    the lists that ``packing_list`` describes.

    ``truth`` is the list of the classes of a flat validation folder. ``seed`` is in [0, 2**32). ``workers``
    is the number of processes, by default one for each core that this process may use. Neither ``workers``
    nor an interruption changes the files. ``progress(done, total)`` counts images. With ``short_side``,
    images whose shorter side has more pixels are replaced by what ``jpeg.shrunk`` makes of them.

    Returns at once if ``folder`` already holds the packing of these images with these options. Raises
    ``UserError`` if the source does not have the ImageNet layout or holds a file that is not an image, if an
    image that is to become smaller does not decode, if the folder holds other data, and if the disk is full.
    """
    listed = scan(source, truth)
    # ``listed.numbers`` are the numbers of classes, training images and validation images, by name.
    origin = {"source": str(source.resolve()), "seed": seed, "images": listed.fingerprint}
    settings = {"format": FORMAT, "short_side": short_side, **origin, **listed.numbers}
    partial = folder / PARTIAL
    packed = packing_list.Packed(folder, **listed.numbers)
    least_memory = "the same command goes on where it stopped, --workers 1 with the least memory"
    # Locks the folder. The remedies are those of a failed write and of a worker that was killed.
    with writing(folder, "packing a data set", GO_ON, least_memory):
        if _is_packed(folder, settings, listed):
            return packed
        # With pack.json in the hidden folder, all files are written and only have to be moved.
        if packing_list.read_json(partial / layout.PACK_RECORD) is None:
            settings["began_ns"] = _begin(folder, settings)
            # A JPEG that was made smaller has fewer bytes than a square of that side has pixels.
            _check_space(folder, listed, short_side**2 if short_side else LARGEST_BYTES)
            _pack_splits(partial, listed, settings, workers or len(os.sched_getaffinity(0)), progress)
            _write_lists_and_record(partial, listed, settings)
        # A certificate in the folder is that of an earlier data set.
        (folder / layout.CERTIFICATE).unlink(missing_ok=True)
        # The mark is moved before any record. pack.json is moved last, because its presence means that all
        # other files are in place.
        for name in (layout.OPEN_ONLY, *layout.FILES, layout.CLASSES, *layout.LISTS, layout.PACK_RECORD):
            if (partial / name).exists():
                os.replace(partial / name, folder / name)
        shutil.rmtree(partial)
    return packed


def _is_packed(folder: Path, settings: dict[str, Any], listed: ImageFolder) -> bool:
    """Return whether ``folder`` holds the packing with these ``settings``, whole and under its final names.

    Raises UserError if the folder holds other data, which would be overwritten, or if an image has changed
    since it was packed.
    """
    record = packing_list.read_json(folder / layout.PACK_RECORD)
    # pack.json is still in the hidden folder if a packing was interrupted while its files were moved.
    record_being_moved = packing_list.read_json(folder / PARTIAL / layout.PACK_RECORD)
    written = (*layout.FILES, layout.CLASSES, *layout.LISTS, layout.CERTIFICATE, layout.OPEN_ONLY)
    present = [name for name in written if (folder / name).exists()]
    for packing in filter(None, (record, record_being_moved)):
        packing.setdefault("short_side", None)  # earlier versions did not know it
        if type(packing.get("began_ns")) is not int or not settings.items() <= packing.items():
            problem = "a packing of other images or with other options"
            raise UserError(folder / layout.PACK_RECORD, problem, "choose another folder, or delete this one")
        all_images = itertools.chain.from_iterable(listed.images.values())
        _refuse_changed(all_images, packing["began_ns"], listed.folder, folder)
    if present and record is None and record_being_moved is None:
        problem = f"is there already and was not packed from {listed.folder}"
        raise UserError(folder / present[0], problem, "choose another folder")
    return record is not None and set(layout.FILES) <= set(present)


def _refuse_changed(images: Iterator[Image], began_ns: int, source: Path, packed: Path) -> None:
    """Raise UserError if one of ``images`` changed after the packing began. ``began_ns`` is the start of the
    packing, in nanoseconds of the clock that sets ``Image.changed_ns``."""
    for image in images:
        if image.changed_ns > began_ns:
            problem = f"{image.path} has changed since it was packed"
            raise UserError(source, problem, f"delete {packed} and pack again")


def _boot_id() -> str:
    """Return the ID of this boot of the machine.

    An interrupted packing goes on only in the boot in which it began: the last bytes that were written before
    a crash of the machine may be missing on the disk.
    """
    return HERE.text("proc/sys/kernel/random/boot_id")


def _begin(folder: Path, settings: dict[str, Any]) -> int:
    """Make the hidden folder, or keep the hidden folder of an interrupted packing with the same ``settings``.

    Returns the time at which the packing began, in nanoseconds of ctime. Raises UserError if a packing with
    other settings was interrupted here.
    """
    partial = folder / PARTIAL
    journal = packing_list.read_json(partial / JOURNAL)
    if journal is not None and journal.get("settings") != settings:
        problem = "a packing of other images or with other options was begun here"
        raise UserError(partial, problem, "give that command again, or delete this folder")
    if journal is not None and journal.get("boot") == _boot_id() and type(journal.get("began_ns")) is int:
        return int(journal["began_ns"])
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    began_ns = partial.stat().st_ctime_ns  # the file system may have a clock of its own
    new_journal = {"settings": settings, "boot": _boot_id(), "began_ns": began_ns}
    files.write(partial / JOURNAL, json.dumps(new_journal, indent=1) + "\n", files.ANY, GO_ON)
    return began_ns


def _check_space(folder: Path, listed: ImageFolder, largest: int) -> None:
    """Raise UserError if the disk has too little space for the rest of the packing, whose images have at most
    ``largest`` bytes."""
    images = [min(image.bytes, largest) for split in listed.images.values() for image in split]
    written = sum(path.stat().st_size for path in (folder / PARTIAL).iterdir())
    needed = sum(images) + OVERHEAD_BYTES * len(images) - written
    free = shutil.disk_usage(folder).free
    if free < needed:
        problem = f"{needed / 1e9:.1f} GB more are needed and {free / 1e9:.1f} GB are free"
        raise UserError(folder, problem, "free space or choose another folder")


def _pack_splits(
    partial: Path, listed: ImageFolder, settings: dict[str, Any], workers: int, progress: Progress
) -> None:
    """Write the records, indices and packing lists of both splits into the hidden folder ``partial``, behind
    the records that an interrupted packing left there. ``settings`` are those of pack.json."""
    total = sum(map(len, listed.images.values()))
    short_side = settings["short_side"]
    write_in_order = _shrunk_in_order if short_side else _in_order
    images_before = 0  # images of the splits before this one
    with Processes(workers) as processes:
        for name, images in listed.images.items():
            image_of_record = order(len(images), settings["seed"], name).tolist()
            done, end_of_done = _resume(partial, name)
            packed_images = (images[index] for index in image_of_record[:done])
            _refuse_changed(packed_images, settings["began_ns"], listed.folder, partial)
            progress(images_before + done, total)
            rec, idx, tsv = (partial / f"{name}.{kind}" for kind in ("rec", "idx", "tsv"))
            unpacked = [images[index] for index in image_of_record[done:]]
            rest = _Task(str(rec), end_of_done, str(listed.folder / name), done, unpacked, short_side)
            # ``records`` makes the .rec file and syncs it at the end; the tasks write into it.
            with (
                rec.open("ab") as records,
                idx.open("a", encoding="ascii", newline="\n") as index_file,
                tsv.open("a", encoding="utf-8", errors="surrogateescape", newline="\n") as tsv_file,
            ):
                for task, written in write_in_order(processes, 2 * workers, rest):
                    index_lines, tsv_lines = [], []
                    # A record may be longer than assumed, so the offsets come from the sizes written.
                    offset = task.offset
                    records_written = zip(task.images, written, strict=True)
                    for key, (image, (size, sha256)) in enumerate(records_written, task.first):
                        index_lines.append(f"{key}\t{offset}\n")
                        tsv_lines.append(packing_list.Entry(image.label, sha256, image.path).line(key) + "\n")
                        offset += size
                    # The lines follow their records, because ``_resume`` takes a line for a written record.
                    for file, lines in ((tsv_file, tsv_lines), (index_file, index_lines)):
                        file.write("".join(lines))
                        file.flush()
                    progress(images_before + task.first + len(task.images), total)
                os.fsync(records.fileno())
            images_before += len(images)


def _resume(partial: Path, name: str) -> tuple[int, int]:
    """Cut off the files of split ``name`` behind the last record that is certainly whole. Return the number
    of records that remain, and the offset of the next record in the .rec file."""
    rec, idx, tsv = (partial / f"{name}.{kind}" for kind in ("rec", "idx", "tsv"))
    if not (rec.exists() and idx.exists() and tsv.exists()):
        return 0, 0
    # [:-1]: behind the last line end is nothing, or a line whose end was not written.
    index_lines, tsv_lines = (path.read_bytes().split(b"\n")[:-1] for path in (idx, tsv))
    # The last record is packed again, because its end is stored nowhere.
    done = max(0, min(len(index_lines), len(tsv_lines)) - 1)
    # A line of the index has the key of a record, a tab and the offset at which the record begins.
    offset = int(index_lines[done].split(b"\t")[1]) if index_lines else 0
    for path, lines in ((idx, index_lines), (tsv, tsv_lines)):
        os.truncate(path, sum(len(line) + 1 for line in lines[:done]))
    os.truncate(rec, offset)
    return done, offset


def _in_order(processes: Processes, ahead: int, rest: _Task) -> Iterator[tuple[_Task, _Written]]:
    """Divide the task ``rest``, which holds all remaining records of a split, into tasks of ``CHUNK`` images.
    Yield each task with its result, in order, once it is written.

    At most ``ahead`` tasks are submitted to the processes at a time. If the caller stops early, the submitted
    tasks are not cancelled and finish.
    """
    waiting: deque[tuple[_Task, Future[_Written]]] = deque()
    # Index in ``rest.images`` of the next image to submit, and the offset of its record.
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
            # An image of the task contains the magic word, as one in a hundred thousand does. RecordIO cuts
            # its record there, which makes it longer than ``task.end`` assumes, so that the next task has
            # overwritten its end. Write this task again once the others have ended, and then go on at its
            # true end.
            wait([pending for _, pending in waiting])
            waiting.clear()
            written = processes.submit(_write_records, task).result()
            position, offset = task.first - rest.first + len(task.images), end
        yield task, written


def _shrunk_in_order(processes: Processes, ahead: int, rest: _Task) -> Iterator[tuple[_Task, _Written]]:
    """Do as ``_in_order`` for images that are made smaller: the processes return records, which this process
    writes."""
    starts = range(0, len(rest.images), CHUNK)
    tasks = [rest._replace(first=rest.first + i, images=rest.images[i : i + CHUNK]) for i in starts]
    futures = (processes.submit(_record_list, task) for task in tasks)
    with open(rest.rec, "r+b") as rec:
        rec.seek(rest.offset)
        for task, records in zip(tasks, in_order(futures, ahead), strict=True):
            offset = rec.tell()
            rec.writelines(record for record, _ in records)
            rec.flush()
            yield task._replace(offset=offset), [(len(record), sha256) for record, sha256 in records]


def _records(task: _Task) -> Iterator[tuple[bytes, bytes]]:
    """Yield each record of a task, and the SHA-256 of its image."""
    for key, image in enumerate(task.images, task.first):
        content = _read(f"{task.folder}/{image.path}", image.bytes, task.short_side)
        yield encode_image(key, image.label, content), hashlib.sha256(content).digest()


def _record_list(task: _Task) -> list[tuple[bytes, bytes]]:
    """Return what ``_records`` yields, which a process cannot send to another as a generator."""
    return list(_records(task))


def _write_records(task: _Task) -> _Written:
    """Write the records of a task into its .rec file."""
    written: _Written = []
    offset = task.offset
    with open(task.rec, "r+b", buffering=0) as rec:
        for record, sha256 in _records(task):
            written.append((len(record), sha256))
            remaining = memoryview(record)
            while remaining:  # a call of os.pwrite may write only a part
                count = os.pwrite(rec.fileno(), remaining, offset)
                remaining, offset = remaining[count:], offset + count
    return written


def _read(path: str, size: int, short_side: int | None) -> bytes:
    """Return the content of an image file, which had ``size`` bytes when the folder was listed, or the
    smaller image for ``short_side``.

    Raises UserError if the file is too large, cannot be read, has another size by now, or is not an image.
    """
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
    try:
        return jpeg.shrunk(content, short_side) if short_side else content
    except Exception as error:  # Pillow raises OSError, SyntaxError, ValueError and more for a damaged file
        raise UserError(path, f"does not decode ({error})", again) from error


def _write_lists_and_record(partial: Path, listed: ImageFolder, settings: dict[str, Any]) -> None:
    """Write the class list, the mark of smaller images, and last pack.json: its presence means that the
    hidden folder holds all files."""
    text = "".join(f"{name}\n" for name in listed.classes)
    (partial / layout.CLASSES).write_text(text, encoding="utf-8", errors="surrogateescape")
    if settings["short_side"]:
        (partial / layout.OPEN_ONLY).touch()
    lists = {name: files.sha256(partial / name) for name in (layout.CLASSES, *layout.LISTS)}
    record = json.dumps(dict(settings, rn50=rn50.__version__, lists=lists), indent=1) + "\n"
    files.write(partial / layout.PACK_RECORD, record, files.ANY, GO_ON)

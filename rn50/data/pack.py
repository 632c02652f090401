"""From an image folder to RecordIO: the bytes of the files as they are, in an order that a seed gives.

Threads read, hash and frame the images, for all of that happens outside of Python's lock; one writer appends them, so that every
byte lands where ``MXIndexedRecordIO`` would have put it. What is written so far lies in a hidden folder, the index its journal:
after Ctrl-C, a full disk or a kill the same command goes on behind the last record that is whole.
"""

import hashlib
import json
import os
import shutil
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Callable, Deque, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

import rn50
from rn50.data import jpeg, packing_list
from rn50.data.certificate import CERTIFICATE
from rn50.data.exclusive import only_process
from rn50.data.imagenet_folder import Image, Source, scan
from rn50.data.packing_list import Entry
from rn50.data.recordio import FRAME_BYTES, MAX_RECORD_BYTES, encode_image, frame_bytes, frame_in_place
from rn50.data.verify import FILES
from rn50.errors import UserError

PARTIAL = ".pack.partial"
JOURNAL = "settings.json"
FORMAT = 1
"""Raised with every change that makes other files of the same images and seed."""
CHUNK = 32
"""Images that a thread takes at once."""
OVERHEAD_BYTES = 200
"""Of a record beside its image, in all files; generously."""
LARGEST_BYTES = MAX_RECORD_BYTES - (1 << 20)
"""Of an image; what a record has beside it is far less than the difference."""
STREAMS = {"train": 1, "val": 2}
"""The order of each set is its own stream of random numbers."""

Bytes = Union[bytes, memoryview]
Progress = Callable[[int, int], None]


class _Chunk(NamedTuple):
    """Some records, one behind the other."""

    buffer: bytearray
    """Where they are; to be filled again once they are written."""
    pieces: List[Bytes]
    """What is written."""
    sizes: List[int]
    """Bytes of each record."""
    digests: List[bytes]
    """SHA-256 of each image."""


def order(count: int, seed: int, name: str) -> np.ndarray:
    """Which image, of those sorted by path, is record 0, 1, ...: int64 (count,), the same for ever."""
    # Unlike those of numpy.random.Generator, its streams are frozen.
    return np.random.RandomState([seed, STREAMS[name]]).permutation(count)


def pack(source: Path, folder: Path, seed: int = 0, truth: Optional[Path] = None, workers: Optional[int] = None,
         progress: Progress = lambda done, total: None) -> Source:
    """Packs ``source/train`` and ``source/val`` into train.rec/.idx and val.rec/.idx in ``folder``, with lists of what they hold.

    ``truth`` is the list of classes of a flat validation folder. ``seed`` is in [0, 2**32); ``workers`` is the number of threads,
    by default one for each core that this process may use; neither it nor an interruption changes the files.
    ``progress(done, total)`` counts images. Returns at once where this very packing is there already. Raises ``UserError`` for a
    source that is not the ImageNet layout or holds what is no image, for a folder with other data, and for a full disk.
    """
    listed = scan(source, truth)
    settings = {"format": FORMAT, "source": str(source.resolve()), "seed": seed, "images": listed.fingerprint, **listed.numbers}
    partial = folder / PARTIAL
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with only_process(folder, "packing a data set"):
            if _is_there(folder, settings, listed):
                return listed
            if packing_list.read_json(partial / packing_list.RECORD) is None:
                began_ns = _begin(folder, settings)
                _check_space(folder, listed)
                _pack_sets(partial, listed, seed, began_ns, workers or len(os.sched_getaffinity(0)), progress)
                _finish(partial, listed, dict(settings, began_ns=began_ns))
            (folder / CERTIFICATE).unlink(missing_ok=True)  # of data that were here before
            # The record last: where it is, all is.
            for name in (*FILES, packing_list.CLASSES, *packing_list.LISTS, packing_list.RECORD):
                if (partial / name).exists():
                    os.replace(partial / name, folder / name)
            shutil.rmtree(partial)
    except OSError as error:
        raise UserError(f"{folder}: the data set cannot be written ({error.strerror}); mend that, and the same command goes on "
                        f"where it stopped") from error
    return listed


def _is_there(folder: Path, settings: Dict[str, Any], listed: Source) -> bool:
    """Whether ``folder`` has this packing, whole. UserError where it holds anything else that would be overwritten."""
    record = packing_list.read_json(folder / packing_list.RECORD)
    moving = packing_list.read_json(folder / PARTIAL / packing_list.RECORD)  # whole, and on its way to its final names
    present = [name for name in FILES if (folder / name).exists()]
    for found in (record, moving):
        if found is not None:
            if any(found.get(key) != value for key, value in settings.items()):
                raise UserError(f"{folder / packing_list.RECORD}: a packing of other images or another seed; choose another "
                                f"folder, or delete this one")
            every = (image for images in listed.images.values() for image in images)
            _refuse_changed(every, found["began_ns"], listed.folder, folder)
    if present and record is None and moving is None:
        raise UserError(f"{folder / present[0]}: is there already and was not packed from {listed.folder}; choose another folder")
    return record is not None and len(present) == len(FILES)


def _refuse_changed(images: Iterator[Image], began_ns: int, source: Path, packed: Path) -> None:
    for image in images:
        if image.changed_ns > began_ns:
            raise UserError(f"{source}: {image.path} has changed since it was packed; delete {packed} and pack again")


def _boot() -> str:
    """Which start of the machine this is: after another one, what was written last may never have reached the disk."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _begin(folder: Path, settings: Dict[str, Any]) -> int:
    """Makes the hidden folder, or finds the one of an interrupted packing; returns when that was begun."""
    partial = folder / PARTIAL
    journal = packing_list.read_json(partial / JOURNAL)
    if journal is not None and journal.get("settings") != settings:
        raise UserError(f"{partial}: a packing of other images or another seed was begun here; give that command again, or "
                        f"delete this folder")
    if journal is not None and journal["boot"] == _boot():
        return int(journal["began_ns"])
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    began_ns = partial.stat().st_ctime_ns  # by the clock of this file system
    temporary = partial / f"{JOURNAL}.partial"
    temporary.write_text(json.dumps({"settings": settings, "boot": _boot(), "began_ns": began_ns}), encoding="utf-8")
    temporary.replace(partial / JOURNAL)
    return began_ns


def _check_space(folder: Path, listed: Source) -> None:
    written = sum(path.stat().st_size for path in (folder / PARTIAL).iterdir())
    needed = listed.bytes + OVERHEAD_BYTES * sum(map(len, listed.images.values())) - written
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UserError(f"{folder}: {needed / 1e9:.1f} GB more are needed and {free / 1e9:.1f} GB are free; free space or choose "
                        f"another folder")


def _pack_sets(partial: Path, listed: Source, seed: int, began_ns: int, workers: int, progress: Progress) -> None:
    total = sum(map(len, listed.images.values()))
    before = 0
    for name, images in listed.images.items():
        keys = order(len(images), seed, name)
        done, offset = _resume(partial, name)
        _refuse_changed((images[each] for each in keys[:done].tolist()), began_ns, listed.folder, partial)
        progress(before + done, total)
        with ThreadPoolExecutor(workers) as executor, (partial / f"{name}.rec").open("ab", buffering=0) as rec, \
                (partial / f"{name}.idx").open("a", encoding="ascii", newline="\n") as idx, \
                (partial / f"{name}.tsv").open("a", encoding="utf-8", errors="surrogateescape", newline="\n") as tsv:
            for chunk in _packed(executor, workers, listed.folder / name, images, keys, done):
                for piece in chunk.pieces:
                    _write(rec, piece)
                index, entries = [], []
                for size, sha256 in zip(chunk.sizes, chunk.digests):
                    image = images[keys[done]]
                    index.append(f"{done}\t{offset}\n")
                    entries.append(Entry(image.label, sha256, image.path).line(done) + "\n")
                    offset += size
                    done += 1
                for journal, lines in ((tsv, entries), (idx, index)):  # after the records: a line says that its record is there
                    journal.write("".join(lines))
                    journal.flush()
                progress(before + done, total)
            os.fsync(rec.fileno())
        before += len(images)


def _resume(partial: Path, name: str) -> Tuple[int, int]:
    """How many records are surely whole, and where the next one goes; everything behind that is cut off."""
    rec, idx, tsv = (partial / f"{name}.{kind}" for kind in ("rec", "idx", "tsv"))
    if not (rec.exists() and idx.exists() and tsv.exists()):
        return 0, 0
    lines = [path.read_bytes().split(b"\n")[:-1] for path in (idx, tsv)]
    done = max(0, min(map(len, lines)) - 1)  # where the last one ends is written nowhere, so it is packed again
    offset = int(lines[0][done].split(b"\t")[1]) if lines[0] else 0
    for path, kept in zip((idx, tsv), lines):
        os.truncate(path, sum(len(line) + 1 for line in kept[:done]))
    os.truncate(rec, offset)
    return done, offset


def _write(rec: BinaryIO, data: Bytes) -> None:
    """All of it: one call may write less than it was given."""
    written = rec.write(data)
    while written < len(data):
        written += rec.write(data[written:])


def _packed(executor: ThreadPoolExecutor, workers: int, folder: Path, images: Sequence[Image], keys: np.ndarray,
            done: int) -> Iterator[_Chunk]:
    """The records from key ``done`` on, in their order, as the threads finish them; only a few are held at a time."""
    waiting: Deque[Future[_Chunk]] = deque()
    # Filled again and again: fresh memory would have to be cleared by the system for every image.
    buffers = [bytearray() for _ in range(2 * workers + 2)]
    try:
        for start in range(done, len(keys), CHUNK):
            wanted = [(key, images[keys[key]]) for key in range(start, min(start + CHUNK, len(keys)))]
            waiting.append(executor.submit(_read_chunk, str(folder), wanted, buffers.pop()))
            if len(waiting) > 2 * workers:
                chunk = waiting.popleft().result()
                yield chunk
                buffers.append(chunk.buffer)
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _read_chunk(folder: str, wanted: List[Tuple[int, Image]], buffer: bytearray) -> _Chunk:
    """Reads images into ``buffer``, each where it belongs, and puts the frames of records around them."""
    needed = sum(frame_bytes(image.bytes) for _, image in wanted)
    if len(buffer) < needed:
        buffer = bytearray(needed)
    view = memoryview(buffer)
    chunk = _Chunk(buffer, [], [], [])
    begin = end = 0
    for key, image in wanted:
        frame = view[end:end + frame_bytes(image.bytes)]
        chunk.digests.append(_read(f"{folder}/{image.path}", frame[FRAME_BYTES:FRAME_BYTES + image.bytes]))
        if frame_in_place(frame, key, image.label, image.bytes):
            chunk.sizes.append(len(frame))
        else:  # an image in a million
            record = encode_image(key, image.label, bytes(frame[FRAME_BYTES:FRAME_BYTES + image.bytes]))
            chunk.pieces.extend((view[begin:end], record))
            chunk.sizes.append(len(record))
            begin = end + len(frame)
        end += len(frame)
    chunk.pieces.append(view[begin:end])
    return chunk


def _read(path: str, target: memoryview) -> bytes:
    """Fills ``target`` with the image file, which is as long; returns its SHA-256."""
    again = "extract its archive again"
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            size = os.readv(descriptor, [target, bytearray(1)])
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); {again}, then give the same command") from error
    if size != len(target):
        raise UserError(f"{path}: changed while it was packed; leave the folder alone and give the same command again")
    fault = jpeg.image_fault(target)
    if fault:
        raise UserError(f"{path}: is {fault}; {again}, then give the same command")
    if size > LARGEST_BYTES:
        raise UserError(f"{path}: has {size} bytes, too many for a record; {again}, then give the same command")
    return hashlib.sha256(target).digest()


def _finish(partial: Path, listed: Source, settings: Dict[str, Any]) -> None:
    """Writes the class list and the record of the packing, in this order; then all is there under names of its own."""
    text = "".join(f"{name}\n" for name in listed.classes)
    (partial / packing_list.CLASSES).write_text(text, encoding="utf-8", errors="surrogateescape")
    lists = {name: packing_list.fingerprint(partial / name) for name in (packing_list.CLASSES, *packing_list.LISTS)}
    record = dict(settings, rn50=rn50.__version__, lists=lists)
    temporary = partial / f"{packing_list.RECORD}.partial"
    temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    temporary.replace(partial / packing_list.RECORD)

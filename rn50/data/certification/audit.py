"""Check every record of a split, for ``rn50 verify``: its container, line of the index, label and image, and
its agreement with the packing list.

``audit`` does it, for ``certify.py``. Threads read the .rec file in chunks of about 8 MiB and check the
records in them (``AuditedSplit.read``). ``audit`` takes the chunks in order, computes the SHA-256 of the file
and gathers the findings. So the file is read only once.
"""

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rn50 import files
from rn50.data import jpeg, recordio
from rn50.data.certification.finding import DataFinding, DataFindings
from rn50.data.packing.packing_list import Entry
from rn50.data.workers import in_order

CHUNK_BYTES = 8 << 20
"""Size of the part of the file that a thread reads and checks at a time."""
DIGEST_BYTES = 32
"""Size of a SHA-256."""


class _Chunk(NamedTuple):
    """A part of the .rec file, and the findings about the records in it."""

    raw: bytes
    """The bytes of the part."""
    records: int
    """Number of records in it."""
    faults: list[DataFinding]
    remarks: list[DataFinding]


def _pread(descriptor: int, count: int, offset: int) -> bytes:
    """Return ``count`` bytes at ``offset``, or fewer at the end of the file. A single call of ``os.pread``
    may return fewer at any place."""
    pieces = []
    while piece := os.pread(descriptor, count, offset):
        pieces.append(piece)
        count, offset = count - len(piece), offset + len(piece)
    return b"".join(pieces)


class AuditedSplit:
    """The files of a split, ``name``.rec and ``name``.idx in ``folder``, and the labels and digests that
    ``audit`` reads from them."""

    entries: list[Entry] | None = None
    """The packing list, in the order of the index, which ``certify.py`` sets; None: there is none."""

    def __init__(self, folder: Path, name: str, classes: int, source: str = "") -> None:
        """Read the index. ``classes`` is the number of classes; ``source``, for the remedies, is the folder
        that was packed, empty if nobody knows it. Raises UserError if the file is not an index."""
        self.name, self.classes = name, classes
        self.rec, self.idx = folder / f"{name}.rec", folder / f"{name}.idx"
        self.index = recordio.index_bytes(self.idx)
        self.keys, self.offsets = recordio.parse_index(self.idx, self.index)
        self.records = len(self.keys)
        """Number of lines of the index."""
        self.labels = np.full(self.records, -1, np.int64)
        """The label of each record, in the order of the index; -1: it is not a class index."""
        self.digests = np.zeros((self.records, DIGEST_BYTES), np.uint8)
        """SHA-256 of the image of each record, in the order of the index; zeros: the record has no image."""
        unknown = "pack the data again, or take them from another copy"
        self.remedy = f"pack it again: rn50 pack {source}" if source else unknown

    def read(self, descriptor: int, decode: bool, positions: np.ndarray, bounds: np.ndarray) -> _Chunk:
        """Read the .rec file from byte ``bounds[0]`` to byte ``bounds[-1]`` and check the records there.

        The record in line ``positions[i]`` of the index lies from byte ``bounds[i]`` to byte ``bounds[i +
        1]``. ``positions`` is empty if no record of the index lies there. With ``decode`` the images are
        decoded.
        """
        begin = int(bounds[0])
        chunk = _Chunk(_pread(descriptor, int(bounds[-1]) - begin, begin), len(positions), [], [])
        # Not ``strict``: a chunk without a record has two bounds and no position.
        for position, start, end in zip(positions.tolist(), bounds[:-1], bounds[1:], strict=False):
            self._check_record(chunk, int(start) - begin, int(end) - begin, position, decode)
        return chunk

    def _check_record(self, chunk: _Chunk, start: int, end: int, position: int, decode: bool) -> None:
        """Check the record in line ``position`` of the index, which lies from ``start`` to ``end`` of
        ``chunk.raw``. Store its label and the digest of its image, and add its faults and remarks to
        ``chunk``."""
        entry = self.entries[position] if self.entries and position < len(self.entries) else None
        image_path = f" ({entry.path})" if entry else ""
        faults_before = len(chunk.faults)

        def fault(kind: str, text: str, remedy: str = self.remedy) -> None:
            chunk.faults.append(DataFinding(kind, self.rec.name, position, f"{text}{image_path}", remedy))

        def remark(kind: str, text: str) -> None:
            chunk.remarks.append(DataFinding(kind, self.rec.name, position, f"{text}{image_path}", ""))

        try:
            record, stop = recordio.decode_record(chunk.raw, start, end)
            header, image = recordio.decode_image(record)
        except ValueError as error:
            fault("container", f"the record {error}")
            return
        if stop < end:
            fault("gap", f"{end - stop} bytes behind it belong to no record of the index")
        is_class = header.is_in(self.classes)
        # A flag above 0 announces an array of so many labels. One label is no fault: MXNet and DALI read it.
        if header.flag > 1 or header.flag and not is_class:
            fault("header", f"announces an array of {header.flag} labels, where one label is wanted")
        key = self.keys[position]
        if header.id != key:
            fault("key", f"has the id {header.id}, and its line in the index the key {key}")
        if not is_class:
            fault("label", f"has label {header.label:g}, no class of [0, {self.classes})")
        else:
            self.labels[position] = int(header.label)
            if entry and header.label != entry.label:
                fault("label", f"has label {header.label:g}, and in the packing list label {entry.label}")
        header_bytes = record[: recordio.IMAGE_START]
        # Look for bits that no check above has read, unless there is a fault already. With a label array the
        # header may hold any label, because nobody reads it.
        is_sound = header.flag == 0 and len(chunk.faults) == faults_before
        if is_sound and header_bytes != recordio.encode_header(header.id, int(header.label)):
            fault("header", f"has the header {header_bytes.hex()}, with a bit that nobody reads set")
        digest = hashlib.sha256(image).digest()
        self.digests[position] = np.frombuffer(digest, np.uint8)
        if entry and digest != entry.sha256:
            fault("content", "the image is not the one that was packed: its SHA-256 differs")
        image_header = jpeg.read_header(image)
        if damage := jpeg.damage_of(image, image_header, decode):
            fault("image", damage, f"replace the image, then {self.remedy}")
        if image_header.is_png:
            remark("PNG", "is a PNG, whatever its name says; DALI decodes it all the same")
        if decode and (orientation := jpeg.orientation_of(image)) > 1:
            remark("orientation", f"has the EXIF orientation {orientation}; a run sees it as it is stored")
        if image_header.components == jpeg.CMYK_COMPONENTS:
            remark("CMYK", "is a JPEG of four colour components (CMYK); DALI turns it into RGB")

    def chunks(self, size: int, faults: DataFindings) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Divide the .rec file of ``size`` bytes into chunks of about ``CHUNK_BYTES``, after a check of the
        index whose faults are added to ``faults``. Yield for each chunk the arguments ``positions`` and
        ``bounds`` of ``read``."""
        keys, offsets = self.keys, self.offsets

        def fault(record: int, text: str) -> None:
            faults.add("index", self.idx.name, record, f"line {record + 1} {text}", self.remedy)

        if self.entries is not None:  # then rn50 pack wrote the index, with the keys 0, 1, 2 ...
            for record in np.flatnonzero(keys != np.arange(len(keys))).tolist():
                fault(record, f"has the key {keys[record]} instead of {record}")
        for record in recordio.repeated(keys):
            fault(record, f"has the key {keys[record]} a second time")
        for record in (np.flatnonzero(np.diff(offsets) <= 0) + 1).tolist():
            previous = offsets[record - 1]
            fault(record, f"points to byte {offsets[record]}, not behind the line before it ({previous})")
        for record in np.flatnonzero(offsets >= size).tolist():
            fault(record, f"points to byte {offsets[record]}, and {self.rec.name} has {size}")
        starts, positions = np.unique(offsets, return_index=True)
        bounds = np.append(starts[starts < size], size)
        if bounds[0]:
            text = f"the first {bounds[0]} bytes belong to no record of the index"
            faults.add("gap", self.rec.name, None, text, self.remedy)
            yield positions[:0], np.array([0, bounds[0]])  # read for the SHA-256 of the file
        first = 0
        while first < len(bounds) - 1:
            # A chunk is of whole records, at least one. It ends with the record that fills ``CHUNK_BYTES``.
            last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + CHUNK_BYTES)))
            last = min(last, len(bounds) - 1)
            yield positions[first:last], bounds[first : last + 1]
            first = last


def audit(
    split: AuditedSplit,
    decode: bool,
    workers: int,
    progress: Callable[[int], None],
    faults: DataFindings,
    remarks: DataFindings,
) -> dict[str, dict[str, object]]:
    """Check every record of ``split``, with ``decode`` also that its image decodes, and add the findings to
    ``faults`` and ``remarks``. Return file name -> {"bytes": size, "sha256": hash} for the .rec and the .idx.

    ``workers`` is the number of threads. ``progress(n)`` reports that n more records were checked. Raises
    ``UserError`` if a file cannot be read at all.
    """
    rec_hash = hashlib.sha256()
    with (
        files.open_regular(split.rec, split.remedy) as stream,
        files.errors_of(split.rec, split.remedy),
        ThreadPoolExecutor(workers) as executor,
        warnings.catch_warnings(),
    ):
        # Pillow warns of damaged EXIF data, which several images of ImageNet have.
        warnings.simplefilter("ignore")
        descriptor = stream.fileno()
        size = os.fstat(descriptor).st_size
        chunks = split.chunks(size, faults)
        futures = (executor.submit(split.read, descriptor, decode, *chunk) for chunk in chunks)
        for chunk in in_order(futures, 2 * workers):
            rec_hash.update(chunk.raw)
            for findings, chunk_findings in ((faults, chunk.faults), (remarks, chunk.remarks)):
                for finding in chunk_findings:
                    findings.add(*finding)
            progress(chunk.records)
    return {
        split.rec.name: {"bytes": size, "sha256": rec_hash.hexdigest()},
        split.idx.name: {"bytes": len(split.index), "sha256": hashlib.sha256(split.index).hexdigest()},
    }

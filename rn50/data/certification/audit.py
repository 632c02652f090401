"""Audit of every record of a split: container, index, label, image header, and agreement with the packing
list.

The file is read once, in parallel; the same pass computes its SHA-256.
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
DIGEST_BYTES = 32


class AuditedSplit:
    """``name``.rec and .idx in ``folder``, with labels of ``classes`` classes, and what ``audit`` finds about
    them."""

    entries: list[Entry] | None = None
    """Packing list, one entry per record."""

    def __init__(self, folder: Path, name: str, classes: int, source: str = "") -> None:
        """Parse the index; ``source`` is the folder that was packed, for the remedies. Raises UserError."""
        self.name, self.classes = name, classes
        self.rec, self.idx = folder / f"{name}.rec", folder / f"{name}.idx"
        self.index = recordio.index_bytes(self.idx)
        self.keys, self.offsets = recordio.parse_index(self.idx, self.index)
        self.records = len(self.keys)
        """Number of lines of the index."""
        self.labels = np.full(self.records, -1, np.int64)
        """In the order of the index; -1 where a record has no valid class index."""
        self.digests = np.zeros((self.records, DIGEST_BYTES), np.uint8)
        """SHA-256 of every image; zeros where no image was found."""
        unknown = "pack the data again, or take them from another copy"
        self.again = f"pack it again: rn50 pack {source}" if source else unknown

    def read(self, descriptor: int, decode: bool, positions: np.ndarray, bounds: np.ndarray) -> "_Chunk":
        """Read from ``bounds[0]`` to ``bounds[-1]``; record ``positions[i]``, if there is one, lies from
        ``bounds[i]`` to ``bounds[i + 1]``."""
        begin = int(bounds[0])
        chunk = _Chunk(_pread(descriptor, int(bounds[-1]) - begin, begin), len(positions), [], [])
        places = zip(positions.tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=False)
        for position, start, end in places:
            self._record(chunk, start - begin, end - begin, position, decode)
        return chunk

    def _record(self, chunk: "_Chunk", start: int, end: int, position: int, decode: bool) -> None:
        """Keep label and digest of one record; add its faults and remarks to ``chunk``."""
        entry = self.entries[position] if self.entries and position < len(self.entries) else None
        named = f" ({entry.path})" if entry else ""
        before = len(chunk.faults)

        def fault(kind: str, text: str, remedy: str = self.again) -> None:
            chunk.faults.append(DataFinding(kind, self.rec.name, position, f"{text}{named}", remedy))

        def remark(kind: str, text: str) -> None:
            chunk.remarks.append(DataFinding(kind, self.rec.name, position, f"{text}{named}", ""))

        try:
            record, stop = recordio.decode_record(chunk.raw, start, end)
            header, image = recordio.decode_image(record)
        except ValueError as error:
            fault("container", f"the record {error}")
            return
        if stop < end:
            fault("gap", f"{end - stop} bytes behind it belong to no record of the index")
        is_class = header.is_in(self.classes)
        # MXNet and DALI take the label of an array of one.
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
        begins = record[: recordio.IMAGE_START]
        clean = header.flag == len(chunk.faults) - before == 0  # beside an array nobody reads the label
        if clean and begins != recordio.encode_header(header.id, int(header.label)):
            fault("header", f"has the header {begins.hex()}, with a bit that nobody reads set")
        digest = hashlib.sha256(image).digest()
        self.digests[position] = np.frombuffer(digest, np.uint8)
        if entry and digest != entry.sha256:
            fault("content", "the image is not the one that was packed: its SHA-256 differs")
        image_header = jpeg.read_header(image)
        if broken := jpeg.damage_of(image, image_header, decode):
            fault("image", broken, f"replace the image, then {self.again}")
        if image_header.is_png:
            remark("PNG", "is a PNG, whatever its name says; DALI decodes it all the same")
        if decode and (turned := jpeg.orientation_of(image)) > 1:
            remark("orientation", f"has the EXIF orientation {turned}; a run sees it as it is stored")
        if image_header.components == jpeg.CMYK_COMPONENTS:
            remark("CMYK", "is a JPEG of four colour components (CMYK); DALI turns it into RGB")

    def stretches(self, size: int, faults: DataFindings) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Add the faults of the index of a file of ``size`` bytes. Yield (positions, bounds) of stretches of
        about ``CHUNK_BYTES``, which together are the file from its byte 0."""
        keys, offsets = self.keys, self.offsets

        def fault(record: int, text: str) -> None:
            faults.add("index", self.idx.name, record, f"line {record + 1} {text}", self.again)

        if self.entries is not None:
            for record in np.flatnonzero(keys != np.arange(len(keys))).tolist():
                fault(record, f"has the key {keys[record]} instead of {record}")
        for record in recordio.repeated(keys):
            fault(record, f"has the key {keys[record]} a second time")
        for record in (np.flatnonzero(np.diff(offsets) <= 0) + 1).tolist():
            before = offsets[record - 1]
            fault(record, f"points to byte {offsets[record]}, not behind the line before it ({before})")
        for record in np.flatnonzero(offsets >= size).tolist():
            fault(record, f"points to byte {offsets[record]}, and {self.rec.name} has {size}")
        inside, positions = np.unique(offsets, return_index=True)
        bounds = np.append(inside[inside < size], size)
        if bounds[0]:
            text = f"the first {bounds[0]} bytes belong to no record of the index"
            faults.add("gap", self.rec.name, None, text, self.again)
            yield positions[:0], np.array([0, bounds[0]])
        first = 0
        while first < len(bounds) - 1:
            last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + CHUNK_BYTES)))
            last = min(last, len(bounds) - 1)
            yield positions[first:last], bounds[first : last + 1]
            first = last


class _Chunk(NamedTuple):
    """A stretch of the file and one thread's findings about its records."""

    raw: bytes
    records: int
    faults: list[DataFinding]
    remarks: list[DataFinding]


def _pread(descriptor: int, count: int, offset: int) -> bytes:
    """Return ``count`` bytes at ``offset``, fewer only at the end of the file. A single ``os.pread`` may
    return less."""
    pieces = []
    while piece := os.pread(descriptor, count, offset):
        pieces.append(piece)
        count, offset = count - len(piece), offset + len(piece)
    return b"".join(pieces)


def audit(
    split: AuditedSplit,
    decode: bool,
    workers: int,
    progress: Callable[[int], None],
    faults: DataFindings,
    remarks: DataFindings,
) -> dict[str, dict[str, object]]:
    """Check every record of ``split``, with ``decode`` also that its image decodes; add what is found to
    ``faults`` and ``remarks``. Return bytes and sha256 of the .rec and the .idx, by file name.

    ``progress(n)`` reports n more records. Raises ``UserError`` if a file cannot be read at all.
    """
    whole = hashlib.sha256()
    with (
        files.open_regular(split.rec, split.again) as stream,
        files.errors_of(split.rec, split.again),
        ThreadPoolExecutor(workers) as executor,
        warnings.catch_warnings(),
    ):
        # Pillow warns of damaged EXIF data, which several images of ImageNet have.
        warnings.simplefilter("ignore")
        descriptor = stream.fileno()
        size = os.fstat(descriptor).st_size
        stretches = split.stretches(size, faults)
        futures = (executor.submit(split.read, descriptor, decode, *stretch) for stretch in stretches)
        for chunk in in_order(futures, 2 * workers):
            whole.update(chunk.raw)
            for findings, more in ((faults, chunk.faults), (remarks, chunk.remarks)):
                for finding in more:
                    findings.add(*finding)
            progress(chunk.records)
    return {
        split.rec.name: {"bytes": size, "sha256": whole.hexdigest()},
        split.idx.name: {"bytes": len(split.index), "sha256": hashlib.sha256(split.index).hexdigest()},
    }

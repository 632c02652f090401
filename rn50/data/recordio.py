"""MXNet RecordIO in pure Python: the format in which JPEGs and labels are packed, written and read without
any framework.

A data set is two files. ``NAME.rec`` is a sequence of records; ``NAME.idx`` holds a line ``key<TAB>byte
offset`` for each record.

A record is one or more parts, each: magic word (uint32), length word (uint32: continuation flag in the upper
3 bits, byte count in the lower 29), the bytes, zeros up to a multiple of 4. The magic word may not stand at a
4-byte boundary inside a part. A record that contains it there is cut into parts at the word, and the word is
left out. The flags of the parts are then 1, 2, ..., 2, 3; the flag of a record in one part is 0. Source:
dmlc-core, include/dmlc/recordio.h and src/recordio.cc.

An image record starts with a 24-byte header (flag uint32, label float32, id uint64, id2 uint64; with flag = n
> 0 then n float32 labels), followed by the JPEG. Source: MXNet 1.9.1, python/mxnet/recordio.py. All numbers
are little-endian.
"""

import contextlib
import os
import struct
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rn50 import files
from rn50.errors import UserError, excerpt

MAGIC = struct.pack("<I", 0xCED7230A)
ALIGNMENT = 4
MAX_RECORD_BYTES = (1 << 29) - 1
WHOLE, FIRST, MIDDLE, LAST = 0, 1, 2, 3
"""Continuation flags: a record in one part, or the first, a middle and the last of several."""

_REMEDY = "copy or pack the file again"
_LARGEST_INDEX = 1 << 32
_LARGEST_NUMBER = np.iinfo(np.int64).max
_MAGIC_WORD = int.from_bytes(MAGIC, "little")
_PART = struct.Struct("<4sI")
_HEADER = struct.Struct("<IfQQ")
IMAGE_START = _HEADER.size
"""Position of the image in a record without a label array."""


class Header(NamedTuple):
    """The header of an image record."""

    flag: int  # 0, or the number of labels that stand between header and image
    label: float  # the class index; with flag > 0 the first of those labels
    id: int
    id2: int

    def is_in(self, classes: int) -> bool:
        """Return whether the label is a class: a whole number in [0, ``classes``)."""
        return 0 <= self.label < classes and self.label.is_integer()


def repeated(values: np.ndarray) -> list[int]:
    """Return the positions of values that stand at an earlier position too."""
    # As in every index of rn50 pack and MXNet; this takes a hundredth of the time.
    if (np.diff(values) > 0).all():
        return []
    _, first = np.unique(values, return_index=True)
    return np.setdiff1d(np.arange(len(values)), first).tolist()


def _aligned_magic(record: bytes) -> list[int]:
    """Return the positions of the magic word at 4-byte boundaries of ``record``."""
    words = np.frombuffer(record, "<u4", count=len(record) // ALIGNMENT)
    return (np.flatnonzero(words == _MAGIC_WORD) * ALIGNMENT).tolist()


def encode_record(record: bytes) -> bytes:
    """Return the bytes of ``record`` in a .rec file, padding included.

    Raises ``ValueError`` above 2**29 - 1 bytes, the limit of the length word.
    """
    if len(record) > MAX_RECORD_BYTES:
        raise ValueError(f"a record holds at most {MAX_RECORD_BYTES} bytes, this one has {len(record)}")
    starts = [0] + [position + len(MAGIC) for position in _aligned_magic(record)]
    ends = [start - len(MAGIC) for start in starts[1:]] + [len(record)]
    flags = [WHOLE] if len(starts) == 1 else [FIRST] + [MIDDLE] * (len(starts) - 2) + [LAST]
    pieces: list[bytes] = []
    for flag, start, end in zip(flags, starts, ends, strict=True):
        pieces += (_PART.pack(MAGIC, flag << 29 | end - start), record[start:end])
    return b"".join((*pieces, bytes(-len(record) % ALIGNMENT)))


def encode_header(key: int, label: float) -> bytes:
    """Return the header of an image with one label; ``key`` is its id."""
    return _HEADER.pack(0, label, key, 0)


def encode_image(key: int, label: float, image: bytes) -> bytes:
    """Return the record of an image (its JPEG bytes) as in a .rec file; ``key`` becomes the id of its header.

    Equal to ``encode_record(mx.recordio.pack(IRHeader(0, label, key, 0), image))``; raises ``ValueError``
    where that does.
    """
    return encode_record(encode_header(key, label) + image)


def image_bytes(size: int) -> int:
    """Return the bytes that an image of ``size`` bytes occupies in a .rec file if it need not be cut."""
    return _PART.size + IMAGE_START + size + -size % ALIGNMENT


def _parts(read: Callable[[int, int], bytes], begin: int) -> Iterator[tuple[int, bytes]]:
    """Yield continuation flag and bytes of each part of the record that starts at ``begin``.

    ``read(offset, count)`` returns that many bytes of the file, fewer at its end. Raises ``ValueError``, with
    the reason, where they are no record.
    """
    position, flag = begin, FIRST
    while flag not in (WHOLE, LAST):
        header = read(position, _PART.size)
        if len(header) < _PART.size:
            raise ValueError(f"ends after {len(header)} bytes of the 8 before a part")
        magic, length_word = _PART.unpack(header)
        flag, length = length_word >> 29, length_word & MAX_RECORD_BYTES
        first = position == begin
        no_start = "does not start as a record does"
        if magic != MAGIC:
            raise ValueError(no_start if first else "has a part that does not start as one does")
        if first and flag not in (WHOLE, FIRST):
            raise ValueError(f"{no_start}: continuation flag {flag} where a record begins")
        if not first and flag not in (MIDDLE, LAST):
            raise ValueError(f"has a part with continuation flag {flag} where a record goes on")
        part = read(position + _PART.size, length)
        if len(part) < length:
            raise ValueError(f"says {length} bytes where {len(part)} are left")
        yield flag, part
        position += _PART.size + length + -length % ALIGNMENT


def decode_record(data: bytes, begin: int, end: int) -> tuple[bytes, int]:
    """Return the record that starts at ``begin`` of ``data``, and its end, padding included, which is at most
    ``end``.

    Raises ``ValueError``, with the reason, if the bytes there are not what ``encode_record`` writes.
    """
    parts: list[bytes] = []
    position = begin
    for flag, part in _parts(lambda offset, count: data[offset : min(offset + count, end)], begin):
        if flag in (FIRST, MIDDLE) and len(part) % ALIGNMENT:
            raise ValueError("is cut where the magic word cannot have stood")
        if _aligned_magic(part):
            raise ValueError("holds the magic word, at which it should have been cut")
        parts.append(part)
        position += _PART.size + len(part)
    padding = -len(parts[-1]) % ALIGNMENT
    if data[position : min(end, position + padding)] != bytes(padding):
        raise ValueError("is not filled up with zeros")
    return MAGIC.join(parts), position + padding


def decode_header(record: bytes) -> Header:
    """Return the header of an image record. Raises ``ValueError`` if the record is too short for one."""
    if len(record) < IMAGE_START:
        raise ValueError(f"has {len(record)} bytes, an image record at least {IMAGE_START}")
    return Header(*_HEADER.unpack_from(record))


def decode_image(record: bytes) -> tuple[Header, bytes]:
    """Return header and image of an image record; with a label array, its first label. Raises ``ValueError``
    if the record is too short."""
    header = decode_header(record)
    image_start = IMAGE_START + 4 * header.flag
    if len(record) < image_start:
        raise ValueError(f"announces {header.flag} labels and ends before them")
    if header.flag:
        header = header._replace(label=struct.unpack_from("<f", record, IMAGE_START)[0])
    return header, record[image_start:]


class IndexedRecordWriter(contextlib.ExitStack):
    """Writer of ``PREFIX.rec`` and ``PREFIX.idx``, byte for byte as ``mxnet.recordio.MXIndexedRecordIO``
    writes them; a context manager. Raises OSError."""

    def __init__(self, prefix: str | Path) -> None:
        super().__init__()
        with contextlib.ExitStack() as opened:  # closes one if the other cannot be opened
            self._rec = opened.enter_context(open(f"{prefix}.rec", "wb"))
            self._idx = opened.enter_context(open(f"{prefix}.idx", "w", encoding="ascii", newline="\n"))
            self.push(opened.pop_all())

    def write(self, key: int, label: float, image: bytes) -> None:
        """Append an image (its JPEG bytes) under ``key``, which also becomes the id of its header."""
        self._idx.write(f"{key}\t{self._rec.tell()}\n")
        self._rec.write(encode_image(key, label, image))


def read_index(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return keys and byte offsets of an .idx file, in the order of its lines: two int64 arrays of shape
    (records,).

    Raises ``UserError`` for a file that is missing, empty or not an index.
    """
    return parse_index(path, index_bytes(path))


def index_bytes(path: Path) -> bytes:
    """Return the content of an .idx file. Raises ``UserError`` if it cannot be read."""
    return files.read_bytes(path, _LARGEST_INDEX, remedy_for(path, _REMEDY))


def remedy_for(path: Path, otherwise: str) -> str:
    """Return the remedy ``otherwise``, for an index that is missing beside its .rec file with the command
    that makes it."""
    if path.suffix != ".idx" or path.exists() or not path.with_suffix(".rec").exists():
        return otherwise
    return f"{otherwise}, or rn50 verify --write-index {path.parent} makes it from {path.stem}.rec"


def write_index(path: Path) -> None:
    """Write the .idx file of a .rec file, of whose records only the beginnings are read. Keys are the IDs of
    the records, as MXNet's ``im2rec`` has them.

    Raises ``UserError`` if the .rec file is not whole, or the index exists or cannot be written.
    """
    rec, end, lines = path.with_suffix(".rec"), 0, ""
    with files.open_regular(rec, _REMEDY) as stream:
        try:
            content: Any = memoryview(np.memmap(stream, np.uint8, "r"))  # type: ignore[arg-type]
            while end < len(content):
                begin, record = end, b""
                for flag, part in _parts(lambda offset, count: content[offset : offset + count], begin):
                    record += MAGIC * (flag in (MIDDLE, LAST)) + bytes(part[:IMAGE_START])
                    end += _PART.size + len(part) + -len(part) % ALIGNMENT
                lines += f"{decode_header(record).id}\t{begin}\n"
        except ValueError as error:
            raise UserError(rec, f"has no record at byte {end} ({error})", _REMEDY) from error
    files.write(path, lines, files.NOTHING, "free space, or verify a folder of links to the data")


def parse_index(path: Path, text: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return what ``read_index`` returns, from the content ``text`` of ``path``.

    Parses 1.28 million lines in about 0.1 s. Raises ``UserError`` if it is not an index.
    """
    lines = text.count(b"\n") + (not text.endswith(b"\n"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy only warns where the text stops being numbers
            pairs = np.fromstring(text, dtype=np.int64, sep=" ").reshape(lines, 2)
    except (ValueError, DeprecationWarning) as error:
        raise UserError(path, "not an index, which is lines of key<TAB>byte offset", _REMEDY) from error
    if pairs.max() == _LARGEST_NUMBER:  # NumPy takes it for every larger one too
        at = int(pairs.argmax())
        problem = f"not an index, line {at // 2 + 1} holds {excerpt(text.split()[at].decode())}"
        raise UserError(path, problem, _REMEDY)
    if pairs.min() < 0:
        raise UserError(path, "not an index, it holds negative numbers", _REMEDY)
    return pairs[:, 0], pairs[:, 1]


class IndexedRecordReader(contextlib.ExitStack):
    """Random access to the records of a .rec file through its .idx file, by default the one beside it. A
    context manager; may be used from several threads.

    ``keys`` and ``offsets`` are int64 arrays of shape (records,), in the order of the index.
    """

    def __init__(self, rec: Path, idx: Path | None = None) -> None:
        super().__init__()
        self.path = rec
        self.keys, self.offsets = read_index(idx or rec.with_suffix(".idx"))
        self._descriptor = self.enter_context(files.open_regular(rec, _REMEDY)).fileno()

    def __len__(self) -> int:
        return len(self.offsets)

    def named(self, position: int, fault: str) -> str:
        """Return a line that says where a record is and what is wrong with it."""
        return f"{self.path}: record {position} at byte {self.offsets[position]} {fault}"

    def read(self, position: int) -> tuple[Header, bytes]:
        """Return header and image bytes of the record in line ``position`` (from 0) of the index.

        Raises ``UserError`` if no whole record lies at its offset.
        """
        start = int(self.offsets[position])
        where = f"record {position} at byte {start}"

        def read(offset: int, count: int) -> bytes:
            with files.errors_of(self.path, _REMEDY):
                data = os.pread(self._descriptor, count, offset)
            if len(data) < count:
                problem = f"truncated: {where} needs {count} bytes at byte {offset}, {len(data)} are left"
                raise UserError(self.path, problem, _REMEDY)
            return data

        try:
            return decode_image(MAGIC.join(part for _, part in _parts(read, start)))
        except ValueError as error:
            remedy = "copy or pack .rec and .idx again: they are damaged, or do not belong together"
            raise UserError(self.path, f"{where} {error}", remedy) from error

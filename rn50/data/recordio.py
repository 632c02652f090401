"""MXNet RecordIO in pure Python: reader and writer of the format in which JPEGs and labels are packed.

A split is two files. ``NAME.rec`` is a sequence of records. ``NAME.idx``, the index, has a line ``key<TAB>
byte offset`` for each record.

A record consists of one or more parts. A part is: the magic word (uint32), the length word (uint32: the
continuation flag in the upper 3 bits, the number of bytes in the lower 29), the bytes, and zeros up to a
multiple of 4. Inside a part the magic word may not lie at a 4-byte boundary. A record with the magic word at
such a place is cut there into two parts, and the word itself is left out; a reader inserts it again. The
flags of the parts are 1, 2, ..., 2, 3; the flag of a record with a single part is 0. Source: dmlc-core,
include/dmlc/recordio.h and src/recordio.cc.

An image record is a 24-byte header (flag uint32, label float32, id uint64, id2 uint64), then an array of
``flag`` float32 labels, which is empty if the flag is 0, then the JPEG. Source: MXNet 1.9.1,
python/mxnet/recordio.py. All numbers are little-endian.
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
"""The magic word, with which each part begins."""
ALIGNMENT = 4
"""A part begins at a multiple of this number of bytes."""
MAX_RECORD_BYTES = (1 << 29) - 1
"""Largest size that the 29 bits of the length word can express."""
WHOLE, FIRST, MIDDLE, LAST = 0, 1, 2, 3
"""Continuation flags of a part: the only part of its record; the first, a middle or the last of several."""

_REMEDY = "copy or pack the file again"
_LARGEST_INDEX = 1 << 32
"""Limit in bytes of an index that is read into memory; ImageNet's train.idx takes 27 MB."""
_LARGEST_NUMBER = np.iinfo(np.int64).max
"""Largest offset that NumPy can read."""
_MAGIC_WORD = int.from_bytes(MAGIC, "little")
_PART = struct.Struct("<4sI")
"""The words before the bytes of a part: magic word and length word."""
_HEADER = struct.Struct("<IfQQ")
"""The header of an image record: flag, label, id, id2."""
IMAGE_START = _HEADER.size
"""Position of the image in a record without a label array."""


class Header(NamedTuple):
    """The header of an image record."""

    flag: int  # length of the label array between header and image; 0 if there is none
    label: float  # the class index; ``decode_image`` takes it from the label array if there is one
    id: int
    id2: int

    def is_in(self, classes: int) -> bool:
        """Return whether the label is a class index: a whole number in [0, ``classes``)."""
        return 0 <= self.label < classes and self.label.is_integer()


def repeated(values: np.ndarray) -> list[int]:
    """Return the positions at which a value occurs for the second time or more."""
    # The values in every index of rn50 pack and MXNet ascend, so most calls end here. This test takes a
    # hundredth of the time of ``np.unique``.
    if (np.diff(values) > 0).all():
        return []
    _, first_positions = np.unique(values, return_index=True)
    return np.setdiff1d(np.arange(len(values)), first_positions).tolist()


def _aligned_magic(record: bytes) -> list[int]:
    """Return the positions of the magic word at 4-byte boundaries of ``record``."""
    words = np.frombuffer(record, "<u4", count=len(record) // ALIGNMENT)
    return (np.flatnonzero(words == _MAGIC_WORD) * ALIGNMENT).tolist()


def encode_record(record: bytes) -> bytes:
    """Return the bytes that represent ``record`` in a .rec file: its parts, and the padding.

    Raises ``ValueError`` if the record has more than 2**29 - 1 bytes, the limit of the length word.
    """
    if len(record) > MAX_RECORD_BYTES:
        raise ValueError(f"a record holds at most {MAX_RECORD_BYTES} bytes, this one has {len(record)}")
    cuts = _aligned_magic(record)
    starts = [0] + [cut + len(MAGIC) for cut in cuts]
    ends = cuts + [len(record)]
    flags = [WHOLE] if len(starts) == 1 else [FIRST] + [MIDDLE] * (len(starts) - 2) + [LAST]
    pieces: list[bytes] = []
    for flag, start, end in zip(flags, starts, ends, strict=True):
        pieces += (_PART.pack(MAGIC, (flag << 29) | (end - start)), record[start:end])
    # Every part but the last ends at a cut, which is a 4-byte boundary, so only the last needs padding.
    return b"".join((*pieces, bytes(-len(record) % ALIGNMENT)))


def encode_header(key: int, label: float) -> bytes:
    """Return the 24-byte header of an image record with one label. ``key`` is its id."""
    return _HEADER.pack(0, label, key, 0)


def encode_image(key: int, label: float, image: bytes) -> bytes:
    """Return the bytes that represent an image record in a .rec file. ``image`` is a JPEG; ``key`` is the id
    in the header.

    The result equals that of ``encode_record(mx.recordio.pack(IRHeader(0, label, key, 0), image))``. Raises
    ``ValueError`` if the image is too large.
    """
    return encode_record(encode_header(key, label) + image)


def image_bytes(size: int) -> int:
    """Return the number of bytes that the record of an image of ``size`` bytes takes in a .rec file, if the
    image does not contain the magic word at a 4-byte boundary."""
    # -size % 4 is the number of bytes from ``size`` to the next multiple of 4.
    return _PART.size + IMAGE_START + size + -size % ALIGNMENT


def _parts(read: Callable[[int, int], bytes], begin: int) -> Iterator[tuple[int, bytes]]:
    """Yield continuation flag and bytes of each part of the record that starts at byte ``begin`` of a file.

    ``read(offset, count)`` returns ``count`` bytes of the file at ``offset``, or fewer at the end of the
    file. Raises ``ValueError``, with the reason, if the bytes are not a record.
    """
    position, flag = begin, FIRST  # FIRST only lets the loop begin
    while flag not in (WHOLE, LAST):
        header = read(position, _PART.size)
        if len(header) < _PART.size:
            raise ValueError(f"ends after {len(header)} bytes of the 8 before a part")
        magic, length_word = _PART.unpack(header)
        flag, length = length_word >> 29, length_word & MAX_RECORD_BYTES
        is_first = position == begin
        no_start = "does not start as a record does"
        if magic != MAGIC:
            raise ValueError(no_start if is_first else "has a part that does not start as one does")
        if is_first and flag not in (WHOLE, FIRST):
            raise ValueError(f"{no_start}: continuation flag {flag} where a record begins")
        if not is_first and flag not in (MIDDLE, LAST):
            raise ValueError(f"has a part with continuation flag {flag} where a record goes on")
        part = read(position + _PART.size, length)
        if len(part) < length:
            raise ValueError(f"says {length} bytes where {len(part)} are left")
        yield flag, part
        position += _PART.size + length + -length % ALIGNMENT


def decode_record(data: bytes, begin: int, end: int) -> tuple[bytes, int]:
    """Return the record in ``data[begin:end]``, which starts at ``begin``, and the position in ``data`` at
    which it ends, padding included.

    Raises ``ValueError``, with the reason, if the bytes are not those that ``encode_record`` writes.
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
    """Return the header of an image record. Raises ``ValueError`` if the record is shorter than a header."""
    if len(record) < IMAGE_START:
        raise ValueError(f"has {len(record)} bytes, an image record at least {IMAGE_START}")
    return Header(*_HEADER.unpack_from(record))


def decode_image(record: bytes) -> tuple[Header, bytes]:
    """Return header and image of an image record. If the record has a label array, the label in the header is
    the first of the array. Raises ``ValueError`` if the record is too short."""
    header = decode_header(record)
    image_start = IMAGE_START + 4 * header.flag
    if len(record) < image_start:
        raise ValueError(f"announces {header.flag} labels and ends before them")
    if header.flag:
        header = header._replace(label=struct.unpack_from("<f", record, IMAGE_START)[0])
    return header, record[image_start:]


class IndexedRecordWriter(contextlib.ExitStack):
    """Writer of ``PREFIX.rec`` and ``PREFIX.idx``; a context manager. The files are byte for byte those of
    ``mxnet.recordio.MXIndexedRecordIO``. Raises OSError."""

    def __init__(self, prefix: str | Path) -> None:
        super().__init__()
        with contextlib.ExitStack() as opened:  # closes the first file if the second cannot be opened
            self._rec = opened.enter_context(open(f"{prefix}.rec", "wb"))
            self._idx = opened.enter_context(open(f"{prefix}.idx", "w", encoding="ascii", newline="\n"))
            self.push(opened.pop_all())

    def write(self, key: int, label: float, image: bytes) -> None:
        """Append the record of the JPEG ``image``. ``key`` is its key in the index and the id in its
        header."""
        self._idx.write(f"{key}\t{self._rec.tell()}\n")
        self._rec.write(encode_image(key, label, image))


def index_bytes(path: Path) -> bytes:
    """Return the content of an .idx file. Raises ``UserError`` if it cannot be read."""
    return files.read_bytes(path, _LARGEST_INDEX, remedy_for(path, _REMEDY))


def remedy_for(path: Path, otherwise: str) -> str:
    """Return the remedy for the file ``path``, which cannot be read: ``otherwise``. If the file is an index
    that is missing beside its .rec file, the command that makes the index follows."""
    if path.suffix != ".idx" or path.exists() or not path.with_suffix(".rec").exists():
        return otherwise
    return f"{otherwise}, or rn50 verify --write-index {path.parent} makes it from {path.stem}.rec"


def parse_index(path: Path, text: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return keys and byte offsets in ``text``, the content of the .idx file ``path``, in the order of its
    lines: two int64 arrays of shape (records,).

    Parses 1.28 million lines in about 0.1 s. Raises ``UserError`` if the text is not an index.
    """
    lines = text.count(b"\n") + (not text.endswith(b"\n"))  # the last line may lack its end
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy only warns of text that is not a number
            pairs = np.fromstring(text, dtype=np.int64, sep=" ").reshape(lines, 2)
    except (ValueError, DeprecationWarning) as error:
        raise UserError(path, "not an index, which is lines of key<TAB>byte offset", _REMEDY) from error
    if pairs.max() == _LARGEST_NUMBER:  # NumPy also returns this number for every larger number
        position = int(pairs.argmax())
        problem = f"not an index, line {position // 2 + 1} holds {excerpt(text.split()[position].decode())}"
        raise UserError(path, problem, _REMEDY)
    if pairs.min() < 0:
        raise UserError(path, "not an index, it holds negative numbers", _REMEDY)
    return pairs[:, 0], pairs[:, 1]


def read_index(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return keys and byte offsets in an .idx file, as ``parse_index`` does. Raises ``UserError`` for a file
    that is missing, empty or not an index."""
    return parse_index(path, index_bytes(path))


def write_index(path: Path) -> None:
    """Write the .idx file ``path`` from the .rec file beside it. The key of a record is the id in its header,
    as in the files of MXNet's ``im2rec``.

    Only the beginning of each record is read. Raises ``UserError`` if the .rec file is not whole, or if the
    index exists or cannot be written.
    """
    rec, lines = path.with_suffix(".rec"), ""
    end = 0  # position behind the records that were read
    with files.open_regular(rec, _REMEDY) as stream:
        try:
            content: Any = memoryview(np.memmap(stream, np.uint8, "r"))  # type: ignore[arg-type]
            while end < len(content):
                # The first bytes of every part, not of the first part alone: a record may be cut inside its
                # header. At each cut the magic word was left out, so it is put back.
                begin, beginnings = end, []
                for _, part in _parts(lambda offset, count: content[offset : offset + count], begin):
                    beginnings.append(bytes(part[:IMAGE_START]))
                    end += _PART.size + len(part) + -len(part) % ALIGNMENT
                lines += f"{decode_header(MAGIC.join(beginnings)).id}\t{begin}\n"
        except ValueError as error:
            raise UserError(rec, f"has no record at byte {end} ({error})", _REMEDY) from error
    files.write(path, lines, files.NOTHING, "free space, or verify a folder of links to the data")


class IndexedRecordReader(contextlib.ExitStack):
    """Random access to the records of a .rec file through its .idx file; a context manager. Several threads
    may use it at the same time.

    If ``idx`` is None, the .idx file is the one beside the .rec file. ``keys`` and ``offsets`` are int64
    arrays of shape (records,), in the order of the lines of the .idx file.
    """

    def __init__(self, rec: Path, idx: Path | None = None) -> None:
        super().__init__()
        self.path = rec
        self.keys, self.offsets = read_index(idx or rec.with_suffix(".idx"))
        self._descriptor = self.enter_context(files.open_regular(rec, _REMEDY)).fileno()

    def __len__(self) -> int:
        return len(self.offsets)

    def named(self, position: int, fault: str) -> str:
        """Return a line with the file, the number and the offset of a record, and its ``fault``."""
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

"""Is the data set whole? Cheap checks before and after the clock starts; the search for the record behind a pipeline fault."""

import time
from pathlib import Path
from typing import Optional

from rn50.data.recordio import IndexedRecordReader
from rn50.errors import UserError

FILES = ("train.rec", "train.idx", "val.rec", "val.idx")
"""What a data folder holds."""

START_OF_IMAGE = b"\xff\xd8"
START_OF_SCAN = 0xDA
STANDALONE_MARKERS = {0x01, *range(0xD0, 0xD9)}
"""TEM, RST0-RST7 and SOI: markers that no segment length follows (ITU-T T.81, table B.1)."""
START_OF_FRAME = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""SOF0-SOF15; DHT, JPG and DAC lie between them (ITU-T T.81, table B.1)."""
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
"""ImageNet's training set holds one PNG under the name of a JPEG (n02105855_2933), which DALI decodes all the same."""


def preflight(folder: Path) -> None:
    """Check that the four files of the data set are there and not empty.

    Asks the file system for their sizes only: no file of the data set may be opened before the clock starts. Raises
    ``UserError``.
    """
    remedy = f"set DATADIR to a folder with {', '.join(FILES)}, or make the demo data set: rn50 demo-data {folder}"
    for path in (folder, *(folder / name for name in FILES)):
        try:
            size = path.stat().st_size
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}; {remedy}") from error
        if path != folder and size == 0:
            raise UserError(f"{path}: empty; {remedy}")


def check_record_set(rec: Path, idx: Path, expected_samples: int, variable: str) -> None:
    """Check that the index parses and counts ``expected_samples`` and that its first and last records lie whole in ``rec``.

    ``variable`` is the name under which the number is configured: NUMEXAMPLES or NUMVALEXAMPLES. Takes about 0.1 s for ImageNet.
    Raises ``UserError``.
    """
    with IndexedRecordReader(rec, idx) as reader:
        if len(reader) != expected_samples:
            raise UserError(f"{idx}: lists {len(reader)} records, but {variable} is {expected_samples}; "
                            f"set {variable}={len(reader)} or pack the data again")
        # A truncated file lacks the record that lies farthest in it; a truncated index ends in a wrong offset.
        for position in (0, int(reader.offsets.argmax()), len(reader) - 1):
            reader.read(position)


def image_fault(image: bytes) -> Optional[str]:
    """Why ``image`` is no JPEG that a decoder could open, or None. Reads its segments up to the frame header, decodes nothing.

    Source of the format: ITU-T T.81, annex B.
    """
    if image.startswith(PNG_SIGNATURE):
        return None
    if not image.startswith(START_OF_IMAGE):
        return f"no JPEG, it starts with the bytes {image[:4].hex(' ')}" if image else "no JPEG, it is empty"
    position = len(START_OF_IMAGE)
    while position + 4 <= len(image) and image[position] == 0xFF:
        marker = image[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
        elif marker in STANDALONE_MARKERS:
            position += 2
        elif marker in START_OF_FRAME:
            height_and_width = image[position + 5:position + 9]
            return None if len(height_and_width) == 4 and any(height_and_width[2:]) else "a JPEG without a size"
        elif marker == START_OF_SCAN:
            break
        else:
            position += 2 + int.from_bytes(image[position + 2:position + 4], "big")
    return "a JPEG that is damaged or cut short before its frame header"


def find_bad_record(rec: Path, idx: Path, classes: int, time_limit_s: float = 20) -> Optional[str]:
    """One line on the first record that cannot be read, is no JPEG, or has a label that is no whole number in [0, ``classes``).

    Walks the records in the order of the index, for at most ``time_limit_s`` seconds; None where it found nothing wrong by then.
    Raises nothing: it is called to explain another error.
    """
    deadline = time.monotonic() + time_limit_s
    try:
        with IndexedRecordReader(rec, idx) as reader:
            for position in range(len(reader)):
                if time.monotonic() > deadline:
                    return None
                header, image = reader.read(position)
                fault = image_fault(image)
                if not (0 <= header.label < classes and header.label.is_integer()):
                    fault = f"has label {header.label:g}, no class of [0, {classes}); set NUMCLASSES or pack the file again"
                elif fault:
                    fault = f"is {fault}; replace the image and pack the file again"
                if fault:
                    return f"{rec}: record {position} at byte {reader.offsets[position]} {fault}"
    except UserError as error:
        return str(error)
    return None

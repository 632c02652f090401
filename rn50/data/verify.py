"""Is the data set whole? Cheap checks before and after the clock starts; the search for the record behind a pipeline fault."""

import time
from pathlib import Path
from typing import Optional

from rn50.data.jpeg import image_fault
from rn50.data.recordio import IndexedRecordReader
from rn50.errors import UserError

FILES = ("train.rec", "train.idx", "val.rec", "val.idx")
"""What a data folder holds."""


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

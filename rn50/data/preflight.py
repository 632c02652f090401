"""Cheap checks that the data set of a configuration is whole, and the search for a bad record.

Before the clock starts, ``check`` compares sizes of files and opens none. After the clock has started,
``check_record_set`` reads an index. When an input library ends with an error, ``find_bad_record`` looks for
the record that caused it.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rn50 import files
from rn50.benchmark import rules
from rn50.data.jpeg import damage_of
from rn50.data.layout import FILES, OPEN_ONLY
from rn50.data.recordio import Header, IndexedRecordReader, remedy_for, repeated
from rn50.errors import UserError
from rn50.settings.config import Config

DEMO, IMAGENET = "rn50 demo-data", "rn50 pack /path/to/ILSVRC2012"
"""Commands that make a data set; the path of its folder has to follow."""
REPLACE = "replace the image and pack the file again; rn50 verify --full finds every such image"
_CROP_SIDE = 56
"""Largest IMAGE_SIZE, in pixels, for which the demo data set of scale 1 is made. Its images have shorter
sides of 72 to 110 pixels."""


def record_sets(config: Config) -> dict[str, tuple[Path, Path, int, str]]:
    """Return split, "train" or "val" -> (.rec file, .idx file, configured number of records, the variable
    that sets this number)."""
    data, folder = config.data, Path(config.data.folder)
    numbers = {"train": (data.train_samples, "NUMEXAMPLES"), "val": (data.eval_samples, "NUMVALEXAMPLES")}
    return {name: (folder / f"{name}.rec", folder / f"{name}.idx", *numbers[name]) for name in numbers}


def check(config: Config, needed: Sequence[str] = FILES) -> None:
    """Check that the ``needed`` files of the data set of ``config`` exist, are not empty, and that no index
    is too short for the configured number of records. Opens no file. Raises ``UserError``."""
    scale = -(-config.data.image_size // _CROP_SIDE)  # rounded up
    demo = f"rn50 demo-data --scale {scale}" if scale > 1 else DEMO
    check_files(Path(config.data.folder), IMAGENET if config.is_imagenet else demo, needed)
    for _, idx, samples, variable in record_sets(config).values():
        # A line has at least a digit, a tab, a digit and a line break, which the last line may lack.
        if idx.name in needed and idx.stat().st_size < 4 * samples - 1:
            remedy = f"set {variable} or DATADIR to match; rn50 doctor names every value to set"
            raise UserError(idx, f"too short for {samples} records", remedy)


def check_files(folder: Path, make: str = DEMO, needed: Sequence[str] = FILES) -> None:
    """Check that the ``needed`` files of the data set exist and are not empty. ``make`` is a command that
    makes the data set, for the remedy.

    Only asks the file system for their sizes, because no file of the data set may be opened before the clock
    starts. Raises ``UserError``.
    """
    action = "make the demo data set" if make.startswith(DEMO) else "pack it from its images"
    other_folder = f"set DATADIR to a folder with {', '.join(needed)}"
    make_data = f", or {action}: {make} {folder}"
    remedy = other_folder + make_data
    for path in (folder, *(folder / name for name in needed)):
        try:
            stat = path.stat()
        except OSError as error:
            raise UserError(path, error.strerror, remedy_for(path, other_folder) + make_data) from error
        if path != folder:
            files.refuse_irregular(path, stat.st_mode, remedy)
            if stat.st_size == 0:
                raise UserError(path, "empty", remedy)


def refuse_resized(config: Config, short_side: int | None = None) -> None:
    """Raise UserError if SUBMISSION_DIVISION is closed and the images of the data set were resized.

    The file ``layout.OPEN_ONLY`` tells that without being opened. ``short_side`` is that of
    ``certificate.expected``, None before the clock runs.
    """
    if config.run.division != "open" and (short_side or Path(config.data.folder, OPEN_ONLY).exists()):
        remedy = "set SUBMISSION_DIVISION=open, or DATADIR to images packed without --short-side"
        raise UserError(config.data.folder, f"holds resized images, and {rules.UNRESIZED}", remedy)


def check_record_set(rec: Path, idx: Path, expected_samples: int, variable: str) -> None:
    """Check that the index lists ``expected_samples`` records, each once, and that three of them lie whole in
    ``rec``.

    ``variable`` is the variable that sets ``expected_samples``: NUMEXAMPLES or NUMVALEXAMPLES. Takes about
    0.1 s for ImageNet. Raises ``UserError``.
    """
    with IndexedRecordReader(rec, idx) as reader:
        if len(reader) != expected_samples:
            problem = f"lists {len(reader)} records, but {variable} is {expected_samples}"
            raise UserError(
                idx, problem, f"set DATADIR to the data that are meant, or {variable}={len(reader)}"
            )
        if repetitions := repeated(reader.offsets):
            offset = reader.offsets[repetitions[0]]
            problem = f"line {repetitions[0] + 1} names the record at byte {offset} a second time"
            raise UserError(idx, problem, "copy or pack the file again")
        # If the .rec file was truncated, the record with the largest offset is not whole. If the index was
        # truncated, its last line may have a wrong offset.
        for position in (0, int(reader.offsets.argmax()), len(reader) - 1):
            reader.read(position)


def find_bad_record(
    rec: Path, idx: Path, classes: int, suspect: int | None = None, time_limit_s: float = 20
) -> str | None:
    """Return a line that names a bad record and its fault, or None if none was found.

    ``suspect`` is the byte at which a record starts that an input library could not decode: only this record
    is looked at. If ``suspect`` is None or no record starts there, the records are searched in the order of
    the index for at most ``time_limit_s`` seconds.

    A bad record cannot be read, is not a whole JPEG, has several labels, or one that is not a whole number in
    [0, ``classes``). Raises nothing, because it explains another error.
    """
    deadline = time.monotonic() + time_limit_s
    try:
        with IndexedRecordReader(rec, idx) as reader:
            suspects = np.flatnonzero(reader.offsets == suspect).tolist()  # one position, or none
            for position in suspects or range(len(reader)):
                if not suspects and time.monotonic() > deadline:
                    return None
                header, image = reader.read(position)
                damage = damage_of(image, decode=bool(suspects))
                # The input library could not decode a suspect, even if no damage shows here.
                damage = damage or ("does not decode" if suspects else None)
                if fault := label_fault(header, classes) or (f"{damage}; {REPLACE}" if damage else None):
                    return reader.named(position, fault)
    except UserError as error:
        return str(error)
    return None


def label_fault(header: Header, classes: int) -> str | None:
    """Return the reason why a run cannot train with the label of a record, and the remedy; None: it can."""
    if header.flag > 1:
        return f"has {header.flag} labels, and a run takes one; pack the file again"
    if not header.is_in(classes):
        remedy = "set NUMCLASSES or pack the file again"
        return f"has label {header.label:g}, no class of [0, {classes}); {remedy}"
    return None

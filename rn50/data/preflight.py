"""Cheap checks that the data set is whole, before and after the clock starts; search for the record behind a
pipeline fault."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rn50 import files
from rn50.data.jpeg import damage_of
from rn50.data.layout import FILES
from rn50.data.recordio import Header, IndexedRecordReader, remedy_for, repeated
from rn50.errors import UserError
from rn50.settings.config import Config

DEMO, IMAGENET = "rn50 demo-data", "rn50 pack /path/to/ILSVRC2012"
"""Commands that make a data set, without its folder."""
REPLACE = "replace the image and pack the file again; rn50 verify --full finds every such image"


_PIXELS_OF_SCALE = 56
"""Sides of the largest crops for which a generated image of scale 1, 72 to 110 pixels wide, suffices."""


def of(config: Config, needed: Sequence[str] = FILES) -> None:
    """Check as ``preflight`` does, and that no index is too short for the configured number of records. The
    remedy makes the configuration's data."""
    scale = -(-config.data.image_size // _PIXELS_OF_SCALE)
    demo = f"rn50 demo-data --scale {scale}" if scale > 1 else DEMO
    preflight(Path(config.data.folder), IMAGENET if config.is_imagenet else demo, needed)
    for _, idx, samples, variable in record_sets(config).values():
        # A line has at least a digit, a tab, a digit and a line break, which the last may lack.
        if idx.name in needed and idx.stat().st_size < 4 * samples - 1:
            raise UserError(idx, f"too short for {samples} records", f"set {variable} or DATADIR to match")


def record_sets(config: Config) -> dict[str, tuple[Path, Path, int, str]]:
    """Return split -> its .rec, its .idx, the number of its records, and the setting of that number."""
    data, folder = config.data, Path(config.data.folder)
    numbers = {"train": (data.train_samples, "NUMEXAMPLES"), "val": (data.eval_samples, "NUMVALEXAMPLES")}
    return {split: (folder / f"{split}.rec", folder / f"{split}.idx", *n) for split, n in numbers.items()}


def preflight(folder: Path, make: str = DEMO, needed: Sequence[str] = FILES) -> None:
    """Check that the ``needed`` files of the data set exist and are not empty. The command ``make`` makes
    them.

    Asks the file system for their sizes only, because no file of the data set may be opened before the clock
    starts. Raises ``UserError``.
    """
    does = "make the demo data set" if make.startswith(DEMO) else "pack it from its images"
    named, made = f"set DATADIR to a folder with {', '.join(needed)}", f", or {does}: {make} {folder}"
    remedy = named + made
    for path in (folder, *(folder / name for name in needed)):
        try:
            stat = path.stat()
        except OSError as error:
            raise UserError(path, error.strerror, remedy_for(path, named) + made) from error
        if path != folder:
            files.refuse_irregular(path, stat.st_mode, remedy)
            if stat.st_size == 0:
                raise UserError(path, "empty", remedy)


def check_record_set(rec: Path, idx: Path, expected_samples: int, variable: str) -> None:
    """Check that the index lists ``expected_samples`` records, each once, and that the first and last lie
    whole in ``rec``.

    ``variable`` is the setting of that number: NUMEXAMPLES or NUMVALEXAMPLES. Takes about 0.1 s for ImageNet.
    Raises ``UserError``.
    """
    with IndexedRecordReader(rec, idx) as reader:
        if len(reader) != expected_samples:
            problem = f"lists {len(reader)} records, but {variable} is {expected_samples}"
            raise UserError(idx, problem, f"set {variable}={len(reader)} or pack the data again")
        if again := repeated(reader.offsets):
            problem = f"line {again[0] + 1} names the record at byte {reader.offsets[again[0]]} a second time"
            raise UserError(idx, problem, "copy or pack the file again")
        # A truncated file lacks the record that lies farthest in it; a truncated index ends in a wrong
        # offset.
        for position in (0, int(reader.offsets.argmax()), len(reader) - 1):
            reader.read(position)


def find_bad_record(
    rec: Path, idx: Path, classes: int, suspect: int | None = None, time_limit_s: float = 20
) -> str | None:
    """Return a line on the record that starts at byte ``suspect``, which does not decode; else on the first
    bad record.

    A bad record cannot be read, is not a whole JPEG, or has a label that is not a whole number in [0,
    ``classes``). Walks the records in index order for at most ``time_limit_s`` seconds; returns None if it
    found nothing wrong by then. Raises nothing, because it is called to explain another error.
    """
    deadline = time.monotonic() + time_limit_s
    try:
        with IndexedRecordReader(rec, idx) as reader:
            stumbled_over = np.flatnonzero(reader.offsets == suspect).tolist()
            for position in stumbled_over or range(len(reader)):
                if not stumbled_over and time.monotonic() > deadline:
                    return None
                header, image = reader.read(position)
                otherwise = "does not decode" if stumbled_over else None
                damage = damage_of(image, decode=bool(stumbled_over)) or otherwise
                if fault := label_fault(header, classes) or (f"{damage}; {REPLACE}" if damage else None):
                    return reader.named(position, fault)
    except UserError as error:
        return str(error)
    return None


def label_fault(header: Header, classes: int) -> str | None:
    """Return the reason why a run cannot take the label of a record, with the remedy; or None."""
    if header.flag > 1:
        return f"has {header.flag} labels, and a run takes one; pack the file again"
    if not header.is_in(classes):
        remedy = "set NUMCLASSES or pack the file again"
        return f"has label {header.label:g}, no class of [0, {classes}); {remedy}"
    return None

"""``rn50 verify``: ``certify`` checks a data set, writes certificate.json, and returns the findings;
``print_findings`` prints them.

``audit.py`` checks each record by itself. This file checks what concerns several records: the lists of ``rn50
pack``, the numbers of images, and images that occur twice.

A finding is a fault or a remark. Data with a fault do not pass. A remark is only for information: ImageNet
itself holds a PNG, CMYK images and images that occur twice.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

import numpy as np

from rn50.data import layout, recordio
from rn50.data.certification import certificate
from rn50.data.certification.audit import AuditedSplit, audit
from rn50.data.certification.certificate import Certificate, ExpectedData
from rn50.data.certification.finding import KEPT, DataFindings
from rn50.data.packing import packing_list
from rn50.errors import UserError
from rn50.files import sha256 as sha256_of
from rn50.printed import Inline, as_json, prints
from rn50.progress import Progress, silent
from rn50.terminal import Terminal

NAMES = ("train", "val")
"""Names of the splits."""
IMAGENET_PER_CLASS = {"train": (732, 1300), "val": (50, 50)}
"""The numbers of images in ImageNet's smallest and largest class. Source: Russakovsky et al., ImageNet Large
Scale Visual Recognition Challenge, 2015."""
CHECK_DATADIR = "check that it is the folder that is meant, then copy or pack the data again"
ANOTHER_COPY = "take it from another copy of the data, or pack them again"
"""Remedies that several findings have."""


class FileFacts(TypedDict):
    """Size and hash of a file."""

    bytes: int
    """Size of the file."""
    sha256: str
    """Its SHA-256."""


class Checked(NamedTuple):
    """Content of ``certificate.json``."""

    passed: bool
    """True if there is no fault."""
    decoded: bool
    """True if every image was decoded (`--full`)."""
    imagenet: bool
    """True if the data passed and have ImageNet's numbers of classes and images."""
    classes: int
    train: int
    """Training images."""
    val: int
    """Validation images."""
    files: Mapping[str, Annotated[Mapping[str, Any], FileFacts]]
    set_sha256: str | None
    """SHA-256 of the output of `sha256sum train.rec train.idx val.rec val.idx`; null if there are faults."""
    faults: DataFindings
    remarks: DataFindings
    short_side: int | None
    """Pixels to which `rn50 pack --short-side` reduced the shorter side of larger images, so that the closed
    division refuses the data; null, and missing in `certificate.json`: the images are unchanged."""


class Certified(NamedTuple):
    """Result of ``rn50 verify``: the content of the certificate, its file, and the numbers that were
    expected."""

    checked: Inline[Checked]  # ``--json`` prints its fields in its place
    certificate: Certificate
    expected: ExpectedData


# What ``rn50 verify --json`` prints.
prints(Certified, lambda r: (r.checked, {"certificate": r.certificate.path}, r.certificate.sha256))


def certify(
    folder: Path,
    decode: bool = False,
    numbers: Mapping[str, int | None] = {},
    workers: int | None = None,
    progress: Progress = silent,
    write_index: bool = False,
) -> Certified:
    """Check the data set in ``folder`` and write its certificate.json, with faults or without, if the folder
    can be written.

    With ``decode`` every image is decoded. ``numbers`` are the expected numbers of "classes", "train" and
    "val"; ``certificate.expected`` supplies a number that is None or missing. ``workers`` is the number of
    threads, by default one for each core that this process may use. ``progress(done, total)`` counts images.
    With ``write_index`` a missing index is first written from its .rec file. Raises ``UserError`` if a file
    cannot be read, or an index cannot be written.
    """
    for path in (folder / name for name in layout.FILES):
        if write_index and path.suffix == ".idx" and not path.exists():
            recordio.write_index(path)
        if not path.is_file():
            remedy = f"give a folder with {', '.join(layout.FILES)} (rn50 pack makes them)"
            problem = "a folder, no file" if path.is_dir() else "no such file"
            raise UserError(path, problem, recordio.remedy_for(path, remedy))
    expected = certificate.expected(folder)
    changes: dict[str, Any] = {name: number for name, number in numbers.items() if number is not None}
    if changes:
        expected = expected._replace(by="the command line", **changes)
    # Findings: ``add`` takes the kind, the file, the number of the record or None, a text and a remedy.
    faults, remarks = DataFindings(), DataFindings()
    packed = packing_list.read_record(folder)  # what rn50 pack recorded; empty if it made no data here
    classes = _checked_lists(folder, packed["lists"], expected, faults)
    splits = []
    for name in NAMES:
        try:
            splits.append(AuditedSplit(folder, name, expected.classes, packed["source"]))
        except UserError as error:
            make_index = f"rn50 verify --write-index {folder} makes it from {name}.rec"
            remedy = f"copy it again, or delete it: {make_index}"
            faults.add("index", f"{name}.idx", None, error.problem, remedy)
    total = sum(split.records for split in splits)
    done = 0

    def advance(records: int) -> None:
        nonlocal done
        done += records
        progress(done, total)

    facts: dict[str, dict[str, object]] = {}  # file name -> size and SHA-256
    for split in splits:
        _read_entries(split, classes, faults)
        facts |= audit(split, decode, workers or len(os.sched_getaffinity(0)), advance, faults, remarks)
        _check_numbers(split, expected, classes, faults)
    if len(splits) == len(NAMES):  # the index of each split could be read
        _find_duplicates(splits, faults, remarks)
    for name, expected_facts in expected.files.items():
        if name in facts and expected_facts.get("sha256") != facts[name]["sha256"]:
            text = f"is not what it was when {expected.by} was written: its SHA-256 differs"
            if_meant = f"if the change is meant, delete {expected.by} and verify again"
            faults.add("changed", name, None, text, f"take it from another copy; {if_meant}")
    passed = not faults.counts
    is_imagenet = passed and expected.is_imagenet
    counts = expected.classes, expected.train, expected.val
    # The next certification expects these hashes, so they must not be those of data with faults.
    kept_facts = facts if passed else expected.files
    set_sha256 = certificate.set_sha256(facts) if passed else None
    side = expected.short_side
    checked = Checked(passed, decode, is_imagenet, *counts, kept_facts, set_sha256, faults, remarks, side)
    # Unchanged images have no ``short_side``, so that their certificate is that of earlier versions.
    content = {name: value for name, value in as_json(checked).items() if name != "short_side" or value}
    return Certified(checked, certificate.write(folder, content), expected)


def _checked_lists(
    folder: Path, lists: dict[str, str], expected: ExpectedData, faults: DataFindings
) -> list[str] | None:
    """Return the class names in classes.txt, or None if there is no such file.

    Adds a fault for each list whose SHA-256 is not that in ``lists``, file name -> SHA-256, and for a number
    of classes that is not the expected one.
    """
    for name, sha256 in lists.items():
        path = folder / name
        if not path.is_file() or sha256_of(path) != sha256:
            text = "is not the list that rn50 pack wrote" if path.is_file() else "is missing"
            faults.add("list", name, None, text, ANOTHER_COPY)
    classes = packing_list.read_classes(folder)
    if classes is not None and len(classes) != expected.classes:
        text = f"names {len(classes)} classes, {expected.classes} are expected"
        faults.add("list", layout.CLASSES, None, text, ANOTHER_COPY)
    return classes


def _read_entries(split: AuditedSplit, classes: list[str] | None, faults: DataFindings) -> None:
    """Read the packing list of a split into ``split.entries``. Add a fault if the list cannot be read, and
    for each entry whose label or path contradicts ``classes``, the class list, which may be None."""
    name = f"{split.name}.tsv"
    try:
        split.entries = packing_list.read_list(split.rec.parent, split.name)
    except UserError as error:
        faults.add("list", name, None, error.problem, ANOTHER_COPY)
    if classes is None:
        return
    remedy = "take classes.txt and the list from another copy of the data, or pack them again"
    for record, entry in enumerate(split.entries or ()):
        label_class = classes[entry.label] if entry.label < len(classes) else None
        # The path has no class folder if the validation folder was flat.
        folder_name, slash, _ = entry.path.partition("/")
        if label_class is None or (slash and folder_name != label_class):
            text = f"{entry.path} has label {entry.label}, which is the class {label_class}"
            faults.add("label", name, record, text, remedy)


def _check_numbers(
    split: AuditedSplit, data: ExpectedData, classes: list[str] | None, faults: DataFindings
) -> None:
    """Add a fault for a number of records that is not the expected one or not that of the packing list, and
    for each class with too few or too many images."""
    idx, entries = split.idx.name, split.entries
    expected = getattr(data, split.name)
    if split.records != expected:
        missing = expected - split.records
        difference = f"{abs(missing):,} {'fewer' if missing > 0 else 'more'}"
        text = f"lists {split.records:,} records, {difference} than the {expected:,} of {data.by}"
        faults.add("count", idx, None, text, CHECK_DATADIR)
    if entries is not None and len(entries) != split.records:
        # The number of the first record that only one of the two lists has.
        first = min(len(entries), split.records)
        path = f", the first without a record is {entries[first].path}" if first < len(entries) else ""
        text = f"lists {split.records:,} records, and the packing list {len(entries):,}{path}"
        faults.add("count", idx, first, text, CHECK_DATADIR)
    # A label of -1 is no class index, which ``audit`` reports.
    images = np.bincount(split.labels[split.labels >= 0], minlength=data.classes)
    # Data other than ImageNet need an image of each class, unless there are fewer images than classes.
    least = 1 if split.records >= data.classes else 0
    fewest, most = IMAGENET_PER_CLASS[split.name] if data.is_imagenet else (least, split.records)
    allowed = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    remedy = "the labels are not those of the data set: pack it again from class folders, or with --val-truth"
    for label in np.flatnonzero((images < fewest) | (images > most)).tolist():
        class_name = f" ({classes[label]})" if classes and label < len(classes) else ""
        text = f"label {label}{class_name} has {images[label]} images, where {allowed} belong to a class"
        faults.add("classes", split.rec.name, None, text, remedy)


def _find_duplicates(splits: Sequence[AuditedSplit], faults: DataFindings, remarks: DataFindings) -> None:
    """Add a remark for each image that occurs earlier in the same or the other split. Add a fault if these
    are more than a twentieth of all images.

    ``splits`` are training and validation; the images of both are numbered in this order. Images are equal if
    their digests, SHA-256 as rows of 32 bytes, are equal.
    """
    digests = np.concatenate([split.digests for split in splits])
    labels = np.concatenate([split.labels for split in splits])
    train_images = splits[0].records

    def file_and_record(image: int) -> tuple[str, int]:
        """Return the .rec file of an image, and the number of its record there."""
        return ("train.rec", image) if image < train_images else ("val.rec", image - train_images)

    is_present = digests.any(axis=1)  # a record without an image has a digest of zeros
    # Sorted by their first eight bytes, equal digests are neighbours: it does not happen by chance that
    # different digests agree in eight bytes.
    order = np.lexsort(digests.T[:8])
    equals_next = (digests[order[1:]] == digests[order[:-1]]).all(axis=1) & is_present[order[1:]]
    original_of: dict[int, int] = {}  # number of a duplicate -> number of the first image that equals it
    for position in np.flatnonzero(equals_next).tolist():
        earlier, later = sorted(order[position : position + 2].tolist())
        original = original_of.setdefault(later, original_of.get(earlier, earlier))
        original_file, original_record = file_and_record(original)
        text = f"is the same image as record {original_record} of {original_file}"
        if labels[original] != labels[later]:
            text += f", with label {labels[later]} here and {labels[original]} there"
        remarks.add("duplicate", *file_and_record(later), text)
    duplicates = int(equals_next.sum())
    if duplicates * 20 > len(labels):
        text = f"{duplicates:,} of all {len(labels):,} images are there twice"
        remedy = "an archive was unpacked twice, or a set is in both files; pack again from a fresh folder"
        faults.add("duplicates", splits[0].rec.name, None, text, remedy)


def print_findings(verdict: Certified, console: Terminal) -> None:
    """Print a line for each finding, faults last, then the verdict."""
    checked, expected = verdict.checked, verdict.expected
    for heading, findings in (("remark", checked.remarks), ("FAULT", checked.faults)):
        for finding in findings.kept:
            console.print(f"{heading}  {finding}")
        for kind, count in findings.counts.items():
            if count > KEPT:
                console.print(f"{heading}  and {count - KEPT:,} more of the kind '{kind}'")
    numbers = f"{expected.train:,} + {expected.val:,} images of {expected.classes:,} classes"
    numbers += f", shorter side {checked.short_side}: open division only" if checked.short_side else ""
    if checked.passed:
        depth = "image decoded" if checked.decoded else "header read; --full decodes the images too"
        other_source = f"as {expected.by} says; not the benchmark's data set"
        source = "ImageNet's numbers" if checked.imagenet else other_source
        console.print(f"whole: {numbers} ({source}); every {depth}")
    else:
        total = f"{sum(checked.faults.counts.values()):,} faults"
        console.print(f"at fault: {total}; {numbers} were expected ({expected.by})")
    if verdict.certificate.path:
        console.print(f"{verdict.certificate.path}: sha256 {verdict.certificate.sha256}")

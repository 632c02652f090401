"""Verbs on data sets: make the demo data set, pack, unpack, verify, and look at a batch."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rn50.cli import group
from rn50.cli.group import PATH, flag, option
from rn50.cli.numbers import MOST_IMAGES, MOST_WORKERS, Whole
from rn50.errors import Status
from rn50.progress import counting
from rn50.terminal import Terminal, print_json, say

if TYPE_CHECKING:
    from rn50.data.packing.packing_list import Packed

verb = group.main.under("Set up and data")
cleaned_up = group.main.under("Set up and data", group.CleanedUpVerb)


@cleaned_up("demo-data", "Generate the demo data set", "rn50 demo-data data/demo")
@click.argument("folder", type=PATH)
@option("--seed", "Seed of the images.", default=1, type=Whole(0, 2**32 - 1))
@flag("--tune", "Write a validation set of other images, to choose hyperparameters on.")
@option(
    "--scale",
    "Multiply the pixels a side, of which the shorter one has 72 to 110; 4 suits networks of 224x224.",
    default=1,
    type=Whole(1, 16),
)
@group.as_json("rn50.data.demo.dataset.Generated")
def demo_data(folder: Path, seed: int, tune: bool, scale: int, as_json: bool) -> None:
    """Generate the demo data set (10 classes, 6,000 + 2,000 JPEGs) and pack it as RecordIO into FOLDER."""
    from rn50.data.demo import dataset

    with counting("generating the demo data set") as progress:
        settings = dataset.Settings(seed=seed, val_split="tune" if tune else "val", scale=scale)
        dataset.generate(folder, settings, progress=progress)
    if as_json:
        print_json(dataset.Generated(folder, seed, settings.val_split, scale))


@cleaned_up("pack", "Pack ImageNet's folders as RecordIO", "rn50 pack /data/ILSVRC2012 /data/imagenet")
@click.argument("source", type=PATH)
@click.argument("folder", metavar="OUT", type=PATH)
@option("--seed", "Seed of the order of the records.", default=0, type=Whole(0, 2**32 - 1))
@option(
    "--val-truth",
    "The classes of a flat val folder: the official ground truth (with meta.mat beside it), Kaggle's list, "
    "or lines of name and class [default: the development kit or the list in SOURCE or beside it].",
    type=PATH,
)
@option("--short-side", "Reduce larger images to so many pixels of the shorter side.", type=Whole(32, 1024))
@option("--workers", "Processes; more for slow storage [default: cores].", type=Whole(1, MOST_WORKERS))
@group.as_json("rn50.data.packing.packing_list.Packed")
def pack(source: Path, folder: Path, val_truth: Path | None, as_json: bool, **options: Any) -> None:
    """Pack the images of SOURCE/train/<class> and SOURCE/val as RecordIO into OUT, in shuffled order.

    The bytes of the images stay as they are. A label is the place of its class among the sorted class names.
    If it is interrupted, the same command continues where it stopped.

    With --short-side, an image whose shorter side has more pixels is replaced by a smaller JPEG of quality
    95, which takes less time to decode. SUBMISSION_DIVISION=closed refuses such data.
    """
    from rn50.data.packing import pack as packer
    from rn50.data.packing import packing_list

    with counting("packing") as progress:
        packed = packer.pack(source, folder, truth=val_truth, progress=progress, **options)
    # Say so if "class10" sorts before "class2", which a person would label otherwise.
    for line in packing_list.surprises(packing_list.read_classes(folder) or ()):
        say(line, err=True)
    resized = f", shorter side {options['short_side']}: open division only" if options["short_side"] else ""
    _print_numbers(packed, f"{resized}; rn50 verify {folder} looks at every one", as_json)


@cleaned_up("unpack", "Unpack RecordIO into class folders", "rn50 unpack /data/imagenet /data/folders")
@click.argument("source", metavar="DIR", type=PATH)
@click.argument("folder", metavar="OUT", type=PATH)
@option("--workers", "Threads [default: cores].", type=Whole(1, MOST_WORKERS))
@group.as_json("rn50.data.packing.packing_list.Packed")
def unpack(source: Path, folder: Path, workers: int | None, as_json: bool) -> None:
    """Write the images of the records in DIR into class folders of OUT: rn50 pack the other way.

    If it is interrupted, the same command continues where it stopped.
    """
    from rn50.data.packing import unpack as unpacker

    with counting("unpacking") as progress:
        unpacked = unpacker.unpack(source, folder, workers, progress)
    _print_numbers(unpacked, "", as_json)


def _print_numbers(packed: "Packed", next_step: str, as_json: bool) -> None:
    """Print the numbers of images and classes, as JSON or as a line that ends in ``next_step``."""
    numbers = f"{packed.train:,} + {packed.val:,} images of {packed.classes:,} classes"
    print_json(packed) if as_json else say(f"{packed.folder}: {numbers}{next_step}")


@verb("verify", "Check a data set and write its certificate", "rn50 verify /data/imagenet --full")
@click.argument("folder", metavar="DIR", type=PATH)
@flag("--full", "Decode every image too, not only its headers.")
@option("--classes", "Classes there ought to be.", type=Whole(1, MOST_IMAGES))
@option("--train", "Training images there ought to be.", type=Whole(1, MOST_IMAGES))
@option("--val", "Validation images there ought to be.", type=Whole(1, MOST_IMAGES))
@flag("--write-index", "First write the .idx of a .rec that has none.")
@option("--workers", "Threads [default: cores].", type=Whole(1, MOST_WORKERS))
@group.as_json("rn50.data.certification.certify.Certified")
def verify(
    folder: Path, full: bool, write_index: bool, workers: int | None, as_json: bool, **numbers: int | None
) -> None:
    """Look at every record of DIR and write what was found as certificate.json beside the data.

    It looks at container and index, numbers, labels, headers of the images, duplicates, SHA-256 of every
    file. The numbers expected are those of an earlier certificate, of rn50 pack or rn50 demo-data, else
    ImageNet's. A run reads the certificate and refuses data at fault.

    Exit status: 0 whole, 1 faults, 2 it could not be looked at.
    """
    from rn50.data.certification import certify

    with counting("verifying") as progress:
        verdict = certify.certify(folder, full, numbers, workers, progress, write_index)
    print_json(verdict) if as_json else certify.print_findings(verdict, Terminal())
    if verdict.certificate.not_kept:
        say(verdict.certificate.not_kept, err=True)
    sys.exit(Status.SUCCESS if verdict.checked.passed else Status.FAULT)


@verb("data", "Look at what training sees", "rn50 data show DEMO_CPU -o batch.png", cls=group.Verbs)
def data_group() -> None:
    """Look at a data set as training sees it."""


@data_group.verb("show", "Draw a training batch, augmented", "rn50 data show DEMO_CPU -o batch.png")
@group.config_with_values
@group.output("Write the picture there, a PNG.", required=True)
@option("--seed", "Seed of order, crops and mirroring.", default=1, type=Whole(0, 2**31 - 1))
@group.as_json("rn50.data.pipeline.shown_batch.Drawn")
def data_show(name: str | None, values: tuple[str, ...], output: Path, seed: int, as_json: bool) -> None:
    """Draw one training batch of CONFIG as the network sees it, with its labels: cropped, resized and
    mirrored by the pipeline of a run. Normalisation is undone, so that it can be looked at.
    """
    from rn50.cli.ranks import configured
    from rn50.data import preflight
    from rn50.data.pipeline import shown_batch

    config = configured(name, values)
    preflight.check(config)
    drawn = shown_batch.draw(config, seed, output)
    normalised = f"the network sees (x - mean) / std, mean {drawn.mean}, std {drawn.std} of red, green, blue"
    line = f"{output}: {len(drawn.labels)} training images, as x = 0 to 255; {normalised}"
    print_json(drawn) if as_json else say(line)

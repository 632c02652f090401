"""Time three input pipelines that make training batches of 224x224 from ImageNet-like JPEGs on the CPU: ours,
MXNet's ImageRecordIter, and PyTorch's DataLoader with Pillow.

    python benchmarks/cpu_input.py [--images 2000] [--seconds 4] [--rounds 5] [--folder FOLDER]
                                   [--short-side 256]

All pipelines read the same RecordIO file in FOLDER, by default /dev/shm, so that no disk is measured. All
make the same augmentation: a window of 5 to 100 % of the area, aspect 3/4 to 4/3, resized, mirrored with
probability 1/2, normalised. All use a thread or a worker for each core. A pipeline whose library is not
installed is left out.

For comparison, libjpeg-turbo (by OpenCV) decodes whole images in memory and does nothing else; a column has
the ratio to its rate. The last column is the CPU time of an image on all cores, the median of the rounds;
other programs on the machine change it less than the rate. With --short-side every pipeline also reads, in a
row of its own, what ``rn50 pack --short-side`` makes of the images. Each row is measured in a process of its
own, and they take turns in every round. ``rn50 bench input`` measures the stages of our pipeline.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np
import psutil
from rich.table import Table

from rn50 import rates
from rn50.benchmark import rules
from rn50.data import recordio
from rn50.data.pipeline import dali
from rn50.data.pipeline.batches import BatchFormat
from rn50.settings import config as configuration
from rn50.settings import document
from rn50.terminal import Terminal
from tests.support import imagenet_like

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZE, BATCH, CLASSES = 224, 64, 100
CORES = len(os.sched_getaffinity(0))
WARM_UP_S = 1.0
"""Seconds that a pipeline runs before it is timed."""
NOT_INSTALLED = 4
"""Exit status of a process if the library of its pipeline is missing."""
BARE = "bare decode"
"""Name of the row with which the others are compared."""
ON_CPU = BatchFormat(None, "CHW", False)


def configured(folder: pathlib.Path, fused: bool) -> configuration.Config:
    """Return a configuration that reads the packed data in ``folder``; with ``fused`` one operator decodes
    and crops."""
    environment = document.find("DEMO_CPU").sourced({"DATADIR": str(folder)})
    sizes = {"IMAGE_SIZE": SIZE, "EVAL_RESIZE": 256, "BATCHSIZE": BATCH, "NUMCLASSES": CLASSES}
    how = {"CROP_AREA_MIN": rules.CROP_AREA[0], "DALI_THREADS": CORES, "DALI_ROI_DECODE": int(fused)}
    changed = {name: str(value) for name, value in {**sizes, **how}.items()}
    return configuration.from_environment({**environment, **changed})


def in_memory(folder: pathlib.Path) -> list[np.ndarray]:
    """Return the JPEGs of the packed training set in ``folder``, each as uint8 (bytes,)."""
    with recordio.IndexedRecordReader(folder / "train.rec", folder / "train.idx") as reader:
        return [np.frombuffer(reader.read(place)[1], np.uint8) for place in range(len(reader))]


def ours(folder: pathlib.Path, fused: bool) -> Callable[[], int]:
    """Build our pipeline. Return a function, as all the functions below do, that makes a batch and returns
    its number of images."""
    pipeline = dali.build(configured(folder, fused), "train", 0, 1, 1, ON_CPU)

    def batch() -> int:
        pipeline.run()
        return BATCH

    return batch


def bare(folder: pathlib.Path) -> Callable[[], int]:
    """Return a function that decodes all images by libjpeg-turbo, in one thread for each core."""
    import cv2

    cv2.setNumThreads(1)
    images, pool = in_memory(folder), ThreadPoolExecutor(CORES)

    def decode(part: list[np.ndarray]) -> None:
        for image in part:
            cv2.imdecode(image, cv2.IMREAD_COLOR)

    def batch() -> int:
        # All images are one batch, so that the threads rarely wait for each other.
        list(pool.map(decode, [images[core::CORES] for core in range(CORES)]))
        return len(images)

    return batch


def image_record_iter(folder: pathlib.Path) -> Callable[[], int]:
    """Build MXNet's ImageRecordIter."""
    from implementations.mxnet import mx

    names = [f"{what}_{channel}" for what in ("mean", "std") for channel in "rgb"]
    data = mx.io.ImageRecordIter(
        path_imgrec=str(folder / "train.rec"),
        path_imgidx=str(folder / "train.idx"),
        data_shape=(3, SIZE, SIZE),
        batch_size=BATCH,
        shuffle=True,
        preprocess_threads=CORES,
        random_resized_crop=True,
        min_random_area=rules.CROP_AREA[0],
        max_random_area=rules.CROP_AREA[1],
        min_aspect_ratio=rules.CROP_ASPECT[0],
        max_aspect_ratio=rules.CROP_ASPECT[1],
        rand_mirror=True,
        inter_method=1,
        verbose=False,
        **dict(zip(names, (*rules.MEAN, *rules.STD), strict=False)),
    )

    def batch() -> int:
        try:
            next(data).data[0].wait_to_read()
        except StopIteration:
            data.reset()
            return batch()
        return BATCH

    return batch


def torch_loader(folder: pathlib.Path) -> Callable[[], int]:
    """Build PyTorch's DataLoader with Pillow and one worker for each core."""
    import io
    import random

    from PIL import Image
    from torch.utils.data import DataLoader, Dataset

    images = in_memory(folder)
    mean, std = (np.array(channels, np.float32).reshape(3, 1, 1) for channels in (rules.MEAN, rules.STD))

    class Augmented(Dataset):
        """The training images, each decoded, cropped, resized, mirrored and normalised when it is read."""

        def __len__(self) -> int:
            return len(images)

        def __getitem__(self, index: int) -> Any:
            image = Image.open(io.BytesIO(images[index].tobytes())).convert("RGB")
            left, top, width, height = window(*image.size)
            image = image.resize(
                (SIZE, SIZE), Image.Resampling.BILINEAR, (left, top, left + width, top + height)
            )
            pixels = np.asarray(image).transpose(2, 0, 1)
            return (np.ascontiguousarray(pixels[:, :, :: random.choice((1, -1))], np.float32) - mean) / std

    def window(width: int, height: int) -> Any:
        """Return left, top, width and height of a random window in an image."""
        while True:
            area = random.uniform(*rules.CROP_AREA) * width * height
            aspect = np.exp(random.uniform(*np.log(rules.CROP_ASPECT)))
            wide, high = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
            if 0 < wide <= width and 0 < high <= height:
                return random.randint(0, width - wide), random.randint(0, height - high), wide, high

    def for_ever() -> Iterator[Any]:
        """Yield batches of one epoch after another."""
        while True:
            yield from DataLoader(Augmented(), BATCH, shuffle=True, num_workers=CORES, drop_last=True)

    batches = for_ever()
    return lambda: len(next(batches))


PIPELINES: dict[str, Callable[[pathlib.Path], Callable[[], int]]] = {
    "ours, DALI_ROI_DECODE=1": lambda folder: ours(folder, True),
    "ours, DALI_ROI_DECODE=0": lambda folder: ours(folder, False),
    "ImageRecordIter": image_record_iter,
    "PyTorch DataLoader, Pillow": torch_loader,
    BARE: bare,
}
"""Name of a row -> function that builds a pipeline for a folder of packed data."""


def cpu_seconds() -> float:
    """Return the CPU time of this process, of its workers, and of the workers that have ended."""
    process = psutil.Process()
    return sum(sum(part.cpu_times()[:4]) for part in (process, *process.children()))


def measure(pipeline: str, folder: pathlib.Path, seconds: float) -> None:
    """Print the images/s of one pipeline and the CPU milliseconds of an image, and end the process, with
    NOT_INSTALLED if its library is missing."""
    try:
        batch = PIPELINES[pipeline](folder)
    except ModuleNotFoundError:
        sys.exit(NOT_INSTALLED)
    for limit in (WARM_UP_S, seconds):
        images, begin, cpu_before = 0, time.perf_counter(), cpu_seconds()
        while time.perf_counter() - begin < limit:
            images += batch()
        rate = images / (time.perf_counter() - begin)
    print(rate, 1000 * (cpu_seconds() - cpu_before) / images)
    sys.stdout.flush()
    os._exit(0)  # do not wait for threads that still prefetch


def measure_in_a_process(pipeline: str, folder: pathlib.Path, seconds: float) -> Any:
    """Return the images/s of one pipeline and the CPU milliseconds of an image; None if its library is
    missing."""
    options = ["--pipeline", pipeline, "--folder", str(folder), "--seconds", str(seconds)]
    done = subprocess.run([sys.executable, __file__, *options], cwd=str(ROOT), capture_output=True, text=True)
    if done.returncode == NOT_INSTALLED:
        return None
    if done.returncode:
        sys.exit(f"{pipeline}: {done.stderr}")
    return tuple(map(float, done.stdout.split()[-2:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/dev/shm"))
    parser.add_argument("--short-side", type=int)
    parser.add_argument("--pipeline", choices=list(PIPELINES), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.pipeline:
        measure(args.pipeline, args.folder, args.seconds)
    with tempfile.TemporaryDirectory(dir=str(args.folder)) as made:
        source = pathlib.Path(made, "source")
        imagenet_like.make(source, classes=CLASSES, train=args.images // CLASSES, val=1)
        folders: dict[str, pathlib.Path] = {}  # end of the name of a row -> packed data
        sizes = []
        for short_side in (0, args.short_side) if args.short_side else (0,):
            packed = pathlib.Path(made, str(short_side))
            resized = ["--short-side", str(short_side)] if short_side else []
            pack = [sys.executable, "-m", "rn50", "pack", str(source), str(packed), *resized]
            subprocess.run(pack, cwd=str(ROOT), capture_output=True, check=True)
            folders[f", shorter side {short_side}" if short_side else ""] = packed
            sizes.append(f"{(packed / 'train.rec').stat().st_size / args.images / 1000:.0f}")
        rows = {name + end: (name, folders[end]) for name in PIPELINES for end in folders}
        measured: dict[str, list[tuple[float, float]]] = {row: [] for row in rows}
        for _ in range(args.rounds):
            for row in list(measured):
                figures = measure_in_a_process(*rows[row], args.seconds)
                if figures is None:
                    del measured[row]
                else:
                    measured[row].append(figures)
    jpegs = f"JPEGs of {' and '.join(sizes)} KB"
    table = Table(title=f"{SIZE}x{SIZE} from {jpegs}, {CORES} cores, {args.rounds} rounds")
    for column in ("", "images/s", "lowest", "highest", "to bare decode", "CPU ms"):
        table.add_column(column, justify="left" if not column else "right")
    bare_rates = [rate for rate, _ in measured[BARE]]
    for row, figures in measured.items():
        of_row, cpu_ms = zip(*figures, strict=True)
        rate, ratio = rates.of_rounds(of_row), rates.compare(of_row, bare_rates)
        shown_ratio = "" if row == BARE else f"{ratio.median:.2f}"
        shown = *(f"{figure:,.0f}" for figure in rate), shown_ratio, f"{statistics.median(cpu_ms):.2f}"
        table.add_row(row, *shown)
    Terminal().print(table)


if __name__ == "__main__":
    main()

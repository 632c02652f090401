"""Compare the speed of rn50 pack with that of MXNet's im2rec, on the same images and cores, by turns.

    python benchmarks/packing.py [--images 4000] [--rounds 3] [--folder FOLDER]

The benchmark makes a folder of 1000 classes with images of ImageNet's sizes (about 110 KB). In every round it
packs the folder by each of these:

- im2rec: the script of the mxnet package with ``--pass-through`` (no decoding), with a list that is made
  before, in one process and in one process for each core. The time of the same command for a single image,
  that is of starting Python and MXNet, is subtracted;
- rn50 pack: the whole command, which also lists the folder and hashes every image. The time of the command
  for two images is subtracted;

and it verifies the packed files by rn50 verify and rn50 verify --full.

All files are in FOLDER, by default /dev/shm, so that no disk is measured. Before each measurement as much
memory as it needs is written and freed: a virtual machine may have given free memory back to its host, and
getting it again would take longer than packing. Figures are images/s. A ratio is that of two medians.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import mxnet

from rn50.data.packing import imagenet_folder
from tests.support import imagenet_like

ROOT = pathlib.Path(__file__).resolve().parent.parent
IM2REC = pathlib.Path(mxnet.__file__).parent / "tools" / "im2rec.py"


def run(*command: object) -> float:
    """Run a command of Python and return the seconds that it takes."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, *map(str, command)], cwd=ROOT, capture_output=True, check=True)
    return time.perf_counter() - begin


class Im2rec:
    """Packs a training set by MXNet's script. The list of its files is made once; a second list has one
    file."""

    def __init__(self, source: pathlib.Path, folder: pathlib.Path) -> None:
        self._source = source / "train"
        self._lists = {name: folder / name for name in ("all", "one")}
        run(IM2REC, "--list", "--recursive", self._lists["all"], self._source)
        lines = self._lists["all"].with_suffix(".lst").read_text().splitlines(True)
        self._lists["one"].with_suffix(".lst").write_text(lines[0])
        self._images = len(lines)

    def _run(self, name: str, processes: int) -> float:
        """Pack the list ``name`` and return the seconds."""
        seconds = run(IM2REC, "--pass-through", "--num-thread", processes, self._lists[name], self._source)
        self._lists[name].with_suffix(".rec").unlink()
        return seconds

    def __call__(self, processes: int) -> float:
        """Pack the training set. Return the seconds for an image, without the time of starting the script."""
        return (self._run("all", processes) - self._run("one", processes)) / self._images


def take_memory(folder: pathlib.Path, size: int) -> None:
    """Get ``size`` bytes of free memory from the host of a virtual machine, by writing and removing a file in
    memory."""
    file, block = folder / "memory", bytes(1 << 20)
    with file.open("wb", buffering=0) as stream:
        for _ in range(0, size, len(block)):
            stream.write(block)
    file.unlink()


def start(folder: pathlib.Path) -> float:
    """Return the seconds that rn50 pack takes for two images."""
    imagenet_like.make(folder / "two", classes=1, train=1, val=1)
    try:
        return run("-m", "rn50", "pack", folder / "two", folder / "packed")
    finally:
        shutil.rmtree(str(folder / "two"))
        shutil.rmtree(str(folder / "packed"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default="/dev/shm")
    args = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(dir=args.folder) as made:
        folder = pathlib.Path(made)
        source, out = folder / "source", folder / "out"
        imagenet_like.make(source, classes=1000, train=args.images // 1000, val=1)
        listed = imagenet_folder.scan(source)
        count = sum(map(len, listed.images.values()))
        im2rec = Im2rec(source, folder)
        ways = {
            "im2rec, 1 process": lambda: im2rec(1),
            f"im2rec, {cores} processes": lambda: im2rec(cores),
            "rn50 pack": lambda: (run("-m", "rn50", "pack", source, out) - start(folder)) / count,
        }
        rates: dict[str, list[float]] = {name: [] for name in (*ways, "rn50 verify", "rn50 verify --full")}
        for _ in range(args.rounds):
            for name, way in ways.items():
                take_memory(folder, listed.bytes)
                rates[name].append(1 / way())
                if name == "rn50 pack":
                    rates["rn50 verify"].append(count / run("-m", "rn50", "verify", out))
                    rates["rn50 verify --full"].append(count / run("-m", "rn50", "verify", out, "--full"))
                shutil.rmtree(str(out), ignore_errors=True)  # absent after im2rec, which writes elsewhere
    print(f"{count:,} images of {listed.bytes / count / 1000:.0f} KB, {cores} cores, {args.folder}")
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, values in rates.items():
        print(f"{name:22} {medians[name]:9,.0f} images/s  ({min(values):,.0f} to {max(values):,.0f})")
    for name in ways:
        if name.startswith("im2rec"):
            print(f"rn50 pack is {medians['rn50 pack'] / medians[name]:.1f} times {name}")


if __name__ == "__main__":
    main()

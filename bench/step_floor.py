"""What a training step of ResNet-50 costs a device at least, counted: operations, bytes, and the images/s that they allow.

    python bench/step_floor.py --batch 400 --terabytes 4.3 --teraflops 790 [--precision float16] [--size 224] [--json]

Give the rates that were measured on the device, not those of its data sheet. How it counts, and what the versions are:
rn50/throughput/floor.py. No device is needed.
"""

import argparse
import json
import pathlib
import sys
from typing import Any, Dict

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from rich.table import Table

from rn50 import rules
from rn50.terminal import Terminal
from rn50.throughput import floor


def counted(version: str, args: argparse.Namespace) -> Dict[str, Any]:
    """The figures of a version, as plain data."""
    rates = args.terabytes * 1e12, args.teraflops * 1e12
    kernels = floor.kernels(version, args.batch, args.precision, args.size)
    operations, moved = floor.operations_and_bytes(kernels)
    taken = floor.seconds(kernels, *rates)
    kinds = {each.kind: floor.seconds([kernel for kernel in kernels if kernel.kind == each.kind], *rates) for each in kernels}
    return {
        "version": version, "gigaflop_per_image": operations / args.batch / 1e9, "megabytes_per_image": moved / args.batch / 1e6,
        "milliseconds": 1e3 * taken, "images_per_second": args.batch / taken,
        "milliseconds_by_kind": {kind: 1e3 * value for kind, value in kinds.items()},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=400, help="images a step (400)")
    parser.add_argument("--terabytes", type=float, required=True, help="bandwidth of the device's memory in TB/s")
    parser.add_argument("--teraflops", type=float, required=True, help="rate of its matrix multiplications in TFLOP/s")
    parser.add_argument("--precision", choices=sorted(floor.ELEMENT_BYTES), default="float16")
    parser.add_argument("--size", type=int, default=rules.IMAGE_SIZE, help="side of an image (224)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if min(args.batch, args.terabytes, args.teraflops, args.size) <= 0:
        parser.error("--batch, --terabytes, --teraflops and --size must be greater than 0")
    rows = [counted(version, args) for version in floor.VERSIONS]
    if args.json:
        print(json.dumps({**vars(args), "versions": rows}, indent=1))
        return
    table = Table(*("version", "GFLOP/image", "MB/image", "ms a step", "images/s"), *rows[0]["milliseconds_by_kind"])
    for row in rows:
        figures = (f"{row['gigaflop_per_image']:.1f}", f"{row['megabytes_per_image']:.0f}", f"{row['milliseconds']:.1f}",
                   f"{row['images_per_second']:,.0f}", *(f"{value:.1f} ms" for value in row["milliseconds_by_kind"].values()))
        table.add_row(row["version"], *figures)
    Terminal().print(table)


if __name__ == "__main__":
    main()

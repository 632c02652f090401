"""Count operations and bytes of a training step of ResNet-50 v1.5, kernel by kernel, and the least time a
device needs for them.

    python benchmarks/step_floor.py --batch 400 --terabytes 4.12 --teraflops 735 [--precision float16] [--size
    224] [--json]

Give rates measured on the device, not those of its data sheet. No device is needed.

A kernel takes the longer of two times: that of its floating-point operations, and that of moving its bytes
through the device's memory (Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009). A step takes the
sum. Every tensor that a kernel reads or writes counts once as a whole; launches, padding and all-reduces do
not count, nor does the cache unless a version says so. So a step of a large batch takes longer than this. A
step of a small batch, whose tensors stay in the cache, may take less. How well a kernel uses the memory rate
is not counted, but the column "expected" takes the share of the rate that STEP_MODE=graph, compile and fused
reached on one H200: an estimate for another device.
"""

import argparse
import json
import math
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from rich.table import Table

from rn50.benchmark import rules
from rn50.benchmark.network import EXPANSION, STAGES
from rn50.terminal import Terminal

ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
ONE_PASS = {(64, 64), (64, 256), (256, 64), (256, 128), (512, 128)}
"""Inputs and outputs of the 1x1 convolutions of stride 1 in implementations/pytorch/kernels/one_pass.py."""
PLAIN, RELU, LAST = "plain", "ReLU", "last"
"""The operations after the batch norm of a convolution: none, ReLU, or the sum with the shortcut and ReLU."""


class Version(NamedTuple):
    """Numbers of passes over memory in a step. ``forward`` and ``backward`` count passes over one activation,
    by the operations after its batch norm."""

    forward: dict[str, int]
    backward: dict[str, int]
    gradient_sum: int
    """Passes to sum the two gradients of a block's input."""
    index_bytes: int
    """Bytes of the index of the maximum in a pooling window."""
    update_passes: int
    """Passes over all parameters in float32: LARS, and the gradients set to 0 before the step."""
    backwards: bool = False
    """True if the second pass over what batch norm reads twice goes backwards, so that the cache holds the
    end of the first."""
    mask_passes: int = 0
    """Passes over the mask of ReLU at the end of a block, one bit a value."""
    stem: bool = False
    """True if the first batch norm, ReLU and pooling are one kernel forward, and two backward."""
    half_weights: bool = False
    """True if one kernel casts all weights, and another one copies their gradients to float32."""
    one_pass: bool = False
    """True if one kernel computes both gradients of a convolution of ``ONE_PASS`` with its norm's inside."""
    summed: bool = False
    """True if convolutions, but for the first, write the statistics of their outputs."""


# The normalising pass includes ReLU and sum. In the backward pass ReLU's mask is computed again from the
# input. If a shortcut was added, the reducing pass reads the mask from the output and writes the masked
# gradient, which is the shortcut's.
FUSED = Version({PLAIN: 3, RELU: 3, LAST: 4}, {PLAIN: 5, RELU: 5, LAST: 7}, 3, 8, 16)
BACKWARDS = FUSED._replace(backwards=True)
# At the end of a block the forward pass writes a mask of bits. The reducing pass of the backward pass reads
# it instead of the output, and both gradients of the output, which are not summed before.
ONE_SUM = BACKWARDS._replace(backward={**FUSED.backward, LAST: 6}, gradient_sum=1, mask_passes=2)
# Statistics, and one kernel from the input to the pooled output and the indices. Both kernels of the backward
# pass read input, pooled gradient and indices, and the second one writes.
STEM = ONE_SUM._replace(stem=True, index_bytes=1)
# No pass sets gradients to 0.
HALF_WEIGHTS = STEM._replace(half_weights=True, update_passes=15)
# It reads gradient, output and input of a convolution, and writes the gradient of the input.
ONE = HALF_WEIGHTS._replace(one_pass=True)
SUMMED = ONE._replace(summed=True)
VERSIONS = {
    # Batch norm reads its input twice, for statistics and to normalise, and writes once. In the backward pass
    # it reads input and gradient twice and writes once. ReLU and the sum read all their inputs and write. The
    # update has 1 pass to set gradients to 0, 2 for norms, and 13 for five operations.
    "separate": Version({PLAIN: 3, RELU: 5, LAST: 8}, {PLAIN: 5, RELU: 8, LAST: 8}, 3, 8, 16),
    # As a compiler does it: the mask comes from the output, which is kept for the convolution anyway;
    # gradients are summed where the sum is read; indices have one byte.
    "compiled": Version({PLAIN: 3, RELU: 3, LAST: 4}, {PLAIN: 5, RELU: 7, LAST: 7}, 1, 1, 16),
    "fused": FUSED,
    "fused, backwards": BACKWARDS,
    "fused, gradients": ONE_SUM,
    "fused, stem": STEM,
    "fused, half weights": HALF_WEIGHTS,
    "fused, one pass": ONE,
    "fused, statistics": SUMMED,
    # Statistics where a convolution writes, normalisation and its gradient where a convolution reads: only
    # the sum of a block is a separate kernel. In the backward pass the reduction and both gradients of the
    # convolution also read the input of the batch norm. LARS is two kernels: its norms read weights and
    # gradients; the update reads them again and the momentum, and writes weights and momentum.
    "in convolutions": Version({PLAIN: 0, RELU: 0, LAST: 3}, {PLAIN: 3, RELU: 3, LAST: 6}, 1, 1, 8),
}
"""STEP_MODE eager and graph are "separate", compile is "compiled". fused is the last version named so; each
of the others shows the gain of one change over the version before. "in convolutions" does not exist: it would
need changed convolution kernels."""
BUILT = list(VERSIONS)[-2]
"""The version of STEP_MODE=fused."""
SHARES = {"separate": 0.82, "compiled": 0.79, "fused, half weights": 0.80, BUILT: 0.78}
"""Version -> images/s of STEP_MODE=graph, compile, fused without its last two changes, and fused, over the
version's least time, measured on one H200 at 4.12 TB/s and 735 TFLOP/s, float16, batch 400
(docs/measurements.md). By kind of kernel in the first three: convolutions 0.88; norms, ReLU, sums and pooling
0.82, 0.74 and 0.76."""
CACHE = 25_000_000
"""Bytes that the second pass finds in the L2 cache: half of an H100's, because other tensors pass through it
too."""


GROUPS = {
    "convolutions": ("forward", "weights' gradient", "inputs' gradient"),
    "norm, ReLU, sum": ("batch norm, ReLU, sum",),
    "pooling": ("pooling",),
    "update": ("casts", "update"),
}
"""Columns of the printed table -> kinds of kernels. The classifier counts as a convolution."""


class Kernel(NamedTuple):
    """One kernel, or several that do one job. ``operations`` counts a multiplication and an addition as
    two."""

    layer: str
    kind: str
    operations: int
    bytes: int


class Convolution(NamedTuple):
    """A convolution without bias of ``inputs`` x ``side`` x ``side``, followed by batch norm and then by
    ``then``."""

    name: str
    inputs: int
    outputs: int
    kernel: int
    stride: int
    side: int
    then: str

    @property
    def side_after(self) -> int:
        """Side of the output: the quotient rounded up, because the padding is half of the kernel."""
        return math.ceil(self.side / self.stride)


def convolutions(image_size: int, width: float = 1.0) -> Iterator[Convolution]:
    """Yield the 53 convolutions of the network in the order of the forward pass, a block's shortcut before
    its body."""
    channels, inputs = [round(base * width) for _, base in STAGES], round(64 * width)
    yield Convolution("conv0", 3, inputs, 7, 2, image_size, RELU)
    side = math.ceil(image_size / 4)  # after the first convolution and the pooling
    for stage, ((units, _), base) in enumerate(zip(STAGES, channels, strict=False), start=1):
        for unit in range(1, units + 1):
            name, stride, outputs = (
                f"stage{stage}_unit{unit}_conv",
                2 if unit == 1 and stage > 1 else 1,
                base * EXPANSION,
            )
            if unit == 1:
                yield Convolution(f"{name}1sc", inputs, outputs, 1, stride, side, PLAIN)
            yield Convolution(f"{name}1", inputs, base, 1, 1, side, RELU)
            strided = Convolution(f"{name}2", base, base, 3, stride, side, RELU)
            yield strided
            side = strided.side_after
            yield Convolution(f"{name}3", base, outputs, 1, 1, side, LAST)
            inputs = outputs


def kernels(
    version: str,
    batch: int,
    precision: str,
    image_size: int = rules.IMAGE_SIZE,
    classes: int = rules.CLASSES,
    width: float = 1.0,
    cache: int = CACHE,
) -> list[Kernel]:
    """Return the kernels of a training step of ``batch`` images: activations in ``precision``, parameters and
    statistics in float32. ``cache`` is for versions that pass backwards."""
    passes, element = VERSIONS[version], ELEMENT_BYTES[precision]
    layers = list(convolutions(image_size, width))
    listed: list[Kernel] = []
    parameters = 0
    for layer in layers:
        before, after = layer.inputs * layer.side**2, layer.outputs * layer.side_after**2
        weights = layer.inputs * layer.outputs * layer.kernel**2
        parameters += weights + 2 * layer.outputs
        once = 2 * batch * layer.side_after**2 * weights, element * (batch * (before + after) + weights)
        tensor = batch * after * element
        stem = passes.stem and layer is layers[0]
        single = (layer.kernel, layer.stride) == (1, 1) and (layer.inputs, layer.outputs) in ONE_PASS
        single = single and passes.one_pass
        listed.append(Kernel(layer.name, "forward", *once))
        if single:
            both = 2 * once[0], element * (2 * batch * (before + after) + 2 * weights)
            listed.append(Kernel(layer.name, "weights' gradient", *both))
        else:
            listed.append(Kernel(layer.name, "weights' gradient", *once))
            if layer.inputs != 3:  # the gradient of an image is not computed
                listed.append(Kernel(layer.name, "inputs' gradient", *once))
        normalised = (2 + 3 if stem else passes.forward[layer.then] + passes.backward[layer.then]) * tensor
        normalised -= (3 * tensor if single else 0) + (
            tensor if passes.summed and layer is not layers[0] else 0
        )
        if passes.backwards:  # reads again the input, and in the backward pass the gradient too
            normalised -= min(cache, tensor) + (0 if single else min(cache, 2 * tensor))
        listed.append(Kernel(layer.name, "batch norm, ReLU, sum", 0, normalised))
        if layer.then == LAST and layer is not layers[-1]:  # its output has two readers
            listed.append(Kernel(layer.name, "batch norm, ReLU, sum", 0, passes.gradient_sum * tensor))
        if layer.then == LAST:
            listed.append(
                Kernel(layer.name, "batch norm, ReLU, sum", 0, passes.mask_passes * batch * after // 8)
            )
    listed += _head(layers, passes, batch, element, classes)
    parameters += (layers[-1].outputs + 1) * classes
    if passes.half_weights or element < 4:  # the cast, the cast of the gradient back, and its accumulation
        accumulation = 0 if passes.half_weights else 12
        listed.append(Kernel("parameters", "casts", 0, parameters * (2 * (4 + element) + accumulation)))
    listed.append(Kernel("parameters", "update", 0, parameters * 4 * passes.update_passes))
    return listed


def _head(
    layers: list[Convolution], passes: Version, batch: int, element: int, classes: int
) -> Iterator[Kernel]:
    """Yield both poolings and the classifier. The loss, a few numbers per image and class, does not count."""
    first, last = layers[0], layers[-1]
    before, after = first.outputs * first.side_after**2, first.outputs * layers[1].side ** 2
    pooled = (element + passes.index_bytes) * after
    yield Kernel(
        "pooling", "pooling", 0, batch * (3 * pooled if passes.stem else 2 * (element * before + pooled))
    )
    features = last.outputs
    yield Kernel("pooling", "pooling", 0, 2 * batch * element * (features * last.side_after**2 + features))
    once = 2 * batch * features * classes, element * (batch * (features + classes) + features * classes)
    for kind in ("forward", "weights' gradient", "inputs' gradient"):
        yield Kernel("fc1", kind, *once)


def operations_and_bytes(every: Iterable[Kernel]) -> tuple[int, int]:
    """Return total operations and total bytes of the kernels."""
    listed = list(every)
    return sum(kernel.operations for kernel in listed), sum(kernel.bytes for kernel in listed)


def seconds(every: Iterable[Kernel], bytes_per_second: float, operations_per_second: float) -> float:
    """Return the sum of the least times of the kernels."""
    return sum(
        max(kernel.bytes / bytes_per_second, kernel.operations / operations_per_second) for kernel in every
    )


def counted(version: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of a version as plain data."""
    rates = args.terabytes * 1e12, args.teraflops * 1e12
    listed = kernels(version, args.batch, args.precision, args.size, cache=int(args.cache_megabytes * 1e6))
    operations, moved = operations_and_bytes(listed)
    taken = seconds(listed, *rates)
    kinds = {
        example.kind: seconds([kernel for kernel in listed if kernel.kind == example.kind], *rates)
        for example in listed
    }
    return {
        "version": version,
        "gigaflop_per_image": operations / args.batch / 1e9,
        "megabytes_per_image": moved / args.batch / 1e6,
        "milliseconds": 1e3 * taken,
        "images_per_second": args.batch / taken,
        "expected_images_per_second": SHARES.get(version, 0) * args.batch / taken or None,
        "milliseconds_by_kind": {kind: 1e3 * value for kind, value in kinds.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batch", type=int, default=400, help="images a step (400)")
    parser.add_argument(
        "--terabytes", type=float, required=True, help="bandwidth of the device's memory in TB/s"
    )
    parser.add_argument(
        "--teraflops", type=float, required=True, help="rate of its matrix multiplications in TFLOP/s"
    )
    parser.add_argument("--precision", choices=sorted(ELEMENT_BYTES), default="float16")
    parser.add_argument("--size", type=int, default=rules.IMAGE_SIZE, help="side of an image (224)")
    parser.add_argument(
        "--cache-megabytes", type=float, default=CACHE / 1e6, help="what a second pass backwards finds (25)"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.cache_megabytes < 0:
        parser.error("--cache-megabytes must be at least 0")
    if min(args.batch, args.terabytes, args.teraflops, args.size) <= 0:
        parser.error("--batch, --terabytes, --teraflops and --size must be greater than 0")
    rows = [counted(version, args) for version in VERSIONS]
    if args.json:
        print(json.dumps({**vars(args), "versions": rows}, indent=1))
        return
    headings = ("version", "GFLOP/image", "MB/image", "ms a step", "images/s", "expected")
    whole, parts = Table(*headings), Table("version", *GROUPS, title="ms a step")
    for row in rows:
        whole.add_row(
            row["version"],
            f"{row['gigaflop_per_image']:.1f}",
            f"{row['megabytes_per_image']:.0f}",
            f"{row['milliseconds']:.1f}",
            f"{row['images_per_second']:,.0f}",
            f"{row['expected_images_per_second']:,.0f}" if row["expected_images_per_second"] else "",
        )
        parts.add_row(
            row["version"],
            *(
                f"{sum(row['milliseconds_by_kind'].get(kind, 0) for kind in kinds):.1f}"
                for kinds in GROUPS.values()
            ),
        )
    for table in (whole, parts):
        Terminal().print(table)


if __name__ == "__main__":
    main()

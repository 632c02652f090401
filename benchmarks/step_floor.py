"""Count the operations and the bytes of a training step of ResNet-50 v1.5, kernel by kernel, and the least
time in which a device can do them.

    python benchmarks/step_floor.py --batch 400 --terabytes 4.12 --teraflops 735 [--precision float16] [--size
    224] [--json]

Give rates that were measured on the device, not those of its data sheet; the device itself is not needed.

A kernel takes at least the longer of two times: the time of its floating-point operations, and the time of
moving its bytes through the device's memory (Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009).
A step takes the sum over its kernels. Every tensor that a kernel reads or writes counts once as a whole.
Launches, padding and all-reduces do not count, nor does the cache unless a version says so. So a step of a
large batch takes longer than this. A step of a small batch, whose tensors stay in the cache, may take less.
The column "expected" multiplies the images/s of the least time by the fraction of it that STEP_MODE=graph,
compile and fused reached on one H200: an estimate for another device.
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
"""(inputs, outputs) of the 1x1 convolutions of stride 1 that implementations/pytorch/kernels/one_pass.py
computes."""
PLAIN, RELU, LAST = "plain", "ReLU", "last"
"""The operations after the batch norm of a convolution: none, ReLU, or the sum with the shortcut and ReLU."""


class Version(NamedTuple):
    """A way to compute a step: how often its kernels pass over memory."""

    forward: dict[str, int]
    """Operations after a batch norm -> passes of the forward pass over the output of the convolution before
    it. A pass reads or writes the whole tensor."""
    backward: dict[str, int]
    """The same of the backward pass."""
    gradient_sum: int
    """Passes to sum the two gradients of a block's input."""
    index_bytes: int
    """Bytes of the index of the maximum in a pooling window."""
    update_passes: int
    """Passes over all parameters in float32: those of LARS, and that which sets the gradients to 0."""
    backwards: bool = False
    """True if batch norm reads its input for the second time from its last row to its first, so that the
    cache still holds the last rows."""
    mask_passes: int = 0
    """Passes over the mask of ReLU at the end of a block, which has one bit for a value."""
    stem: bool = False
    """True if the first batch norm, ReLU and pooling are one kernel forward, and two backward."""
    half_weights: bool = False
    """True if one kernel casts all weights, and another one copies their gradients to float32."""
    one_pass: bool = False
    """True if one kernel computes the gradients of batch norm and convolution in the layers of
    ``ONE_PASS``."""
    summed: bool = False
    """True if all convolutions but the first write the statistics of their outputs, so that batch norm need
    not read them for that."""


# The kernel that normalises also applies the sum and ReLU. In the backward pass the mask of ReLU is computed
# again from the input. At the end of a block the kernel that reduces reads the mask from the output, and
# writes the masked gradient, which is the gradient of the shortcut.
FUSED = Version(
    forward={PLAIN: 3, RELU: 3, LAST: 4},
    backward={PLAIN: 5, RELU: 5, LAST: 7},
    gradient_sum=3,
    index_bytes=8,
    update_passes=16,
)
BACKWARDS = FUSED._replace(backwards=True)
# At the end of a block the forward pass writes a mask of bits. In the backward pass the kernel that reduces
# reads the mask instead of the output, and both gradients of the output, which it sums itself.
ONE_SUM = BACKWARDS._replace(backward={**FUSED.backward, LAST: 6}, gradient_sum=1, mask_passes=2)
# In the forward pass one kernel computes the statistics, and one the pooled output and the indices. Both
# kernels of the backward pass read input, pooled gradient and indices; the second one writes a gradient.
STEM = ONE_SUM._replace(stem=True, index_bytes=1)
# No pass sets the gradients to 0.
HALF_WEIGHTS = STEM._replace(half_weights=True, update_passes=15)
# The kernel reads gradient, output and input of a convolution, and writes the gradient of the input.
ONE = HALF_WEIGHTS._replace(one_pass=True)
SUMMED = ONE._replace(summed=True)
VERSIONS = {
    # Batch norm reads its input twice, for the statistics and to normalise it, and writes once. In the
    # backward pass it reads input and gradient twice and writes once. ReLU and the sum read all their inputs
    # and write. The update has 1 pass that sets the gradients to 0, 2 for norms, and 13 for five operations.
    "separate": Version(
        forward={PLAIN: 3, RELU: 5, LAST: 8},
        backward={PLAIN: 5, RELU: 8, LAST: 8},
        gradient_sum=3,
        index_bytes=8,
        update_passes=16,
    ),
    # As a compiler fuses operations: the mask of ReLU is read from the output, which the next convolution
    # needs anyway; the kernel that reads the sum of two gradients computes it; an index has one byte.
    "compiled": Version(
        forward={PLAIN: 3, RELU: 3, LAST: 4},
        backward={PLAIN: 5, RELU: 7, LAST: 7},
        gradient_sum=1,
        index_bytes=1,
        update_passes=16,
    ),
    "fused": FUSED,
    "fused, backwards": BACKWARDS,
    "fused, gradients": ONE_SUM,
    "fused, stem": STEM,
    "fused, half weights": HALF_WEIGHTS,
    "fused, one pass": ONE,
    "fused, statistics": SUMMED,
    # Convolutions compute the statistics as they write their outputs, and normalise, also in the backward
    # pass, as they read their inputs: only the sum of a block is a kernel of its own. In the backward pass
    # the reduction and both gradients of the convolution also read the input of the batch norm. LARS is two
    # kernels: its norms read weights and gradients; the update reads them again, reads the momentum, and
    # writes weights and momentum.
    "in convolutions": Version(
        forward={PLAIN: 0, RELU: 0, LAST: 3},
        backward={PLAIN: 3, RELU: 3, LAST: 6},
        gradient_sum=1,
        index_bytes=1,
        update_passes=8,
    ),
}
"""Name -> version. STEP_MODE eager and graph are "separate", compile is "compiled", and fused is the last of
the versions whose names begin with "fused". Each of these differs by one change from the version before, and
shows its gain. "in convolutions" does not exist: it would need changed convolution kernels."""
BUILT = list(VERSIONS)[-2]
"""Name of the version of STEP_MODE=fused."""
SHARES = {"separate": 0.82, "compiled": 0.79, "fused, half weights": 0.80, BUILT: 0.78}
"""Version -> measured images/s as a fraction of the images/s of the version's least time.

Measured on one H200 at 4.12 TB/s and 735 TFLOP/s, float16, batch 400, with STEP_MODE=graph, compile, fused
without its last two changes, and fused (docs/measurements.md). The fractions of kinds of kernels in the first
three versions: convolutions 0.88; norms, ReLU, sums and pooling 0.82, 0.74 and 0.76."""
CACHE = 25_000_000
"""Bytes that a second pass finds in the L2 cache: half of an H100's cache, because other tensors pass through
it too."""


GROUPS = {
    "convolutions": ("forward", "weights' gradient", "inputs' gradient"),
    "norm, ReLU, sum": ("batch norm, ReLU, sum",),
    "pooling": ("pooling",),
    "update": ("casts", "update"),
}
"""Columns of the printed table -> kinds of kernels. The classifier counts as a convolution."""


class Kernel(NamedTuple):
    """One kernel, or several with one task."""

    layer: str
    """Name of the layer."""
    kind: str
    """The task: one of the values of ``GROUPS``."""
    operations: int
    """Floating-point operations; a multiplication and an addition are two."""
    bytes: int
    """Bytes that are read or written."""


class Convolution(NamedTuple):
    """A convolution without bias, followed by batch norm."""

    name: str
    inputs: int
    """Input channels."""
    outputs: int
    """Output channels."""
    kernel: int
    stride: int
    side: int
    """Side of the input in pixels."""
    then: str
    """The operations after the batch norm: PLAIN, RELU or LAST."""

    @property
    def side_after(self) -> int:
        """Side of the output: the quotient rounded up, because the padding is half of the kernel."""
        return math.ceil(self.side / self.stride)


def convolutions(image_size: int, width: float = 1.0) -> Iterator[Convolution]:
    """Yield the 53 convolutions of the network in the order of the forward pass, a block's shortcut before
    its body."""
    inputs = round(64 * width)
    yield Convolution("conv0", 3, inputs, 7, 2, image_size, RELU)
    side = math.ceil(image_size / 4)  # after the first convolution and the pooling
    for stage, (units, base) in enumerate(STAGES, start=1):
        channels = round(base * width)
        outputs = channels * EXPANSION
        for unit in range(1, units + 1):
            name = f"stage{stage}_unit{unit}_conv"
            stride = 2 if unit == 1 and stage > 1 else 1
            if unit == 1:
                yield Convolution(f"{name}1sc", inputs, outputs, 1, stride, side, PLAIN)
            yield Convolution(f"{name}1", inputs, channels, 1, 1, side, RELU)
            strided = Convolution(f"{name}2", channels, channels, 3, stride, side, RELU)
            yield strided
            side = strided.side_after
            yield Convolution(f"{name}3", channels, outputs, 1, 1, side, LAST)
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
    statistics in float32. ``cache`` is the number of bytes that the cache holds, for versions with
    ``backwards``."""
    passes, element = VERSIONS[version], ELEMENT_BYTES[precision]
    layers = list(convolutions(image_size, width))
    listed: list[Kernel] = []
    parameters = 0
    for layer in layers:
        before = layer.inputs * layer.side**2
        after = layer.outputs * layer.side_after**2
        weights = layer.inputs * layer.outputs * layer.kernel**2
        parameters += weights + 2 * layer.outputs
        # Operations and bytes of the forward pass, and of either gradient.
        once = 2 * batch * layer.side_after**2 * weights, element * (batch * (before + after) + weights)
        output_bytes = batch * after * element
        is_first = layer is layers[0]
        is_1x1 = (layer.kernel, layer.stride) == (1, 1)
        in_one_pass = passes.one_pass and is_1x1 and (layer.inputs, layer.outputs) in ONE_PASS
        listed.append(Kernel(layer.name, "forward", *once))
        if in_one_pass:
            both = 2 * once[0], element * (2 * batch * (before + after) + 2 * weights)
            listed.append(Kernel(layer.name, "weights' gradient", *both))
        else:
            listed.append(Kernel(layer.name, "weights' gradient", *once))
            if layer.inputs != 3:  # the gradient of an image is not computed
                listed.append(Kernel(layer.name, "inputs' gradient", *once))
        norm_passes = passes.forward[layer.then] + passes.backward[layer.then]
        if passes.stem and is_first:
            norm_passes = 2 + 3
        if in_one_pass:
            norm_passes -= 3
        if passes.summed and not is_first:
            norm_passes -= 1
        norm_bytes = norm_passes * output_bytes
        if passes.backwards:
            norm_bytes -= min(cache, output_bytes)  # the input, which the forward pass reads twice
            if not in_one_pass:  # input and gradient, which the backward pass reads twice
                norm_bytes -= min(cache, 2 * output_bytes)
        listed.append(Kernel(layer.name, "batch norm, ReLU, sum", 0, norm_bytes))
        if layer.then == LAST and layer is not layers[-1]:  # two layers read this output
            listed.append(Kernel(layer.name, "batch norm, ReLU, sum", 0, passes.gradient_sum * output_bytes))
        if layer.then == LAST:
            mask_bytes = passes.mask_passes * batch * after // 8
            listed.append(Kernel(layer.name, "batch norm, ReLU, sum", 0, mask_bytes))
    listed += _head(layers, passes, batch, element, classes)
    parameters += (layers[-1].outputs + 1) * classes
    if passes.half_weights or element < 4:
        # Bytes for a parameter: its cast, and the cast of its gradient back; and the addition of the gradient
        # to one that was set to 0.
        accumulation = 0 if passes.half_weights else 12
        listed.append(Kernel("parameters", "casts", 0, parameters * (2 * (4 + element) + accumulation)))
    listed.append(Kernel("parameters", "update", 0, parameters * 4 * passes.update_passes))
    return listed


def _head(
    layers: list[Convolution], passes: Version, batch: int, element: int, classes: int
) -> Iterator[Kernel]:
    """Yield the kernels of both poolings and of the classifier. The loss does not count: it is a few numbers
    for each image and class. ``element`` is the number of bytes of an activation's element."""
    first, last = layers[0], layers[-1]
    before, after = first.outputs * first.side_after**2, first.outputs * layers[1].side ** 2
    pooled = (element + passes.index_bytes) * after
    per_image = 3 * pooled if passes.stem else 2 * (element * before + pooled)
    yield Kernel("pooling", "pooling", 0, batch * per_image)
    features = last.outputs
    yield Kernel("pooling", "pooling", 0, 2 * batch * element * (features * last.side_after**2 + features))
    once = 2 * batch * features * classes, element * (batch * (features + classes) + features * classes)
    for kind in ("forward", "weights' gradient", "inputs' gradient"):
        yield Kernel("fc1", kind, *once)


def operations_and_bytes(every: Iterable[Kernel]) -> tuple[int, int]:
    """Return the sums of the operations and of the bytes of kernels."""
    listed = list(every)
    return sum(kernel.operations for kernel in listed), sum(kernel.bytes for kernel in listed)


def seconds(every: Iterable[Kernel], bytes_per_second: float, operations_per_second: float) -> float:
    """Return the sum of the least times of kernels on a device with these rates."""
    return sum(
        max(kernel.bytes / bytes_per_second, kernel.operations / operations_per_second) for kernel in every
    )


def counted(version: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of a version for the device and batch of the options ``args``, as plain data."""
    rates = args.terabytes * 1e12, args.teraflops * 1e12
    listed = kernels(version, args.batch, args.precision, args.size, cache=int(args.cache_megabytes * 1e6))
    operations, byte_count = operations_and_bytes(listed)
    step_seconds = seconds(listed, *rates)
    kinds = {
        example.kind: seconds([kernel for kernel in listed if kernel.kind == example.kind], *rates)
        for example in listed
    }
    return {
        "version": version,
        "gigaflop_per_image": operations / args.batch / 1e9,
        "megabytes_per_image": byte_count / args.batch / 1e6,
        "milliseconds": 1e3 * step_seconds,
        "images_per_second": args.batch / step_seconds,
        "expected_images_per_second": SHARES.get(version, 0) * args.batch / step_seconds or None,
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

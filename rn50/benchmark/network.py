"""The layers of ResNet-50 v1.5: four stages of bottleneck units (He et al., arXiv:1512.03385, table 1). Every
implementation builds its network from ``stem`` and ``units``, and names its tensors as ``shapes`` does.

``width`` multiplies the number of channels of every layer; the benchmark has 1.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rn50.benchmark import rules

STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""(units, channels of the 3x3 convolution) of each stage, at width 1."""
EXPANSION = 4
"""Output channels of a unit, divided by the channels of its 3x3 convolution."""
STEM = 64
"""Output channels of the first convolution, at width 1."""
CLASSIFIER = "fc1"
"""Name of the last layer; its tensors end in ``_weight`` and ``_bias``."""
IMAGE_MIB = 64
"""GPU memory in MiB that training takes for an image of 224x224 pixels in half precision.

PyTorch's backward pass keeps 42 MiB of tensors (counted in tests/implementations/pytorch/test_memory.py). The
rest is a margin for gradients, workspaces and the input pipeline. On an H200 a step of 400 images had a peak
of 44 MiB an image, with weights and without input (docs/measurements.md). For float32 on a CPU twice as much
is taken; there the peak memory of a process grew by 108 MiB an image with MXNet and by 90 with PyTorch.
Published runs, with NVIDIA's build of MXNet, had 208 images on 16 GB and 1,000 on 80 GB."""
RESERVED_MIB = 4096
"""GPU memory in MiB of the driver's context, weights, gradients, momentum, and workspaces of convolutions."""
BATCH_STEP = 8
"""A batch on an accelerator is a multiple of this number of images, where there is a choice."""
BLUR_POOL_MIB = 15
"""Memory in MiB that BLURPOOL adds to ``IMAGE_MIB``: PyTorch keeps 10 MiB more (counted in the same test)."""


class Convolution(NamedTuple):
    """A convolution without bias, and the batch norm behind it."""

    name: str
    """Name of the convolution; that of its tensor is ``NAME_weight``."""
    norm: str
    """Name of the batch norm; those of its tensors end in ``_gamma``, ``_beta``, ``_running_mean`` and
    ``_running_var``."""
    inputs: int
    """Input channels."""
    outputs: int
    """Output channels."""
    kernel: int
    """Height and width of the kernel."""
    stride: int

    @property
    def padding(self) -> int:
        """Rows or columns of zeros on each side of the image."""
        return self.kernel // 2


class Unit(NamedTuple):
    """A bottleneck unit: three convolutions, to whose result the shortcut is added. ReLU follows the first
    and the second convolution, and the sum."""

    body: tuple[Convolution, ...]
    """The three convolutions."""
    shortcut: tuple[Convolution, ...]
    """The convolution of the shortcut; empty if the shortcut is the unit's input itself."""


def stem(width: float = 1.0) -> Convolution:
    """Return the first convolution. Behind it come ReLU and a 3x3 max-pooling of stride 2 and padding 1."""
    return Convolution("conv0", "bn0", 3, round(STEM * width), 7, 2)


def units(width: float = 1.0) -> Iterator[Unit]:
    """Yield the 16 units in the order in which an image passes them."""
    inputs = round(STEM * width)
    for stage, (count, base) in enumerate(STAGES, start=1):
        channels = round(base * width)
        for number in range(1, count + 1):
            name = f"stage{stage}_unit{number}_"
            stride = 2 if number == 1 and stage > 1 else 1
            body = (
                Convolution(f"{name}conv1", f"{name}bn1", inputs, channels, 1, 1),
                Convolution(f"{name}conv2", f"{name}bn2", channels, channels, 3, stride),
                Convolution(f"{name}conv3", f"{name}bn3", channels, channels * EXPANSION, 1, 1),
            )
            projection = Convolution(f"{name}conv1sc", f"{name}bnsc", inputs, channels * EXPANSION, 1, stride)
            yield Unit(body, (projection,) if number == 1 else ())
            inputs = channels * EXPANSION


def convolutions(width: float = 1.0) -> Iterator[Convolution]:
    """Yield all 53 convolutions of the network."""
    yield stem(width)
    for unit in units(width):
        yield from (*unit.body, *unit.shortcut)


def features(width: float = 1.0) -> int:
    """Return the number of inputs of the classifier."""
    return round(STAGES[-1][1] * width) * EXPANSION


def shapes(classes: int, width: float = 1.0) -> dict[str, tuple[int, ...]]:
    """Return name -> shape of all 267 tensors: 161 trainable ones, whose names are those of the MLPerf
    rulesets, and 106 running statistics.

    The weight of a convolution has the shape (outputs, inputs, kernel, kernel), that of the classifier
    (classes, features).
    """
    tensors: dict[str, tuple[int, ...]] = {}
    for layer in convolutions(width):
        tensors[f"{layer.name}_weight"] = (layer.outputs, layer.inputs, layer.kernel, layer.kernel)
        for suffix in ("gamma", "beta", "running_mean", "running_var"):
            tensors[f"{layer.norm}_{suffix}"] = (layer.outputs,)
    tensors[f"{CLASSIFIER}_weight"] = (classes, features(width))
    tensors[f"{CLASSIFIER}_bias"] = (classes,)
    return tensors


def training_mib(image_size: int, width: float, is_float32: bool, blur_pool: bool) -> float:
    """Return the memory in MiB that training takes for an image of ``image_size`` x ``image_size`` pixels. A
    run with several sizes takes as much as with the largest: the steps of all sizes share one pool."""
    mib = IMAGE_MIB + BLUR_POOL_MIB * blur_pool
    return (2 if is_float32 else 1) * mib * width * (image_size / rules.IMAGE_SIZE) ** 2


def fitting(mib: float, image_mib: float = IMAGE_MIB) -> int:
    """Return the most images of a batch that fit a GPU with ``mib`` MiB of free memory, a multiple of
    ``BATCH_STEP`` and at least that. ``image_mib`` is the memory that an image takes."""
    return max(1, int((mib - RESERVED_MIB) / image_mib) // BATCH_STEP) * BATCH_STEP

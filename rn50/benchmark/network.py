"""ResNet-50 v1.5 as every implementation builds it: four stages of bottleneck units (He et al.,
arXiv:1512.03385, table 1)."""

from collections.abc import Iterator
from typing import NamedTuple

STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""(units, channels of the 3x3 convolution) of each stage, at width 1."""
EXPANSION = 4
"""Output channels of a unit for each channel of its 3x3 convolution."""
STEM = 64
"""Output channels of the first convolution, at width 1."""
CLASSIFIER = "fc1"
"""Name of the last layer; its tensors end in ``_weight`` and ``_bias``."""


class Convolution(NamedTuple):
    """A convolution without bias, and the batch norm behind it."""

    name: str
    """The part of its names before ``_weight``."""
    norm: str
    """The part of the batch norm's names before ``_gamma``, ``_beta``, ``_running_mean`` and
    ``_running_var``."""
    inputs: int
    outputs: int
    kernel: int
    stride: int

    @property
    def padding(self) -> int:
        """Zeros on each side of the image."""
        return self.kernel // 2


class Unit(NamedTuple):
    """A bottleneck unit: ReLU behind the first two convolutions of ``body``, and behind the sum of the third
    and the shortcut."""

    body: tuple[Convolution, ...]
    shortcut: tuple[Convolution, ...]
    """The convolution of the shortcut; empty where the shortcut is the input itself."""


def stem(width: float = 1.0) -> Convolution:
    """Return the first convolution; ReLU and a 3x3 max-pooling of stride 2 and padding 1 follow it."""
    return Convolution("conv0", "bn0", 3, round(STEM * width), 7, 2)


def units(width: float = 1.0) -> Iterator[Unit]:
    """Yield the 16 units in the order in which an image goes through them; ``width`` multiplies every channel
    count."""
    inputs = round(STEM * width)
    for stage, (count, base) in enumerate(STAGES, start=1):
        channels = round(base * width)
        for number in range(1, count + 1):
            name, stride = f"stage{stage}_unit{number}_", 2 if number == 1 and stage > 1 else 1
            body = (
                Convolution(f"{name}conv1", f"{name}bn1", inputs, channels, 1, 1),
                Convolution(f"{name}conv2", f"{name}bn2", channels, channels, 3, stride),
                Convolution(f"{name}conv3", f"{name}bn3", channels, channels * EXPANSION, 1, 1),
            )
            projection = Convolution(f"{name}conv1sc", f"{name}bnsc", inputs, channels * EXPANSION, 1, stride)
            yield Unit(body, (projection,) if number == 1 else ())
            inputs = channels * EXPANSION


def convolutions(width: float = 1.0) -> Iterator[Convolution]:
    """Yield the 53 convolutions."""
    yield stem(width)
    for unit in units(width):
        yield from (*unit.body, *unit.shortcut)


def features(width: float = 1.0) -> int:
    """Return the number of values per image that the classifier gets."""
    return round(STAGES[-1][1] * width) * EXPANSION


def shapes(classes: int, width: float = 1.0) -> dict[str, tuple[int, ...]]:
    """Return name -> shape of all 267 tensors: 161 trainable ones, by the names of the rulesets, and 106
    running statistics.

    Weights of convolutions are (outputs, inputs, kernel, kernel), that of the classifier is (classes,
    features).
    """
    tensors: dict[str, tuple[int, ...]] = {}
    for layer in convolutions(width):
        tensors[f"{layer.name}_weight"] = (layer.outputs, layer.inputs, layer.kernel, layer.kernel)
        for suffix in ("gamma", "beta", "running_mean", "running_var"):
            tensors[f"{layer.norm}_{suffix}"] = (layer.outputs,)
    tensors[f"{CLASSIFIER}_weight"], tensors[f"{CLASSIFIER}_bias"] = (classes, features(width)), (classes,)
    return tensors

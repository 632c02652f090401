"""ResNet-50 v1.5 in PyTorch, and the two functions a run computes: training loss and evaluation.

He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition" (arXiv:1512.03385), in the v1.5 form of
the MLPerf reference: a down-sampling block has its stride in the 3x3 convolution. Parameters have the names
that the rulesets compare.

Parameters are always float32. With ``precision`` "float16" or "bfloat16" autocast casts them, and the
activations, at the inputs of convolutions and the classifier. So parameters are the master weights of mixed
precision, and gradients are float32 again. ``half_weights`` casts them at once instead. Everything is
channels-last in memory, which is PyTorch's fastest layout on GPUs and on CPUs.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn
from torch.nn import functional

from rn50.benchmark import network as geometry
from rn50.benchmark import optimizers, rules
from rn50.benchmark.network import Convolution, Unit
from rn50.benchmark.quantization import INPUT_LEVELS, SMALLEST, WEIGHT_LEVELS

# PyTorch's momentum is the weight of the new value.
BATCH_NORM: dict[str, Any] = {"momentum": 1 - rules.BATCH_NORM_MOMENTUM, "eps": rules.BATCH_NORM_EPSILON}
PRECISIONS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
ALIGNMENT = 64
"""Elements. Each flattened tensor begins on a boundary of 256 bytes, like a separate tensor."""


MaybeTwice: TypeAlias = torch.Tensor | tuple[torch.Tensor, torch.Tensor]
"""A tensor, or twice the same one for two readers: a fused kernel then gets their gradients separately."""
Normalise = Callable[..., MaybeTwice]
"""A function for training with the arguments of ``separate_normalise`` except the last one."""

Convolve = Callable[..., tuple[torch.Tensor, dict[str, torch.Tensor]]]
"""A function for training with the arguments of ``plain_convolution``. It also returns what it knows about
its output, as arguments of the function ``Normalise`` that follows."""


def plain_convolution(
    x: torch.Tensor, weight: torch.Tensor, stride: int, padding: int
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the convolution without bias."""
    return functional.conv2d(x, weight, stride=stride, padding=padding), {}


def separate_normalise(
    x: torch.Tensor,
    shortcut: torch.Tensor | None,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    momentum: float,
    eps: float,
    relu: bool,
    twice: bool = False,
    pool: bool = False,
    training: bool = True,
) -> MaybeTwice:
    """Return relu(batch_norm(x) + shortcut) by separate operations, without the sum if ``shortcut`` is None,
    without ReLU if not ``relu``. With ``twice`` return it twice. With ``pool`` apply max-pooling of 3x3 with
    stride 2 and padding 1."""
    x = functional.batch_norm(x, running_mean, running_var, gamma, beta, training, momentum, eps)
    x = x if shortcut is None else x + shortcut
    x = functional.relu(x, inplace=True) if relu else x
    x = functional.max_pool2d(x, 3, 2, 1) if pool else x
    return (x, x) if twice else x


def rounded_weight(weight: torch.Tensor) -> torch.Tensor:
    """Return ``rn50.benchmark.quantization.rounded_weight``; the gradient passes through."""
    value = weight.detach()
    others = tuple(range(1, value.dim()))
    scale = value.abs().amax(dim=others, keepdim=True).clamp(min=SMALLEST) / WEIGHT_LEVELS
    return weight + (torch.round(value / scale) * scale - value)


def rounded_input(x: torch.Tensor) -> torch.Tensor:
    """Return ``rn50.benchmark.quantization.rounded_input``; the gradient passes through."""
    value = x.detach()
    low, high = value.amin().clamp(max=0), value.amax().clamp(min=0)
    scale = (high - low).clamp(min=SMALLEST) / INPUT_LEVELS
    zero_point = torch.round(-low / scale)
    return x + (
        (torch.round(value / scale) + zero_point).clamp(0, INPUT_LEVELS).sub(zero_point).mul(scale) - value
    )


class ConvNorm(nn.Module):
    """Convolution without bias, batch norm, the sum with a shortcut if there is one, and ReLU if ``relu``:
    (N, inputs, H, W) -> (N, outputs, H/s, W/s).

    ``relu``, ``twice`` and ``pool`` are arguments of ``normalise``.
    """

    rounds = False
    """True if weights and inputs are rounded as in int8."""
    convolve: Convolve = staticmethod(plain_convolution)
    """The convolution of training."""
    normalise: Normalise = staticmethod(separate_normalise)
    """The part after the convolution of training."""

    def __init__(
        self,
        convolution: Convolution,
        relu: bool = True,
        gamma: float = 1.0,
        twice: bool = False,
        pool: bool = False,
    ):
        super().__init__()
        name, norm, inputs, outputs, kernel, stride = convolution
        self.names = {"weight": f"{name}_weight", "gamma": f"{norm}_gamma", "beta": f"{norm}_beta"}
        self.weight = nn.Parameter(
            torch.empty(outputs, inputs, kernel, kernel, memory_format=torch.channels_last)
        )
        self.gamma, self.beta = nn.Parameter(torch.empty(outputs)), nn.Parameter(torch.empty(outputs))
        self.register_buffer("running_mean", torch.empty(outputs))
        self.register_buffer("running_var", torch.empty(outputs))
        self._stride, self._padding, self._first_gamma = stride, convolution.padding, gamma
        self._after = {**BATCH_NORM, "relu": relu, "twice": twice, "pool": pool}

    def initialize(self, random: torch.Generator) -> None:
        """Set the values that a run begins with."""
        _, inputs, kernel, _ = self.weight.shape
        fill_normal(self.weight, (2 / (inputs * kernel * kernel)) ** 0.5, random)
        self.gamma.data.fill_(self._first_gamma)
        self.beta.data.zero_()
        self.running_mean.zero_()
        self.running_var.fill_(1.0)

    def forward(self, x: torch.Tensor, shortcut: torch.Tensor | None = None) -> MaybeTwice:
        x, weight = (rounded_input(x), rounded_weight(self.weight)) if self.rounds else (x, self.weight)
        if x.shape[1] > weight.shape[1]:  # images with a channel of zeros
            weight = functional.pad(weight, (0, 0, 0, 0, 0, x.shape[1] - weight.shape[1]))
        norm = self.gamma, self.beta, self.running_mean, self.running_var
        if self.training:
            x, sums = self.convolve(x, weight, self._stride, self._padding)
            return self.normalise(x, shortcut, *norm, **self._after, **sums)
        x, _ = plain_convolution(x, weight, self._stride, self._padding)
        return separate_normalise(x, shortcut, *norm, **self._after, training=False)


class Classifier(nn.Module):
    """The last layer: (N, ``inputs``) -> (N, ``classes``)."""

    names = {"weight": "fc1_weight", "bias": "fc1_bias"}
    rounds = False

    def __init__(self, inputs: int, classes: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, inputs))
        self.bias = nn.Parameter(torch.empty(classes))

    def initialize(self, random: torch.Generator) -> None:
        """Set the values that a run begins with."""
        fill_normal(self.weight, 0.01, random)
        self.bias.data.fill_(0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, weight = (rounded_input(x), rounded_weight(self.weight)) if self.rounds else (x, self.weight)
        return functional.linear(x, weight, self.bias)


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride) and 1x1 convolutions beside a shortcut. Another block follows if
    ``twice``."""

    def __init__(self, unit: Unit, last_gamma: float, twice: bool = False):
        super().__init__()
        first, second, last = unit.body
        last_norm = ConvNorm(last, gamma=last_gamma, twice=twice)
        self.body = nn.Sequential(ConvNorm(first), ConvNorm(second), last_norm)
        self.shortcut = ConvNorm(unit.shortcut[0], relu=False) if unit.shortcut else None

    def forward(self, x: MaybeTwice) -> MaybeTwice:
        x, beside = x if isinstance(x, tuple) else (x, x)
        shortcut = beside if self.shortcut is None else self.shortcut(beside)
        first, second, last = self.body
        return last(second(first(x)), shortcut)


class ResNet50(nn.Module):
    """Logits of shape (batch, classes) in float32 from images (batch, 3, S, S), or of four channels with
    zeros in the last.

    ``width`` multiplies every channel count; 1 is the network of the benchmark. With ``gamma_zero`` the last
    batch norm of every block starts at 0, so that a block starts as its shortcut (Goyal et al.,
    arXiv:1706.02677, section 5.1). Parameters have no values until ``initialize`` is called. Every
    ``ConvNorm`` gets ``normalise`` and ``convolve``. With ``rounds`` every layer rounds its weights and
    inputs as in int8.
    """

    def __init__(
        self,
        classes: int,
        width: float,
        gamma_zero: bool,
        precision: str,
        normalise: Normalise = separate_normalise,
        rounds: bool = False,
        convolve: Convolve = plain_convolution,
    ):
        super().__init__()
        units, last_gamma = [*geometry.units(width)], 0.0 if gamma_zero else 1.0
        self.features = nn.Sequential(
            ConvNorm(geometry.stem(width), pool=True),
            *(Bottleneck(unit, last_gamma, twice=unit is not units[-1]) for unit in units),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), Classifier(geometry.features(width), classes)),
        )
        self._precision = PRECISIONS[precision]
        for module in _named(self):
            module.rounds, module.convolve, module.normalise = rounds, convolve, normalise

    def initialize(self, seed: int) -> None:
        """Draw the random values that a run begins with, the same on every device."""
        random = torch.Generator().manual_seed(seed)
        for module in _named(self):
            module.initialize(random)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, self._precision, enabled=self._precision != torch.float32):
            x = self.features(x)
        return x.float()


def fill_normal(parameter: nn.Parameter, deviation: float, random: torch.Generator) -> None:
    """Fill a parameter with normal values of mean 0."""
    parameter.data.copy_(torch.empty(parameter.shape).normal_(0.0, deviation, generator=random))


def training_loss(
    network: nn.Module, images: torch.Tensor, labels: torch.Tensor, label_smoothing: float
) -> torch.Tensor:
    """Return the cross entropy of every sample, shape (batch,), with the smoothed target ``(1 - e) * onehot +
    e / classes``."""
    return functional.cross_entropy(
        network(images), labels, label_smoothing=label_smoothing, reduction="none"
    )


class Named(NamedTuple):
    """A parameter and its name in the rulesets."""

    name: str
    tensor: nn.Parameter


def trainable(network: nn.Module) -> tuple[Named, ...]:
    """Return the 161 parameters that have a gradient, in the order of the network."""
    rows = ((module, kind, name) for module in _named(network) for kind, name in module.names.items())
    return tuple(Named(name, getattr(module, kind)) for module, kind, name in rows)


def tensors(network: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and running statistics, by the names of ``rn50.benchmark.network.shapes``."""
    by_name = {name: tensor.data for name, tensor in trainable(network)}
    for module in _named(network):
        norm = module.names.get("gamma", "").replace("gamma", "")
        by_name.update((f"{norm}{name}", buffer) for name, buffer in module.named_buffers())
    return by_name


def _named(network: nn.Module) -> Iterator[Any]:
    """Return the modules that have parameters of their own."""
    return (module for module in network.modules() if hasattr(module, "names"))


class Flat(NamedTuple):
    """Parameters, those without weight decay and trust ratio last, in one tensor; their gradients in another.

    Both are float32, of one dimension, with zeros in the gaps. So the all-reduce is one operation, and so is
    each step of the optimizer.
    """

    parameters: Sequence[Named]
    weights: torch.Tensor
    gradients: torch.Tensor


def flatten(parameters: Sequence[Named], zeros: Callable[[int], torch.Tensor]) -> Flat:
    """Move the values of parameters and their gradients into one tensor each; ``zeros(values)`` makes that of
    the gradients."""
    ordered = sorted(parameters, key=lambda parameter: not optimizers.has_weight_decay(parameter.name))
    _, end = starts(ordered)
    flat = Flat(ordered, torch.zeros(end, device=ordered[0].tensor.device), zeros(end))
    of_each = zip(ordered, views(flat.weights, ordered), views(flat.gradients, ordered), strict=True)
    for (_, tensor), value, gradient in of_each:
        value.copy_(tensor.data)
        tensor.data, tensor.grad = value, gradient
    return flat


def views(flat: torch.Tensor, parameters: Sequence[Named]) -> list[torch.Tensor]:
    """Return the part of a flattened tensor that belongs to each parameter, with the shape of the
    parameter."""
    begins, _ = starts(parameters)
    # Each keeps its memory format, which is channels-last for weights of convolutions.
    pairs = zip(parameters, begins, strict=False)
    return [torch.as_strided(flat, tensor.shape, tensor.stride(), begin) for (_, tensor), begin in pairs]


def starts(parameters: Sequence[Named]) -> tuple[list[int], int]:
    """Return the offsets at which parameters begin when flattened, and the end of the last one with its
    gap."""
    sizes = (math.ceil(tensor.numel() / ALIGNMENT) * ALIGNMENT for _, tensor in parameters)
    *begins, end = itertools.accumulate(sizes, initial=0)
    return begins, end

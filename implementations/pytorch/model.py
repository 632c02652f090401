"""ResNet-50 v1.5 in PyTorch, its training loss, and its parameters: by name, and as parts of one tensor.

He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition" (arXiv:1512.03385), in the v1.5 form of
the MLPerf reference: a down-sampling block has its stride in the 3x3 convolution. Parameters have the names
that the MLPerf rulesets compare.

Parameters and their gradients are always float32: the parameters are the master weights of mixed precision.
With ``precision`` "float16" or "bfloat16" autocast casts weights and activations at the inputs of
convolutions and of the classifier; in STEP_MODE=fused on a GPU ``half_weights.py`` casts all weights at once
instead. Images, activations and weights are channels-last in memory, which is PyTorch's fastest layout on
GPUs and on CPUs.
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

# PyTorch's momentum of batch norm is the weight of the new value, not of the old one.
BATCH_NORM: dict[str, Any] = {"momentum": 1 - rules.BATCH_NORM_MOMENTUM, "eps": rules.BATCH_NORM_EPSILON}
PRECISIONS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
ALIGNMENT = 64
"""In the tensors of ``Flat`` each parameter begins at a multiple of this many elements: 256 bytes in float32,
the boundary on which a tensor of its own would begin."""

BLURRED_INPUTS = 16
"""Fewest input channels of a convolution that BlurPool blurs, so that the images themselves stay sharp (the
value of composer 0.8.2, "min_channels")."""

MaybeTwice: TypeAlias = torch.Tensor | tuple[torch.Tensor, torch.Tensor]
"""A tensor, or a pair of the same tensor twice. Two layers read the output of a block: the first convolution
and the shortcut of the next block. Each reads its own half of the pair, so that a fused kernel gets the two
gradients separately and adds them itself."""
Normalise = Callable[..., MaybeTwice]
"""A function that does in training what ``separate_normalise`` does, with the same arguments except
``training``."""
Convolve = Callable[..., tuple[torch.Tensor, dict[str, torch.Tensor]]]
"""A function that computes a convolution in training, with the arguments of ``plain_convolution``. It returns
the output, and further arguments for the ``Normalise`` that reads the output."""


def plain_convolution(
    x: torch.Tensor, weight: torch.Tensor, stride: int, padding: int
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the convolution without bias, and no further arguments."""
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
    """Return relu(batch_norm(x) + shortcut), each operation by a function of PyTorch.

    There is no sum if ``shortcut`` is None, and no ReLU unless ``relu``. With ``pool`` max-pooling of 3x3
    with stride 2 and padding 1 follows. With ``twice`` the result is returned twice. Unless ``training``,
    batch norm uses the running statistics.
    """
    x = functional.batch_norm(x, running_mean, running_var, gamma, beta, training, momentum, eps)
    x = x if shortcut is None else x + shortcut
    x = functional.relu(x, inplace=True) if relu else x
    x = functional.max_pool2d(x, 3, 2, 1) if pool else x
    return (x, x) if twice else x


def rounded_weight(weight: torch.Tensor) -> torch.Tensor:
    """Return ``weight`` rounded as by ``rn50.benchmark.quantization.rounded_weight``, with one scale for each
    output channel. In the backward pass the rounding counts as the identity (a straight-through
    estimator)."""
    value = weight.detach()
    other_axes = tuple(range(1, value.dim()))
    scale = value.abs().amax(dim=other_axes, keepdim=True).clamp(min=SMALLEST) / WEIGHT_LEVELS
    return weight + (torch.round(value / scale) * scale - value)


def rounded_input(x: torch.Tensor) -> torch.Tensor:
    """Return ``x`` rounded as by ``rn50.benchmark.quantization.rounded_input``, with one scale and one zero
    point for the tensor. In the backward pass the rounding counts as the identity."""
    value = x.detach()
    low, high = value.amin().clamp(max=0), value.amax().clamp(min=0)
    scale = (high - low).clamp(min=SMALLEST) / INPUT_LEVELS
    zero_point = torch.round(-low / scale)
    levels = (torch.round(value / scale) + zero_point).clamp(0, INPUT_LEVELS)
    return x + (levels.sub(zero_point).mul(scale) - value)


class LowPass(nn.Module):
    """Convolves every channel with the binomial filter [1 2 1] x [1 2 1] / 16, zeros beyond the edges: (N,
    channels, H, W) -> (N, channels, H/s, W/s) for the stride s.

    It keeps fine patterns from becoming coarse ones where every second pixel is left out (Zhang, "Making
    Convolutional Networks Shift-Invariant Again", arXiv:1904.11486).
    """

    def __init__(self, channels: int, stride: int = 1):
        super().__init__()
        row = torch.tensor([1.0, 2.0, 1.0]) / 4
        self.register_buffer("filter", torch.outer(row, row).expand(channels, 1, 3, 3).contiguous())
        self._options = {"stride": stride, "padding": 1, "groups": channels}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(x, self.filter, **self._options)


class BlurredPool(nn.Module):
    """Max-pooling of 3x3 with stride 1, then a ``LowPass`` with stride 2: (N, channels, H, W) -> (N,
    channels, H/2, W/2)."""

    def __init__(self, channels: int):
        super().__init__()
        self._low_pass = LowPass(channels, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._low_pass(functional.max_pool2d(x, 3, 1, 1))


class ConvNorm(nn.Module):
    """Convolution without bias and with stride s, batch norm, the sum with a shortcut if ``forward`` gets
    one, and ReLU if ``relu``: (N, inputs, H, W) -> (N, outputs, H/s, W/s).

    ``relu``, ``twice`` and ``pool`` are arguments of ``normalise``. ``gamma`` is the initial value of batch
    norm's gamma. With ``blur`` a ``LowPass`` comes before a convolution of stride 2, unless its input has
    less than ``BLURRED_INPUTS`` channels, and in the pooling. ``ResNet50`` sets the three attributes below.
    """

    rounds = False
    """True if weights and inputs are rounded as in int8."""
    convolve: Convolve = staticmethod(plain_convolution)
    """Computes the convolution in training."""
    normalise: Normalise = staticmethod(separate_normalise)
    """Computes what follows the convolution in training."""

    def __init__(
        self,
        convolution: Convolution,
        relu: bool = True,
        gamma: float = 1.0,
        twice: bool = False,
        pool: bool = False,
        blur: bool = False,
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
        self._options = {**BATCH_NORM, "relu": relu, "twice": twice, "pool": pool and not blur}
        is_blurred = blur and stride == 2 and inputs >= BLURRED_INPUTS
        self._before = LowPass(inputs) if is_blurred else nn.Identity()
        self._after = BlurredPool(outputs) if blur and pool else nn.Identity()

    def initialize(self, random: torch.Generator) -> None:
        """Set the values that a run begins with."""
        _, inputs, kernel, _ = self.weight.shape
        # The standard deviation of He et al. (arXiv:1502.01852): sqrt(2 / fan-in).
        fill_normal(self.weight, (2 / (inputs * kernel * kernel)) ** 0.5, random)
        self.gamma.data.fill_(self._first_gamma)
        self.beta.data.zero_()
        self.running_mean.zero_()
        self.running_var.fill_(1.0)

    def forward(self, x: torch.Tensor, shortcut: torch.Tensor | None = None) -> MaybeTwice:
        x, weight = self._before(x), self.weight
        if self.rounds:
            x, weight = rounded_input(x), rounded_weight(weight)
        if x.shape[1] > weight.shape[1]:
            # The images have a fourth channel, of zeros, so the weight gets a fourth input channel of zeros.
            weight = functional.pad(weight, (0, 0, 0, 0, 0, x.shape[1] - weight.shape[1]))
        norm = self.gamma, self.beta, self.running_mean, self.running_var
        if self.training:
            x, further_arguments = self.convolve(x, weight, self._stride, self._padding)
            return self._after(self.normalise(x, shortcut, *norm, **self._options, **further_arguments))
        x, _ = plain_convolution(x, weight, self._stride, self._padding)
        return self._after(separate_normalise(x, shortcut, *norm, **self._options, training=False))


class Classifier(nn.Module):
    """The last layer: (N, ``inputs``) -> (N, ``classes``). ``bias`` is the initial value of its biases."""

    names = {"weight": "fc1_weight", "bias": "fc1_bias"}
    rounds = False
    """True if weights and inputs are rounded as in int8."""

    def __init__(self, inputs: int, classes: int, bias: float = 0.0):
        super().__init__()
        self._first_bias = bias
        self.weight = nn.Parameter(torch.empty(classes, inputs))
        self.bias = nn.Parameter(torch.empty(classes))

    def initialize(self, random: torch.Generator) -> None:
        """Set the values that a run begins with."""
        fill_normal(self.weight, deviation=0.01, random=random)
        self.bias.data.fill_(self._first_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight
        if self.rounds:
            x, weight = rounded_input(x), rounded_weight(weight)
        return functional.linear(x, weight, self.bias)


class Bottleneck(nn.Module):
    """A residual block: 1x1, 3x3 (with the stride) and 1x1 convolutions, whose output is added to a shortcut.

    The shortcut is the input, or in the first block of a stage a convolution of the input. ``last_gamma`` is
    the initial gamma of the last batch norm. With ``twice`` the output is a pair (``MaybeTwice``), for a next
    block. So the input of a block is a pair, except in the first block of the network.
    """

    def __init__(self, unit: Unit, last_gamma: float, twice: bool = False, blur: bool = False):
        super().__init__()
        first, second, last = unit.body
        last_norm = ConvNorm(last, gamma=last_gamma, twice=twice)
        self.body = nn.Sequential(ConvNorm(first), ConvNorm(second, blur=blur), last_norm)
        self.shortcut = ConvNorm(unit.shortcut[0], relu=False, blur=blur) if unit.shortcut else None

    def forward(self, x: MaybeTwice) -> MaybeTwice:
        x, for_shortcut = x if isinstance(x, tuple) else (x, x)
        shortcut = for_shortcut if self.shortcut is None else self.shortcut(for_shortcut)
        first, second, last = self.body
        return last(second(first(x)), shortcut)


class ResNet50(nn.Module):
    """Computes logits (batch, classes) in float32 from images (batch, 3, S, S), or from images with four
    channels, the last one zeros.

    ``width`` multiplies every channel count; 1 is the network of the benchmark. With ``gamma_zero`` the gamma
    of the last batch norm of every block is 0 at first, so that a block begins as its shortcut (Goyal et al.,
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
        blur: bool = False,
        bias: float = 0.0,
    ):
        super().__init__()
        units = list(geometry.units(width))
        last_gamma = 0.0 if gamma_zero else 1.0
        self.features = nn.Sequential(
            ConvNorm(geometry.stem(width), pool=True, blur=blur),
            *(Bottleneck(unit, last_gamma, twice=unit is not units[-1], blur=blur) for unit in units),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            Classifier(geometry.features(width), classes, bias),
        )
        self._precision = PRECISIONS[precision]
        for module in _layers(self):
            module.rounds, module.convolve, module.normalise = rounds, convolve, normalise

    def initialize(self, seed: int) -> None:
        """Set the values that a run begins with. The random ones are drawn on the CPU, so that a seed gives
        equal values on every device."""
        random = torch.Generator().manual_seed(seed)
        for module in _layers(self):
            module.initialize(random)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, self._precision, enabled=self._precision != torch.float32):
            return self.features(x).float()


def fill_normal(parameter: nn.Parameter, deviation: float, random: torch.Generator) -> None:
    """Fill a parameter with normally distributed values of mean 0 and this standard deviation."""
    parameter.data.copy_(torch.empty(parameter.shape).normal_(0.0, deviation, generator=random))


def training_loss(
    network: nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    label_smoothing: float,
    binary: bool = False,
) -> torch.Tensor:
    """Return the cross entropy of every sample, shape (batch,), with the target ``(1 - e) * onehot + e /
    classes``, where e is ``label_smoothing``.

    The cross entropy is that of a softmax over the classes. With ``binary`` it is the sum over the classes of
    that of a sigmoid: ``sum(softplus(z) - t * z)`` for logits z and the target t.
    """
    logits, e = network(images), label_smoothing
    if not binary:
        return functional.cross_entropy(logits, labels, label_smoothing=e, reduction="none")
    of_label = logits.gather(1, labels.unsqueeze(1)).squeeze(1)
    of_target = (1 - e) * of_label + e / logits.shape[1] * logits.sum(dim=1)
    return functional.softplus(logits).sum(dim=1) - of_target


class NamedParameter(NamedTuple):
    """A parameter, and the name that the MLPerf rulesets have for it."""

    name: str
    tensor: nn.Parameter


def trainable(network: nn.Module) -> tuple[NamedParameter, ...]:
    """Return the parameters that have a gradient, 161 in ResNet-50, in the order of the layers."""
    rows = ((layer, attribute, name) for layer in _layers(network) for attribute, name in layer.names.items())
    return tuple(NamedParameter(name, getattr(layer, attribute)) for layer, attribute, name in rows)


def tensors(network: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and running statistics, by the names of ``rn50.benchmark.network.shapes``."""
    by_name = {name: tensor.data for name, tensor in trainable(network)}
    for module in _layers(network):
        # "bn0_" from "bn0_gamma". The classifier has no batch norm, and no buffers.
        norm = module.names.get("gamma", "").replace("gamma", "")
        by_name.update((f"{norm}{name}", buffer) for name, buffer in module.named_buffers(recurse=False))
    return by_name


def _layers(network: nn.Module) -> Iterator[Any]:
    """Return the modules that hold parameters: those with a dictionary ``names``, from an attribute of the
    module to the name of the parameter in it."""
    return (module for module in network.modules() if hasattr(module, "names"))


class Flat(NamedTuple):
    """All parameters in one tensor, and all gradients in another, so that the all-reduce is one operation and
    an update takes few.

    Both tensors are float32 of one dimension, with zeros in the gaps between parameters. Parameters with
    weight decay come first. Those without it, which have no trust ratio of LARS either, come last.
    """

    parameters: Sequence[NamedParameter]
    """The parameters in the order in which the tensors have them."""
    weights: torch.Tensor
    gradients: torch.Tensor


def flatten(parameters: Sequence[NamedParameter], zeros: Callable[[int], torch.Tensor]) -> Flat:
    """Move the values of the parameters into one tensor, and make each parameter and its gradient views of
    the tensors of the ``Flat`` that is returned.

    ``zeros`` makes the tensor of the gradients from its number of elements, perhaps in memory that ranks
    share.
    """
    ordered = sorted(parameters, key=lambda parameter: not optimizers.has_weight_decay(parameter.name))
    _, end = starts(ordered)
    flat = Flat(ordered, torch.zeros(end, device=ordered[0].tensor.device), zeros(end))
    rows = zip(ordered, views(flat.weights, ordered), views(flat.gradients, ordered), strict=True)
    for (_, tensor), value, gradient in rows:
        value.copy_(tensor.data)
        tensor.data, tensor.grad = value, gradient
    return flat


def views(flat: torch.Tensor, parameters: Sequence[NamedParameter]) -> list[torch.Tensor]:
    """Return for each parameter the part of ``flat`` that belongs to it, with the shape and the memory format
    of the parameter: channels-last for weights of convolutions."""
    begins, _ = starts(parameters)
    pairs = zip(parameters, begins, strict=True)
    return [torch.as_strided(flat, tensor.shape, tensor.stride(), begin) for (_, tensor), begin in pairs]


def starts(parameters: Sequence[NamedParameter]) -> tuple[list[int], int]:
    """Return the offset in elements at which each parameter begins in a flat tensor, and the length of the
    flat tensor."""
    sizes = (math.ceil(tensor.numel() / ALIGNMENT) * ALIGNMENT for _, tensor in parameters)
    # The running sums of the sizes: from 0, the first begin, to the length.
    *begins, end = itertools.accumulate(sizes, initial=0)
    return begins, end

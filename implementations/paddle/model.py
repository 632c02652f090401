"""ResNet-50 v1.5 in PaddlePaddle, its training loss, and its parameters by name.

He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition" (arXiv:1512.03385), in the v1.5 form of
the MLPerf reference: a down-sampling block has its stride in the 3x3 convolution. Parameters have the names
of the MLPerf rulesets, such as ``conv0_weight`` and ``bn0_gamma``.

Parameters and their gradients are always float32: the parameters are the master weights of mixed precision.
With ``precision`` "float16" or "bfloat16" the layers cast weights and images at the inputs of convolutions
and of the classifier. Activations are in half precision; the statistics of batch norm and the loss are
computed in float32. This is level O1 of paddle.amp. Its ``auto_cast`` is not used, because on some devices it
computes in float32, after no more than a warning. The gradients are those of the sum of the losses, not of
the mean, and so large enough for float16 without loss scaling.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from paddle import nn
from paddle.nn import functional

from implementations.paddle import paddle
from rn50.benchmark import network as geometry
from rn50.benchmark import rules
from rn50.benchmark.network import Convolution, Unit
from rn50.benchmark.quantization import INPUT_LEVELS, SMALLEST, WEIGHT_LEVELS

BATCH_NORM: dict[str, Any] = {"momentum": rules.BATCH_NORM_MOMENTUM, "epsilon": rules.BATCH_NORM_EPSILON}
ALIGNMENT = 64
"""In the one tensor of ``flatten_gradients`` each gradient begins at a multiple of this many elements: 256
bytes in float32, the boundary on which a separate tensor would begin."""


def rounded_weight(weight: paddle.Tensor) -> paddle.Tensor:
    """Return ``weight`` rounded as by ``rn50.benchmark.quantization.rounded_weight``, with one scale for each
    output channel. In the backward pass the rounding counts as the identity (a straight-through
    estimator)."""
    value = weight.detach()
    scale = value.abs().max(axis=list(range(1, value.ndim)), keepdim=True).clip(min=SMALLEST) / WEIGHT_LEVELS
    return weight + (paddle.round(value / scale) * scale - value)


def rounded_input(x: paddle.Tensor) -> paddle.Tensor:
    """Return ``x`` rounded as by ``rn50.benchmark.quantization.rounded_input``, with one scale and one zero
    point for the tensor. In the backward pass the rounding counts as the identity."""
    value = x.detach()
    low, high = value.min().clip(max=0.0), value.max().clip(min=0.0)
    scale = (high - low).clip(min=SMALLEST) / INPUT_LEVELS
    zero_point = paddle.round(-low / scale)
    levels = (paddle.round(value / scale) + zero_point).clip(0.0, INPUT_LEVELS)
    return x + ((levels - zero_point) * scale - value)


class ConvNorm(nn.Layer):
    """Convolution without bias and with stride s, batch norm, the sum with a shortcut if ``forward`` gets
    one, and ReLU if ``relu``: (N, inputs, H, W) -> (N, outputs, H/s, W/s), or channels last.

    ``gamma`` is the initial value of batch norm's gamma. ``ResNet50`` sets the three attributes below.
    """

    layout: str
    """Order of the axes of images: "NCHW" or "NHWC". Weights are (outputs, inputs, kernel, kernel) in
    both."""
    precision: str
    """Precision of the convolution: "float32", "float16" or "bfloat16"."""
    rounds: bool
    """True if weights and inputs are rounded as in int8."""

    def __init__(self, convolution: Convolution, relu: bool = True, gamma: float = 1.0):
        super().__init__()
        name, norm, inputs, outputs, kernel, stride = convolution
        self.names = {"weight": f"{name}_weight", "gamma": f"{norm}_gamma", "beta": f"{norm}_beta"}
        self.weight = empty(self, [outputs, inputs, kernel, kernel])
        self.gamma, self.beta = empty(self, [outputs]), empty(self, [outputs])
        self.register_buffer("running_mean", paddle.zeros([outputs]))
        self.register_buffer("running_var", paddle.ones([outputs]))
        self._convolution = {"stride": stride, "padding": convolution.padding}
        self._relu, self._first_gamma = relu, gamma

    def initialize(self, random: np.random.RandomState) -> None:
        """Set the values that a run begins with."""
        _, inputs, kernel, _ = self.weight.shape
        fill_normal(self.weight, (2 / (inputs * kernel * kernel)) ** 0.5, random)
        fill(self.gamma, self._first_gamma)
        fill(self.beta, 0)
        fill(self.running_mean, 0)
        fill(self.running_var, 1)

    def forward(self, x: paddle.Tensor, shortcut: paddle.Tensor | None = None) -> paddle.Tensor:
        weight = self.weight
        if self.rounds:
            x, weight = rounded_input(x), rounded_weight(weight)
        x, weight = cast(x, self.precision), cast(weight, self.precision)
        x = functional.conv2d(x, weight, data_format=self.layout, **self._convolution)
        norm = self.running_mean, self.running_var, self.gamma, self.beta
        x = functional.batch_norm(x, *norm, self.training, data_format=self.layout, **BATCH_NORM)
        x = x if shortcut is None else x + shortcut
        return functional.relu(x) if self._relu else x


class Classifier(nn.Layer):
    """The last layer: (N, ``inputs``) -> (N, ``classes``) in float32. ``bias`` is the initial value of its
    biases. ``ResNet50`` sets ``precision`` and ``rounds``."""

    names = {"weight": "fc1_weight", "bias": "fc1_bias"}
    precision: str
    """Precision of the matrix product."""
    rounds: bool
    """True if weights and inputs are rounded as in int8."""

    def __init__(self, inputs: int, classes: int, bias: float = 0.0):
        super().__init__()
        self._first_bias = bias
        self.weight, self.bias = empty(self, [classes, inputs]), empty(self, [classes])

    def initialize(self, random: np.random.RandomState) -> None:
        """Set the values that a run begins with."""
        fill_normal(self.weight, 0.01, random)
        fill(self.bias, self._first_bias)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        weight = self.weight
        if self.rounds:
            x, weight = rounded_input(x), rounded_weight(weight)
        # functional.linear would take a weight of shape (inputs, classes).
        products = paddle.matmul(cast(x, self.precision), cast(weight, self.precision), transpose_y=True)
        return cast(products, "float32") + self.bias


class Bottleneck(nn.Layer):
    """A residual block: 1x1, 3x3 (with the stride) and 1x1 convolutions, whose output is added to a shortcut.

    The shortcut is the input, or in the first block of a stage a convolution of the input. ``last_gamma`` is
    the initial gamma of the last batch norm.
    """

    def __init__(self, unit: Unit, last_gamma: float):
        super().__init__()
        first, second, last = unit.body
        self.first, self.second = ConvNorm(first), ConvNorm(second)
        self.last = ConvNorm(last, gamma=last_gamma)
        self.shortcut = ConvNorm(unit.shortcut[0], relu=False) if unit.shortcut else None

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        shortcut = x if self.shortcut is None else self.shortcut(x)
        return self.last(self.second(self.first(x)), shortcut)


class ResNet50(nn.Layer):
    """Computes logits (batch, classes) in float32 from images whose axes have the order ``layout``, "NCHW" or
    "NHWC".

    ``width`` multiplies every channel count; 1 is the network of the benchmark. With ``gamma_zero`` the gamma
    of the last batch norm of every block is 0 at first, so that a block begins as its shortcut (Goyal et al.,
    arXiv:1706.02677, section 5.1). Parameters have no values until ``initialize`` is called. With ``rounds``
    every layer rounds its weights and inputs as in int8.
    """

    def __init__(
        self,
        classes: int,
        width: float,
        gamma_zero: bool,
        precision: str,
        layout: str,
        rounds: bool = False,
        bias: float = 0.0,
    ):
        super().__init__()
        self.features = nn.Sequential(
            ConvNorm(geometry.stem(width)),
            nn.MaxPool2D(3, 2, 1, data_format=layout),
            *(Bottleneck(unit, 0.0 if gamma_zero else 1.0) for unit in geometry.units(width)),
            nn.AdaptiveAvgPool2D(1, data_format=layout),
            nn.Flatten(),
            Classifier(geometry.features(width), classes, bias),
        )
        for layer in _layers(self):
            layer.layout, layer.precision, layer.rounds = layout, precision, rounds

    def initialize(self, seed: int) -> None:
        """Set the values that a run begins with. NumPy draws the random ones, so that a seed gives equal
        values on every device."""
        random = np.random.RandomState(seed)
        for layer in _layers(self):
            layer.initialize(random)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.features(x)


def cast(tensor: paddle.Tensor, precision: str) -> paddle.Tensor:
    """Return a tensor in a precision; the tensor itself if it has this precision."""
    dtype = getattr(paddle, precision)
    return tensor if tensor.dtype == dtype else tensor.astype(dtype)


def empty(layer: nn.Layer, shape: Sequence[int]) -> Any:
    """Return a new parameter of ``layer``, whose values ``initialize`` sets later."""
    return layer.create_parameter(shape, default_initializer=nn.initializer.Constant(0.0))


def fill(tensor: paddle.Tensor, value: float) -> None:
    """Fill a float32 tensor with one value."""
    tensor.set_value(np.full(tensor.shape, value, np.float32))


def fill_normal(parameter: paddle.Tensor, deviation: float, random: np.random.RandomState) -> None:
    """Fill a parameter with normally distributed values of mean 0 and this standard deviation."""
    parameter.set_value((random.standard_normal(parameter.shape) * deviation).astype(np.float32))


def training_loss(
    network: nn.Layer,
    images: paddle.Tensor,
    labels: paddle.Tensor,
    label_smoothing: float,
    binary: bool = False,
) -> paddle.Tensor:
    """Return the cross entropy of every sample, shape (batch,), with the target ``(1 - e) * onehot + e /
    classes``, where e is ``label_smoothing``.

    The cross entropy is that of a softmax over the classes. With ``binary`` it is the sum over the classes of
    that of a sigmoid: ``sum(softplus(z) - t * z)`` for logits z and the target t.
    """
    logits, e = network(images), label_smoothing
    if not binary:
        losses = functional.cross_entropy(logits, labels, reduction="none", label_smoothing=e)
        return losses.reshape([-1])
    of_label = paddle.take_along_axis(logits, labels.unsqueeze(1), axis=1).squeeze(1)
    of_target = (1 - e) * of_label + e / logits.shape[1] * logits.sum(axis=1)
    return functional.softplus(logits).sum(axis=1) - of_target


class NamedParameter(NamedTuple):
    """A parameter, and its name in the MLPerf rulesets."""

    name: str
    tensor: paddle.Tensor


def trainable(network: nn.Layer) -> tuple[NamedParameter, ...]:
    """Return the parameters that have a gradient, 161 in ResNet-50, in the order of the layers."""
    rows = ((layer, kind, name) for layer in _layers(network) for kind, name in layer.names.items())
    return tuple(NamedParameter(name, getattr(layer, kind)) for layer, kind, name in rows)


def tensors(network: nn.Layer) -> dict[str, paddle.Tensor]:
    """Return parameters and running statistics, by the names of ``rn50.benchmark.network.shapes``."""
    by_name = dict(trainable(network))
    for layer in _layers(network):
        # "bn0_running_mean" beside "bn0_gamma". The classifier has neither a gamma nor buffers.
        norm = layer.names.get("gamma", "").removesuffix("gamma")
        by_name.update((f"{norm}{name}", buffer) for name, buffer in layer.named_buffers())
    return by_name


def _layers(network: nn.Layer) -> Iterator[Any]:
    """Return the layers with parameters of their own, each with a dictionary ``names``: attribute of the
    layer -> name of the parameter."""
    return (layer for layer in network.sublayers(include_self=True) if hasattr(layer, "names"))


def flatten_gradients(
    parameters: Sequence[NamedParameter], zeros: Callable[[int], paddle.Tensor]
) -> paddle.Tensor:
    """Make every gradient a view of a part of one tensor of one dimension, so that one all-reduce sums all
    gradients. Return this tensor.

    ``zeros(size)`` creates the tensor, of ``size`` values, perhaps in memory that ranks share. From now on
    backpropagation adds to it. Nobody may call ``clear_grad`` any more: the next backpropagation would then
    create separate gradients, without a message.
    """
    tensors = [parameter.tensor for parameter in parameters]
    # Each size is rounded up to the alignment, so that the next gradient begins there.
    sizes = (math.ceil(tensor.size / ALIGNMENT) * ALIGNMENT for tensor in tensors)
    *begins, end = itertools.accumulate(sizes, initial=0)
    flat = zeros(end)
    # Create the gradients by any backpropagation: only a gradient that exists can get other memory.
    paddle.add_n([tensor.sum() for tensor in tensors]).backward()
    for tensor, begin in zip(tensors, begins, strict=False):
        # PaddlePaddle has no public function for this; its own tensor_fusion_helper.py does it in this way.
        view = flat._slice(begin, begin + tensor.size)
        view.get_tensor()._set_dims(tensor.shape)
        view._share_buffer_to(tensor.grad)
    return flat

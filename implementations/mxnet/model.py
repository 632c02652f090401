"""ResNet-50 v1.5 in Gluon, and the two graphs a run executes: training loss and evaluation.

He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition" (arXiv:1512.03385), in the v1.5 form of
the MLPerf reference: a down-sampling block has its stride in the 3x3 convolution. Parameters have the names
that the rulesets compare.

Parameters are always float32. With ``precision`` "float16" or "bfloat16" the graph casts them, and the
activations, at the inputs of convolutions and the classifier. So parameters are the master weights of mixed
precision, and gradients are float32 again.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mxnet as mx
from mxnet import autograd
from mxnet.contrib.amp import amp
from mxnet.gluon import HybridBlock, nn

from rn50.benchmark import network as geometry
from rn50.benchmark import rules
from rn50.benchmark.network import Convolution, Unit
from rn50.benchmark.quantization import INPUT_LEVELS, SMALLEST, WEIGHT_LEVELS

BATCH_NORM: dict[str, Any] = {
    "momentum": rules.BATCH_NORM_MOMENTUM,
    "eps": rules.BATCH_NORM_EPSILON,
    "fix_gamma": False,
    "use_global_stats": False,
}


class Layout(NamedTuple):
    """The way in which the network is computed; it does not change the function."""

    axes: str
    """"NCHW" or "NHWC"."""
    precision: str
    """"float32", "float16" or "bfloat16"."""
    fused_relu: bool
    """Batch norm and ReLU in one operator, which exists for float32 on a CPU."""
    rounds: bool = False
    """Weights and inputs of every layer rounded as in int8."""
    image_size: int = rules.IMAGE_SIZE
    """Side of the images, in pixels."""

    def operands(self, F: Any, x: Any, weight: Any) -> tuple[Any, Any]:
        """Return the input and the weight of a layer as they are multiplied.

        In float16 all inputs have that type, from the images on. One more cast would copy nothing by itself,
        but MXNet fuses it with the ReLU before it on a GPU, and the kernel writes the output of both.
        """
        if self.rounds:
            x, weight = rounded_input(F, x), rounded_weight(F, weight)
        return x if self.precision == "float16" else self.cast(F, x), self.cast(F, weight)

    def cast(self, F: Any, x: Any) -> Any:
        """Return ``x`` in the precision of the matrix products."""
        if self.precision == "float32":
            return x
        return F.amp_cast(x, dtype=amp.bfloat16 if self.precision == "bfloat16" else self.precision)

    def uncast(self, F: Any, x: Any) -> Any:
        """Return ``x`` as float32."""
        return x if self.precision == "float32" else F.amp_cast(x, dtype="float32")


def rounded_weight(F: Any, weight: Any) -> Any:
    """Return ``rn50.benchmark.quantization.rounded_weight``; the gradient passes through."""
    scale = F.maximum(F.max(F.abs(weight), axis=0, exclude=True, keepdims=True), SMALLEST) / WEIGHT_LEVELS
    rounded = F.broadcast_mul(F.rint(F.broadcast_div(weight, scale)), scale)
    return weight + F.BlockGrad(rounded - weight)


def rounded_input(F: Any, x: Any) -> Any:
    """Return ``rn50.benchmark.quantization.rounded_input``; the gradient passes through."""
    low, high = F.minimum(F.min(x, keepdims=True), 0), F.maximum(F.max(x, keepdims=True), 0)
    scale = F.maximum(high - low, SMALLEST) / INPUT_LEVELS
    zero_point = F.rint(-low / scale)
    levels = F.clip(F.broadcast_add(F.rint(F.broadcast_div(x, scale)), zero_point), 0, INPUT_LEVELS)
    rounded = F.broadcast_mul(F.broadcast_sub(levels, zero_point), scale)
    return x + F.BlockGrad(rounded - x)


def relu(F: Any, x: Any) -> Any:
    """Return max(x, 0). On a CPU ``Activation`` is a kernel of oneDNN; ``F.relu`` is not
    (docs/measurements.md)."""
    return F.Activation(x, act_type="relu")


class ConvNorm(HybridBlock):
    """Convolution without bias, batch norm and, if ``relu``, ReLU: (N, inputs, H, W) -> (N, outputs, H/s,
    W/s)."""

    def __init__(self, convolution: Convolution, layout: Layout, relu: bool = True, gamma: str = "ones"):
        name, norm, inputs, outputs, kernel, stride = convolution
        unit = name.rpartition("conv")[0]
        super().__init__(prefix=unit)
        name, norm = name.removeprefix(unit), norm.removeprefix(unit)
        sides = kernel, kernel
        shape = (outputs, inputs, *sides) if layout.axes == "NCHW" else (outputs, *sides, inputs)
        drawn = mx.init.Normal((2 / (inputs * kernel * kernel)) ** 0.5)
        self.weight = self.params.get(f"{name}_weight", shape=shape, init=drawn)
        self.gamma = self.params.get(f"{norm}_gamma", shape=(outputs,), init=gamma)
        self.beta = self.params.get(f"{norm}_beta", shape=(outputs,), init="zeros")
        self.running_mean = self.params.get(
            f"{norm}_running_mean", shape=(outputs,), init="zeros", grad_req="null"
        )
        self.running_var = self.params.get(
            f"{norm}_running_var", shape=(outputs,), init="ones", grad_req="null"
        )
        self._convolution = {
            "kernel": sides,
            "stride": (stride, stride),
            "pad": (convolution.padding, convolution.padding),
            "num_filter": outputs,
            "no_bias": True,
            "layout": layout.axes,
        }
        self._layout, self._relu = layout, relu

    def hybrid_forward(
        self, F: Any, x: Any, weight: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        x = F.Convolution(*self._layout.operands(F, x, weight), **self._convolution)
        fused = self._relu and self._layout.fused_relu
        batch_norm = F.contrib.BatchNormWithReLU if fused else F.BatchNorm
        x = batch_norm(
            x, gamma, beta, running_mean, running_var, axis=self._layout.axes.index("C"), **BATCH_NORM
        )
        return relu(F, x) if self._relu and not fused else x


class Classifier(HybridBlock):
    """The last layer: (N, ``inputs``) -> (N, ``classes``), float32."""

    def __init__(self, inputs: int, classes: int, layout: Layout):
        super().__init__(prefix="fc1_")
        self.weight = self.params.get("weight", shape=(classes, inputs), init=mx.init.Normal(0.01))
        self.bias = self.params.get("bias", shape=(classes,), init="zeros")
        self._layout, self._classes = layout, classes

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any) -> Any:
        operands = *self._layout.operands(F, x, weight), self._layout.cast(F, bias)
        return self._layout.uncast(F, F.FullyConnected(*operands, num_hidden=self._classes))


class Bottleneck(HybridBlock):
    """1x1, 3x3 (with the stride) and 1x1 convolutions beside a shortcut: (N, inputs, ``side``, ``side``) ->
    (N, outputs, ``side``/s, ``side``/s)."""

    def __init__(self, unit: Unit, side: int, layout: Layout, last_gamma: str):
        first, second, last = unit.body
        name = first.name.removesuffix("conv1")
        super().__init__(prefix=name)
        # From an odd side oneDNN's fast 1x1 kernels take no stride. Its others took a tenth of the demo's
        # step on a CPU without AVX-512. So every second pixel is picked first.
        self._picks = side % 2 == 1 and second.stride == 2 and layout.fused_relu and not layout.rounds
        self.body = nn.HybridSequential(prefix=name)
        self.body.add(ConvNorm(first, layout), ConvNorm(second, layout))
        self.body.add(ConvNorm(last, layout, relu=False, gamma=last_gamma))
        self.shortcut = None
        if unit.shortcut:
            stride = 1 if self._picks else second.stride
            self.shortcut = ConvNorm(unit.shortcut[0]._replace(stride=stride), layout, relu=False)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        picked = F.Pooling(x, kernel=(1, 1), stride=(2, 2), pool_type="avg") if self._picks else x
        shortcut = x if self.shortcut is None else self.shortcut(picked)
        return relu(F, self.body(x) + shortcut)


class ResNet50(HybridBlock):
    """Logits of shape (batch, classes) in float32 from images in NCHW or NHWC, as the layout says.

    ``width`` multiplies every channel count; 1 is the network of the benchmark. With ``gamma_zero`` the last
    batch norm of every block starts at 0, so that a block starts as its shortcut (Goyal et al.,
    arXiv:1706.02677, section 5.1).
    """

    def __init__(self, classes: int, width: float, gamma_zero: bool, layout: Layout):
        super().__init__(prefix="")
        self.features = nn.HybridSequential(prefix="")
        # For three channels oneDNN's only bfloat16 kernel is a plain matrix product, whose layout makes batch
        # norm slow too.
        first = layout
        if layout.precision == "bfloat16":
            first = layout._replace(precision="float32", fused_relu=True)
        self.features.add(
            nn.HybridLambda(first.cast),
            ConvNorm(geometry.stem(width), first),
            nn.MaxPool2D(3, 2, 1, layout=layout.axes),
        )
        side = math.ceil(layout.image_size / 4)
        for unit in geometry.units(width):
            self.features.add(Bottleneck(unit, side, layout, "zeros" if gamma_zero else "ones"))
            side = math.ceil(side / unit.body[1].stride)
        classifier = Classifier(geometry.features(width), classes, layout)
        self.features.add(nn.GlobalAvgPool2D(layout=layout.axes), nn.Flatten(), classifier)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.features(x)


class TrainingLoss(HybridBlock):
    """Cross entropy of every sample, shape (batch,), against the smoothed target ``(1 - e) * onehot + e /
    classes``."""

    def __init__(self, network: HybridBlock, classes: int, label_smoothing: float):
        super().__init__(prefix="")
        self.network, self._classes, self._smoothing = network, classes, label_smoothing

    def hybrid_forward(self, F: Any, images: Any, labels: Any) -> Any:
        log_probability = F.log_softmax(self.network(images))
        loss = -(1 - self._smoothing) * F.pick(log_probability, labels)
        return loss - self._smoothing / self._classes * F.sum(log_probability, axis=1)


class Evaluation(HybridBlock):
    """1 for every sample whose highest logit is its label, else 0; shape (batch,)."""

    def __init__(self, network: HybridBlock):
        super().__init__(prefix="")
        self.network = network

    def hybrid_forward(self, F: Any, images: Any, labels: Any) -> Any:
        return F.argmax(self.network(images), axis=1) == labels


def trainable(network: HybridBlock) -> tuple[Any, ...]:
    """Return the 161 parameters that have a gradient, in the order of the network."""
    return tuple(p for p in network.collect_params().values() if p.grad_req != "null")


def flatten_gradients(parameters: Sequence[Any], groups: int, zeros: Callable[[int], Any]) -> list[Any]:
    """Flatten the gradients into ``groups`` buckets, arrays of one dimension, and return these.

    So each all-reduce is one operation and nothing is copied. ``zeros(values)`` makes an array. The
    last layer comes first, in the order in which backpropagation finishes the gradients.

    Call it before the first backpropagation, because a graph of static shape keeps writing to the arrays it
    has used.
    """
    backward = list(reversed(parameters))
    size = math.ceil(len(backward) / groups)
    flat = []
    for group in (backward[start : start + size] for start in range(0, len(backward), size)):
        # Each gradient begins on a boundary of 256 bytes like a separate array, because kernels on GPUs read
        # 16 bytes at a time.
        ends = list(itertools.accumulate(math.ceil(parameter.data().size / 64) * 64 for parameter in group))
        array = zeros(ends[-1])
        for parameter, start in zip(group, [0, *ends], strict=False):
            # Gluon has no public way to set the array of a gradient.
            parameter._grad = [array[start : start + parameter.data().size].reshape(parameter.shape)]
            autograd.mark_variables(parameter.list_data(), parameter.list_grad())
        flat.append(array)
    return flat

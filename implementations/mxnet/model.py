"""ResNet-50 v1.5 in Gluon, and the two graphs that the engine executes: training loss and evaluation.

He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition" (arXiv:1512.03385), in the v1.5 form of
the MLPerf reference: a down-sampling block has its stride in the 3x3 convolution. Parameters have the names
that the MLPerf rulesets compare.

Parameters and their gradients are always float32: the parameters are the master weights of mixed precision.
In "float16" or "bfloat16" the graph casts weights and activations at the inputs of convolutions and of the
classifier. In the methods ``hybrid_forward``, ``F`` is the module with the operators of MXNet, and the other
arguments are arrays or, while Gluon builds the graph, symbols.
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
    """The order of axes, the precision and the operators with which the layers compute."""

    axes: str
    """Order of the axes of images and activations: "NCHW" or "NHWC"."""
    precision: str
    """Precision of the matrix products: "float32", "float16" or "bfloat16"."""
    fused_relu: bool
    """True: batch norm and ReLU are one operator, which exists for float32 on a CPU only."""
    rounds: bool = False
    """True: every layer rounds its weights and inputs as in int8."""
    image_size: int = rules.IMAGE_SIZE
    """Side of the images, in pixels."""

    def operands(self, F: Any, x: Any, weight: Any) -> tuple[Any, Any]:
        """Return the input and the weight of a layer in the form in which the layer multiplies them.

        With float16 the input has this type already, because images and all activations have it, and is not
        cast. A cast that changes nothing would still cost time: on a GPU MXNet fuses it with the ReLU before
        it, and the fused kernel writes the output of both.
        """
        if self.rounds:
            x, weight = rounded_input(F, x), rounded_weight(F, weight)
        if self.precision != "float16":
            x = self.cast(F, x)
        return x, self.cast(F, weight)

    def cast(self, F: Any, x: Any) -> Any:
        """Return ``x`` in ``precision``."""
        if self.precision == "float32":
            return x
        return F.amp_cast(x, dtype=amp.bfloat16 if self.precision == "bfloat16" else self.precision)

    def uncast(self, F: Any, x: Any) -> Any:
        """Return ``x`` as float32."""
        return x if self.precision == "float32" else F.amp_cast(x, dtype="float32")


def rounded_weight(F: Any, weight: Any) -> Any:
    """Return ``weight`` rounded as by ``rn50.benchmark.quantization.rounded_weight``, with one scale for each
    output channel. In the backward pass the rounding counts as the identity (a straight-through
    estimator)."""
    scale = F.maximum(F.max(F.abs(weight), axis=0, exclude=True, keepdims=True), SMALLEST) / WEIGHT_LEVELS
    rounded = F.broadcast_mul(F.rint(F.broadcast_div(weight, scale)), scale)
    return weight + F.BlockGrad(rounded - weight)


def rounded_input(F: Any, x: Any) -> Any:
    """Return ``x`` rounded as by ``rn50.benchmark.quantization.rounded_input``, with one scale and one zero
    point for the array. In the backward pass the rounding counts as the identity."""
    low, high = F.minimum(F.min(x, keepdims=True), 0), F.maximum(F.max(x, keepdims=True), 0)
    scale = F.maximum(high - low, SMALLEST) / INPUT_LEVELS
    zero_point = F.rint(-low / scale)
    levels = F.clip(F.broadcast_add(F.rint(F.broadcast_div(x, scale)), zero_point), 0, INPUT_LEVELS)
    rounded = F.broadcast_mul(F.broadcast_sub(levels, zero_point), scale)
    return x + F.BlockGrad(rounded - x)


def relu(F: Any, x: Any) -> Any:
    """Return max(x, 0) by ``F.Activation``, which on a CPU is a fast kernel of oneDNN; ``F.relu`` is not
    (docs/measurements.md)."""
    return F.Activation(x, act_type="relu")


class ConvNorm(HybridBlock):
    """Convolution without bias and with stride s, batch norm, and ReLU if ``relu``: (N, inputs, H, W) -> (N,
    outputs, H/s, W/s). ``gamma`` is the initial value of batch norm's gamma: "ones" or "zeros"."""

    def __init__(self, convolution: Convolution, layout: Layout, relu: bool = True, gamma: str = "ones"):
        whole_name, norm_name, inputs, outputs, kernel, stride = convolution
        unit = whole_name.rpartition("conv")[0]  # as "stage1_unit1_", which Gluon puts before the names below
        super().__init__(prefix=unit)
        name, norm = whole_name.removeprefix(unit), norm_name.removeprefix(unit)
        sides = kernel, kernel
        shape = (outputs, inputs, *sides) if layout.axes == "NCHW" else (outputs, *sides, inputs)
        he_normal = mx.init.Normal((2 / (inputs * kernel * kernel)) ** 0.5)
        get = self.params.get  # makes a parameter
        self.weight = get(f"{name}_weight", shape=shape, init=he_normal)
        self.gamma = get(f"{norm}_gamma", shape=(outputs,), init=gamma)
        self.beta = get(f"{norm}_beta", shape=(outputs,), init="zeros")
        self.running_mean = get(f"{norm}_running_mean", shape=(outputs,), init="zeros", grad_req="null")
        self.running_var = get(f"{norm}_running_var", shape=(outputs,), init="ones", grad_req="null")
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
    """The last layer: (N, ``inputs``) -> (N, ``classes``), float32. ``bias`` is the initial value of its
    biases."""

    def __init__(self, inputs: int, classes: int, layout: Layout, bias: float = 0.0):
        super().__init__(prefix="fc1_")
        self.weight = self.params.get("weight", shape=(classes, inputs), init=mx.init.Normal(0.01))
        self.bias = self.params.get("bias", shape=(classes,), init=mx.init.Constant(bias))
        self._layout, self._classes = layout, classes

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any) -> Any:
        operands = *self._layout.operands(F, x, weight), self._layout.cast(F, bias)
        return self._layout.uncast(F, F.FullyConnected(*operands, num_hidden=self._classes))


class Bottleneck(HybridBlock):
    """A residual block: 1x1, 3x3 (with the stride) and 1x1 convolutions, whose output is added to a shortcut:
    (N, inputs, ``side``, ``side``) -> (N, outputs, ``side``/s, ``side``/s).

    The shortcut is the input, or in the first block of a stage a convolution of the input. ``last_gamma`` is
    the initial gamma of the last batch norm: "ones" or "zeros".
    """

    def __init__(self, unit: Unit, side: int, layout: Layout, last_gamma: str):
        first, second, last = unit.body
        name = first.name.removesuffix("conv1")
        super().__init__(prefix=name)
        # oneDNN's fast 1x1 kernels take no stride of 2 if the side is odd. Its slower ones, in the shortcut,
        # took a tenth of the demo's step on a CPU without AVX-512. So on a CPU (``fused_relu``) a pooling
        # first picks every second pixel, and the convolution of the shortcut has stride 1. Not so with
        # ``rounds``, because the range of int8 is that of all pixels of the input.
        has_slow_shortcut = side % 2 == 1 and second.stride == 2
        self._picks = has_slow_shortcut and layout.fused_relu and not layout.rounds
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
    """Computes logits (batch, classes) in float32 from images in the order of axes that ``layout`` has.

    ``width`` multiplies every channel count; 1 is the network of the benchmark. With ``gamma_zero`` the gamma
    of the last batch norm of every block is 0 at first, so that a block begins as its shortcut (Goyal et al.,
    arXiv:1706.02677, section 5.1).
    """

    def __init__(self, classes: int, width: float, gamma_zero: bool, layout: Layout, bias: float = 0.0):
        super().__init__(prefix="")
        self.features = nn.HybridSequential(prefix="")
        # bfloat16 is for CPUs alone. The first convolution stays in float32: for three channels oneDNN's only
        # bfloat16 kernel is a plain matrix product, and the memory layout of its output makes the batch norm
        # slow too.
        first = layout
        if layout.precision == "bfloat16":
            first = layout._replace(precision="float32", fused_relu=True)
        self.features.add(
            nn.HybridLambda(first.cast),
            ConvNorm(geometry.stem(width), first),
            nn.MaxPool2D(3, 2, 1, layout=layout.axes),
        )
        side = math.ceil(layout.image_size / 4)  # after the first convolution and the pooling
        for unit in geometry.units(width):
            self.features.add(Bottleneck(unit, side, layout, "zeros" if gamma_zero else "ones"))
            side = math.ceil(side / unit.body[1].stride)
        classifier = Classifier(geometry.features(width), classes, layout, bias)
        self.features.add(nn.GlobalAvgPool2D(layout=layout.axes), nn.Flatten(), classifier)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.features(x)


class TrainingLoss(HybridBlock):
    """Computes the cross entropy of every sample, shape (batch,), with the target ``(1 - e) * onehot + e /
    classes``, where e is ``label_smoothing``.

    The cross entropy is that of a softmax over the classes. With ``binary`` it is the sum over the classes of
    that of a sigmoid: ``sum(softplus(z) - t * z)`` for logits z and the target t.
    """

    def __init__(self, network: HybridBlock, classes: int, label_smoothing: float, binary: bool = False):
        super().__init__(prefix="")
        self.network, self._classes, self._smoothing = network, classes, label_smoothing
        self._binary = binary

    def hybrid_forward(self, F: Any, images: Any, labels: Any) -> Any:
        logits = self.network(images)
        scores = logits if self._binary else F.log_softmax(logits)
        of_target = (1 - self._smoothing) * F.pick(scores, labels)
        of_target = of_target + self._smoothing / self._classes * F.sum(scores, axis=1)
        if not self._binary:
            return -of_target
        return F.sum(F.Activation(logits, act_type="softrelu"), axis=1) - of_target  # softrelu: softplus


class Evaluation(HybridBlock):
    """Computes 1 for every sample whose highest logit is at its label, else 0; shape (batch,)."""

    def __init__(self, network: HybridBlock):
        super().__init__(prefix="")
        self.network = network

    def hybrid_forward(self, F: Any, images: Any, labels: Any) -> Any:
        return F.argmax(self.network(images), axis=1) == labels


def trainable(network: HybridBlock) -> tuple[Any, ...]:
    """Return the parameters that have a gradient, 161 in ResNet-50, in the order of the layers."""
    parameters = network.collect_params().values()
    return tuple(parameter for parameter in parameters if parameter.grad_req != "null")


def flatten_gradients(parameters: Sequence[Any], groups: int, zeros: Callable[[int], Any]) -> list[Any]:
    """Make every gradient a view of one of at most ``groups`` buckets, arrays of one dimension, and return
    the buckets.

    An all-reduce of a bucket is then one operation and copies nothing. ``zeros(values)`` creates a bucket.
    The gradients of the last layer come first, in the order in which backpropagation finishes them, so that
    the all-reduce of the first bucket can begin while backpropagation goes on.

    Call this before the first backpropagation: a graph of static shape keeps writing to the arrays to which
    it wrote the first gradients.
    """
    backward = list(reversed(parameters))
    size = math.ceil(len(backward) / groups)
    buckets = []
    for first in range(0, len(backward), size):
        group = backward[first : first + size]
        # Each gradient begins at a multiple of 64 elements, 256 bytes, as an array of its own would: kernels
        # on GPUs read 16 bytes at a time.
        ends = list(itertools.accumulate(math.ceil(parameter.data().size / 64) * 64 for parameter in group))
        bucket = zeros(ends[-1])
        for parameter, start in zip(group, [0, *ends], strict=False):
            # Gluon has no public way to set the array of a gradient.
            parameter._grad = [bucket[start : start + parameter.data().size].reshape(parameter.shape)]
            autograd.mark_variables(parameter.list_data(), parameter.list_grad())
        buckets.append(bucket)
    return buckets

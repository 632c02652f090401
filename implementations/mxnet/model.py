"""ResNet-50 v1.5 in Gluon, and the two graphs a run executes: training loss and evaluation.

He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition" (arXiv:1512.03385), in the v1.5 form of the MLPerf
reference: a down-sampling block has its stride in the 3x3 convolution. Parameters carry the names that the MLPerf rulesets compare.
"""

from typing import Any, Tuple

import mxnet as mx
from mxnet.gluon import HybridBlock, nn

from rn50 import rules

STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
EXPANSION = 4


class ConvNorm(HybridBlock):
    """Convolution without bias, batch norm and, unless ``relu`` is False, ReLU."""

    def __init__(self, unit: str, index: str, channels: int, kernel: int, stride: int, layout: str, relu: bool, gamma: str = "ones"):
        super().__init__(prefix=f"{unit}conv{index}_")
        # The names of the log: conv1 with bn1, but conv1sc with bnsc.
        self.convolution = nn.Conv2D(
            channels,
            kernel,
            stride,
            padding=kernel // 2,
            use_bias=False,
            layout=layout,
            weight_initializer=mx.init.MSRAPrelu(factor_type="in", slope=0),
            prefix=f"{unit}conv{index}_",
        )
        self.norm = nn.BatchNorm(
            axis=layout.index("C"),
            momentum=rules.BATCH_NORM_MOMENTUM,
            epsilon=rules.BATCH_NORM_EPSILON,
            gamma_initializer=gamma,
            prefix=f"{unit}bn{index.replace('1sc', 'sc')}_",
        )
        self.relu = relu

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        x = self.norm(self.convolution(x))
        return F.relu(x) if self.relu else x


class Bottleneck(HybridBlock):
    """1x1, 3x3 (with the stride) and 1x1 convolutions beside a shortcut."""

    def __init__(self, stage: int, unit: int, channels: int, stride: int, layout: str, last_gamma: str):
        name = f"stage{stage}_unit{unit}_"
        super().__init__(prefix=name)
        self.body = nn.HybridSequential(prefix=name)
        self.body.add(
            ConvNorm(name, "1", channels, 1, 1, layout, relu=True),
            ConvNorm(name, "2", channels, 3, stride, layout, relu=True),
            ConvNorm(name, "3", channels * EXPANSION, 1, 1, layout, relu=False, gamma=last_gamma),
        )
        self.shortcut = ConvNorm(name, "1sc", channels * EXPANSION, 1, stride, layout, relu=False) if unit == 1 else None

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        shortcut = x if self.shortcut is None else self.shortcut(x)
        return F.relu(self.body(x) + shortcut)


class ResNet50(HybridBlock):
    """Logits of shape (batch, classes) in float32 from images in ``layout`` "NCHW" or "NHWC".

    ``width`` multiplies every channel count; 1 is the network of the benchmark. With ``gamma_zero`` the last batch norm of every
    block starts at 0, so that a block starts as its shortcut (Goyal et al., arXiv:1706.02677, section 5.1).
    """

    def __init__(self, classes: int, width: float, layout: str, gamma_zero: bool):
        super().__init__(prefix="")
        self.features = nn.HybridSequential(prefix="")
        stem = round(64 * width)
        self.features.add(ConvNorm("", "0", stem, 7, 2, layout, relu=True), nn.MaxPool2D(3, 2, 1, layout=layout))
        for stage, (units, channels) in enumerate(STAGES, start=1):
            for unit in range(1, units + 1):
                stride = 2 if unit == 1 and stage > 1 else 1
                gamma = "zeros" if gamma_zero else "ones"
                self.features.add(Bottleneck(stage, unit, round(channels * width), stride, layout, gamma))
        self.features.add(nn.GlobalAvgPool2D(layout=layout), nn.Flatten())
        self.classifier = nn.Dense(classes, weight_initializer=mx.init.Normal(0.01), prefix="fc1_")

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.cast(self.classifier(self.features(x)), "float32")


class TrainingLoss(HybridBlock):
    """Cross entropy of every sample, shape (batch,), against the smoothed target ``(1 - e) * onehot + e / classes``."""

    def __init__(self, network: ResNet50, classes: int, label_smoothing: float):
        super().__init__(prefix="")
        self.network = network
        self._classes = classes
        self._smoothing = label_smoothing

    def hybrid_forward(self, F: Any, images: Any, labels: Any) -> Any:
        log_probability = F.log_softmax(self.network(images))
        loss = -(1 - self._smoothing) * F.pick(log_probability, labels)
        return loss - self._smoothing / self._classes * F.sum(log_probability, axis=1)


class Evaluation(HybridBlock):
    """1 for every sample whose highest logit is its label, else 0; shape (batch,)."""

    def __init__(self, network: ResNet50):
        super().__init__(prefix="")
        self.network = network

    def hybrid_forward(self, F: Any, images: Any, labels: Any) -> Any:
        return F.argmax(self.network(images), axis=1) == labels


def trainable(network: ResNet50) -> Tuple[Any, ...]:
    """The parameters that have a gradient, in the order of the network: 161 of them."""
    return tuple(p for p in network.collect_params().values() if p.grad_req != "null")

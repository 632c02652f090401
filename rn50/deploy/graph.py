"""Build the ONNX graph of the network: the layers of ``rn50.benchmark.network`` with the tensors of a file of
weights. ``export.py`` calls ``model``."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rn50 import files
from rn50.benchmark import network, rules
from rn50.benchmark.network import CLASSIFIER, Convolution
from rn50.packages import needed_for
from rn50.weights.weights_file import Weights

with needed_for("ONNX models"):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 17, 8
"""The versions of ONNX 1.12, of 2022: older runtimes than those of the latest release can read the file."""
INPUT, OUTPUT = "images", "logits"
"""Names of the input and the output of the graph."""
NORM = ("gamma", "beta", "running_mean", "running_var")
"""Tensors of a batch norm, in the order of ONNX's inputs."""


def model(weights: Weights, facts: Mapping[str, str], fold: bool = True, preprocessing: bool = False) -> Any:
    """Return the network as an ``onnx.ModelProto``, with ``facts`` as metadata and a dynamic batch size N.

    Its input are normalised images, float32 (N, 3, S, S). With ``preprocessing`` it is decoded images of any
    size, uint8 (N, H, W, 3), which the graph resizes, crops and normalises first. With ``fold`` each batch
    norm becomes part of the weight and the bias of the convolution before it.
    """
    graph = _Graph(weights, fold)
    size = weights.image_size
    if preprocessing:
        images = helper.make_tensor_value_info(INPUT, TensorProto.UINT8, ["N", "H", "W", 3])
        graph.network(graph.preprocessed(INPUT, weights.eval_resize, size))
    else:
        images = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["N", 3, size, size])
        graph.network(INPUT)
    logits = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["N", weights.classes])
    body = helper.make_graph(graph.nodes, "resnet50_v1.5", [images], [logits], graph.constants)
    proto = helper.make_model(body, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    label(proto, facts)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def label(proto: Any, facts: Mapping[str, str]) -> None:
    """Mark a model as made by rn50, in fields that stand before the graph in its file, and replace its
    metadata by ``facts``."""
    proto.producer_name, proto.doc_string = "rn50", files.MARK
    helper.set_model_props(proto, dict(facts))


class _Graph:
    """Collects the nodes and constants of a graph, in the order of the computation.

    Tensors of the graph are denoted by their names: a method takes the names of its inputs, adds nodes, and
    returns the name of its output.
    """

    def __init__(self, weights: Weights, fold: bool):
        self._weights, self._fold = weights, fold
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def network(self, x: str) -> None:
        """Add the network, from the normalised images ``x`` to ``OUTPUT``."""
        x = self._node("Relu", self._convolution(network.stem(self._weights.width), x))
        x = self._node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        for unit in network.units(self._weights.width):
            shortcut = self._convolution(unit.shortcut[0], x) if unit.shortcut else x
            first, second, last = unit.body
            for convolution in (first, second):
                x = self._node("Relu", self._convolution(convolution, x))
            x = self._node("Relu", self._node("Add", self._convolution(last, x), shortcut))
        x = self._node("Flatten", self._node("GlobalAveragePool", x))
        parameters = (f"{CLASSIFIER}_weight", f"{CLASSIFIER}_bias")
        names = [self._constant(name, self._weights.arrays[name]) for name in parameters]
        self._node("Gemm", x, *names, output=OUTPUT, transB=1)

    def _convolution(self, convolution: Convolution, x: str) -> str:
        """Add a convolution of ``x`` and its batch norm, as one node if batch norms are folded, else as two.
        Return the name of the output."""
        arrays = self._weights.arrays
        norm = {part: arrays[f"{convolution.norm}_{part}"] for part in NORM}
        sides = {"kernel_shape": [convolution.kernel] * 2, "strides": [convolution.stride] * 2}
        attributes: dict[str, Any] = {**sides, "pads": [convolution.padding] * 4}
        weight = f"{convolution.name}_weight"
        if self._fold:  # (Wx - mean) scale + beta = (scale W)x + (beta - mean scale), in float64
            gamma, beta, mean, variance = (array.astype(np.float64) for array in norm.values())
            scale = gamma / np.sqrt(variance + rules.BATCH_NORM_EPSILON)
            folded = self._constant(weight, arrays[weight] * scale[:, None, None, None])
            bias = self._constant(f"{convolution.name}_bias", beta - mean * scale)
            return self._node("Conv", x, folded, bias, **attributes)
        names = [self._constant(f"{convolution.norm}_{part}", array) for part, array in norm.items()]
        x = self._node("Conv", x, self._constant(weight, arrays[weight]), **attributes)
        return self._node("BatchNormalization", x, *names, epsilon=rules.BATCH_NORM_EPSILON)

    def preprocessed(self, images: str, resize: int, size: int) -> str:
        """Add the preprocessing of an evaluation: resize the shorter side to ``resize`` pixels, crop the
        middle ``size`` x ``size`` pixels, normalise.

        Return the name of the result. One ``Resize`` interpolates the pixels of the crop only, at the
        positions where DALI samples the image. DALI scales both sides by one factor about the centre, rounds
        the position of the crop's corner, and rounds the resized pixels to whole numbers.
        """
        mean = self._constant("mean", np.reshape(rules.MEAN, (3, 1, 1)))
        std = self._constant("std", np.reshape(rules.STD, (3, 1, 1)))
        # The region that ``Resize`` takes has a begin and an end, 0 to 1, on each axis. Batch and channels
        # are taken whole.
        outer_begins = self._constant("outer_0", np.zeros(2))
        outer_ends = self._constant("outer_1", np.ones(2))
        # Pixels to add before and behind each of N, C, H, W.
        edge = self._constant("edge", np.array([0, 0, 1, 1, 0, 0, 1, 1]), np.int64)
        output = self._constant("output_sides", np.array([size, size]), np.int64)
        nchw = self._node("Cast", self._node("Transpose", images, perm=[0, 3, 1, 2]), to=TensorProto.FLOAT)
        # Pairs of numbers, for height and width: the sides of the image, and of the resized image. ``scale``
        # is the size of a resized pixel in pixels of the image.
        sides = self._node("Cast", self._node("Shape", nchw, start=2), to=TensorProto.FLOAT)
        scale = self._node("Div", self._node("ReduceMin", sides, keepdims=1), resize)
        resized = self._node("Floor", self._node("Add", self._node("Div", sides, scale), 0.5))
        # The corner of the crop in the resized image: half of what the crop leaves of its sides, rounded.
        margin = self._node("Add", self._node("Sub", resized, size), 1)
        corner = self._node("Floor", self._node("Div", margin, 2))
        # Pixels of the image, at each of its edges, for which the rounded sides of the resized image have no
        # room.
        left_out = self._node("Div", self._node("Sub", sides, self._node("Mul", resized, scale)), 2)
        # The positions of the first and the last pixel of the crop. Pixels at the edge are sampled up to half
        # a pixel beyond the image, so the image is padded by a copy of its edge. A position is that of a
        # pixel's centre, so 0.5 is subtracted, and 1 is added for the padding.
        centre = self._node("Mul", self._node("Add", corner, 0.5), scale)
        first = self._node("Add", centre, self._node("Add", left_out, 0.5))
        last = self._node("Add", first, self._node("Mul", size - 1, scale))
        # ``Resize`` takes the positions as fractions of the last position of the padded image.
        last_position = self._node("Add", sides, 1)
        begin, end = self._node("Div", first, last_position), self._node("Div", last, last_position)
        region = self._node("Concat", outer_begins, begin, outer_ends, end, axis=0)
        padded = self._node("Pad", nchw, edge, mode="edge")
        sizes = self._node("Concat", self._node("Shape", nchw, end=2), output, axis=0)
        attributes = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
        x = self._node("Resize", padded, region, "", sizes, **attributes)
        return self._node("Div", self._node("Sub", self._node("Round", x), mean), std)

    def _constant(self, name: str, array: np.ndarray, dtype: Any = np.float32) -> str:
        """Add a constant and return its name."""
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array, dtype), name))
        return name

    def _node(self, kind: str, *inputs: str | float, output: str | None = None, **attributes: Any) -> str:
        """Add a node and return the name of its output. An input is the name of a tensor, "" for none, or a
        number, which becomes a constant."""
        name = output or f"{kind}_{len(self.nodes)}"
        operands = [operand if isinstance(operand, str) else self._number(operand) for operand in inputs]
        self.nodes.append(helper.make_node(kind, operands, [name], name=name, **attributes))
        return name

    def _number(self, value: float) -> str:
        """Return the name of a constant with one number, and add it if the graph does not have it."""
        name = f"number_{value:g}"
        if all(constant.name != name for constant in self.constants):
            self._constant(name, np.array([value]))
        return name

"""Quantise an ONNX model to int8 after training, by ONNX Runtime (``rn50 quantize``).

A quantiser may change nothing, or ruin the model, without an error. So ``quantize`` counts the int8 operators
of every quantised model, evaluates the model, and only then writes the best one (``candidates.choose``).
"""

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rn50 import files
from rn50.deploy import graph, model_evaluation, model_file
from rn50.deploy.candidates import FLOAT, Candidate, Quantized, choose
from rn50.errors import UserError
from rn50.packages import needed_for
from rn50.settings.config import Config
from rn50.terminal import say

with needed_for("quantisation"):
    import onnxruntime
    from onnx import TensorProto
    from onnxruntime import quantization as ort
    from onnxruntime.quantization import CalibrationMethod, QuantType

_METHODS = CalibrationMethod.MinMax, CalibrationMethod.Entropy, CalibrationMethod.Percentile
CALIBRATIONS = {method.name.lower(): method for method in _METHODS}
"""Value of --calibration -> ONNX Runtime's method that finds the ranges of activations."""
DYNAMIC, STATIC = "dynamic", "static"
"""Values of --method: the ranges of activations are computed for each input, or are calibrated beforehand."""
STATIC_OPERATORS = ["Conv", "Relu", "Add", "MaxPool", "GlobalAveragePool", "Flatten", "Gemm"]
"""Operators whose inputs and outputs static quantisation makes int8: all operators of the network, so that
activations stay int8 from its first layer to its last."""
DYNAMIC_OPERATORS = ["Conv", "Gemm", "MatMul"]
"""Operators that dynamic quantisation replaces by operators in int8."""


def ways(method: str, calibration: str) -> list[str]:
    """Return the ways to quantise that the options --method and --calibration name, either of which may be
    "all". A way is "dynamic", or "static" and a calibration, as "static minmax"."""
    calibrations = list(CALIBRATIONS) if calibration == "all" else [calibration]
    dynamic = [DYNAMIC] if method in (DYNAMIC, "all") else []
    static = [f"{STATIC} {name}" for name in calibrations] if method in (STATIC, "all") else []
    return dynamic + static


def quantize(
    source: Path, output: Path, tried: Sequence[str], config: Config, images: int, tolerance: float
) -> Quantized:
    """Quantise the model in the file ``source`` in each of the ways ``tried`` (see ``ways``), evaluate the
    results, and write the most accurate one to ``output``.

    ``images`` is the number of images of the training set that static quantisation uses to find the ranges of
    activations. Raises UserError, and writes nothing, if no result has int8 operators and loses at most
    ``tolerance`` percentage points of top-1.
    """
    files.refuse_to_replace(output, files.MODEL, inputs=[source], needs_room=True)
    model = model_file.read(source)
    if model_file.int8_operators(model.proto)[0]:  # (number in int8, number of all)
        raise UserError(source, "is quantised already", "give the float32 model that rn50 export wrote")
    needs_calibration = any(way != DYNAMIC for way in tried)
    calibration = calibration_images(model, config, images) if needs_calibration else []
    candidates = []
    # A generator: each model is quantised when it is its turn to be evaluated.
    quantized = ((way, in_int8(model, way, calibration)) for way in tried)
    for way, variant in itertools.chain([(FLOAT, model)], quantized):
        evaluated = model_evaluation.evaluate(variant, config, f"evaluating {way}")
        int8, total = model_file.int8_operators(variant.proto)
        candidates.append(Candidate(way, variant.content, int8, total, evaluated))
    return choose(output, candidates, tolerance)


class _Reader(list[dict[str, np.ndarray]]):
    """A list of inputs for a calibrator of ONNX Runtime, which calls the two methods. The calibrator reads
    the list in ranges, because it keeps all activations of a range in memory."""

    def set_range(self, start_index: int, end_index: int) -> None:
        """Begin a range."""
        self._remaining = iter(self[start_index:end_index])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next input of the range, or None at its end."""
        return next(self._remaining, None)


def calibration_images(model: model_file.Model, config: Config, images: int) -> list[np.ndarray]:
    """Return ``images`` inputs of batch size 1 from the training set, cropped as in training. Raises
    UserError as ``model_evaluation.inputs`` does."""
    batches = (batch for batch, _ in model_evaluation.inputs(model, config, "train"))
    return [image[None].copy() for image in itertools.islice(itertools.chain.from_iterable(batches), images)]


def in_int8(model: model_file.Model, way: str, images: Sequence[np.ndarray]) -> model_file.Model:
    """Return a model quantised in one of the ways of ``ways``. ``images`` is the result of
    ``calibration_images``. Nothing checks that the result has int8 operators."""
    say(f"quantising: {way} ...", err=True)
    faults = model_file.faults(model.name, "quantise")  # raises ONNX Runtime's errors as UserError
    with tempfile.TemporaryDirectory() as folder, model_file.quiet(), faults:
        prepared, output = (str(Path(folder, name)) for name in ("prepared.onnx", "int8.onnx"))
        settings = onnxruntime.SessionOptions()
        settings.optimized_model_filepath = prepared
        # Basic optimisation folds batch norm into the convolutions.
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        # A session writes the optimised model to its file when it begins, and has no other use here.
        onnxruntime.InferenceSession(model.content, settings, [model_file.CPU])
        nodes = model_file.parse(model.name, Path(prepared).read_bytes()).proto.graph.node
        # The operators before the first convolution, which prepare the images, stay in float32.
        preprocessing = itertools.takewhile(lambda node: node.op_type != "Conv", nodes)
        options: dict[str, Any] = {"nodes_to_exclude": [node.name for node in preprocessing]}
        if way == DYNAMIC:
            # The weights are unsigned, because ONNX Runtime executes ConvInteger for no others. Each has one
            # scale (``per_channel`` is not set), because ConvInteger takes one only.
            ort.quantize_dynamic(prepared, output, DYNAMIC_OPERATORS, weight_type=QuantType.QUInt8, **options)
        else:
            # CalibStridedMinMax is the number of images in a range of ``_Reader``.
            types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
            options |= {**types, "per_channel": True, "extra_options": {"CalibStridedMinMax": 1}}
            options["calibrate_method"] = CALIBRATIONS[way.removeprefix(f"{STATIC} ")]
            reader = _Reader({model.input: image} for image in images)
            ort.quantize_static(prepared, output, reader, ort.QuantFormat.QDQ, STATIC_OPERATORS, **options)
        proto = model_file.parse(model.name, Path(output).read_bytes()).proto
    _shorten(proto)
    graph.label(proto, {**model.facts, "quantization": way})
    return model_file.parse(f"{model.name} quantised ({way})", proto.SerializeToString())


def _shorten(proto: Any) -> None:
    """Make a quantised model smaller. Drop the zero points of biases and of the weights of convolutions,
    because they have ONNX's default value, and shorten the names of tensors.

    The classifier keeps its zero points, because ONNX Runtime refuses a classifier without them.
    """
    tensors = list(proto.graph.initializer)
    # A bias is int32, and the weight of a convolution has 4 dimensions.
    symmetric = {t.name for t in tensors if t.data_type == TensorProto.INT32 or len(t.dims) == 4}
    dropped = set()
    for node in proto.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in symmetric:
            dropped.add(node.input.pop(2))  # its inputs are the values, the scale and the zero point
    del proto.graph.initializer[:], proto.graph.value_info[:], proto.metadata_props[:]
    proto.graph.initializer.extend(tensor for tensor in tensors if tensor.name not in dropped)
    # Tensors that the nodes compute get numbers as names, except the output of the model.
    outputs = dict.fromkeys(output for node in proto.graph.node for output in node.output)
    short = {name: str(number) for number, name in enumerate(outputs) if name != proto.graph.output[0].name}
    for node in proto.graph.node:
        node.name = ""
        for names in (node.input, node.output):
            names[:] = [short.get(name, name) for name in names]

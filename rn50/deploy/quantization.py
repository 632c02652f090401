"""Post-training quantisation of an ONNX model to int8 by ONNX Runtime (``rn50 quantize``).

A quantiser may change nothing, or ruin the model, without an error. So the int8 operators of its result are
counted, and a model is evaluated before it is written.
"""

import itertools
import pathlib
import tempfile
from collections.abc import Sequence
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
DYNAMIC, STATIC = "dynamic", "static"
STATIC_OPERATORS = ["Conv", "Relu", "Add", "MaxPool", "GlobalAveragePool", "Flatten", "Gemm"]
"""Operators between quantised tensors; all of the network, so that activations stay int8 from the first to
the last."""
DYNAMIC_OPERATORS = ["Conv", "Gemm", "MatMul"]


def ways(method: str, calibration: str) -> list[str]:
    """Return the ways that two options name, either of which may be "all": "dynamic", with ranges of
    activations taken at run time, or "static" and how the ranges are calibrated."""
    calibrations = list(CALIBRATIONS) if calibration == "all" else [calibration]
    static = [f"{STATIC} {calibrator}" for calibrator in calibrations] if method in (STATIC, "all") else []
    return ([DYNAMIC] if method in (DYNAMIC, "all") else []) + static


def quantize(
    source: pathlib.Path,
    output: pathlib.Path,
    tried: Sequence[str],
    config: Config,
    images: int,
    tolerance: float,
) -> Quantized:
    """Quantise the model of a file in every way, and write the most accurate.

    ``images`` of the training set calibrate. Raises UserError, and writes nothing, if none has int8 operators
    and loses at most ``tolerance`` percentage points of top-1.
    """
    files.refuse_to_replace(output, files.MODEL, inputs=[source], needs_room=True)
    model = model_file.read(source)
    if model_file.int8_operators(model.proto)[0]:
        raise UserError(source, "is quantised already", "give the float32 model that rn50 export wrote")
    read = calibration_images(model, config, images) if any(way != DYNAMIC for way in tried) else []
    candidates = []
    quantized = ((way, in_int8(model, way, read)) for way in tried)
    for way, variant in itertools.chain([(FLOAT, model)], quantized):
        evaluated = model_evaluation.evaluate(variant, config, f"evaluating {way}")
        int8 = model_file.int8_operators(variant.proto)
        candidates.append(Candidate(way, variant.content, *int8, evaluated))
    return choose(output, candidates, tolerance)


class _Reader(list[dict[str, np.ndarray]]):
    """Inputs as calibrators of ONNX Runtime ask for them: piece by piece, because they keep every activation
    of a piece."""

    def set_range(self, start_index: int, end_index: int) -> None:
        """Begin a piece."""
        self._left = iter(self[start_index:end_index])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next input of the piece, or None at its end."""
        return next(self._left, None)


def calibration_images(model: model_file.Model, config: Config, images: int) -> list[np.ndarray]:
    """Return inputs of batch size 1 from the training set, as training crops them. Raises UserError as
    ``evaluate`` does."""
    batches = (batch for batch, _ in model_evaluation.inputs(model, config, "train"))
    return [image[None].copy() for image in itertools.islice(itertools.chain.from_iterable(batches), images)]


def in_int8(model: model_file.Model, way: str, images: Sequence[np.ndarray]) -> model_file.Model:
    """Return a model quantised in one way, without checking it."""
    say(f"quantising: {way} ...", err=True)
    faults = model_file.faults(model.name, "quantise")
    with tempfile.TemporaryDirectory() as folder, model_file.quiet(), faults:
        prepared, output = (str(pathlib.Path(folder, name)) for name in ("prepared.onnx", "int8.onnx"))
        settings = onnxruntime.SessionOptions()
        settings.optimized_model_filepath = prepared
        # Basic optimisation folds batch norm.
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        onnxruntime.InferenceSession(model.content, settings, [model_file.CPU])
        nodes = model_file.parse(model.name, pathlib.Path(prepared).read_bytes()).proto.graph.node
        preprocessing = itertools.takewhile(lambda node: node.op_type != "Conv", nodes)
        excluded = [node.name for node in preprocessing]
        how: dict[str, Any] = {"nodes_to_exclude": excluded}
        if way == DYNAMIC:
            # ConvInteger has one scale per tensor, and ONNX Runtime executes it for unsigned weights alone.
            ort.quantize_dynamic(prepared, output, DYNAMIC_OPERATORS, weight_type=QuantType.QUInt8, **how)
        else:
            how |= {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "per_channel": True}
            how["calibrate_method"] = CALIBRATIONS[way.removeprefix(f"{STATIC} ")]
            how["extra_options"] = {"CalibStridedMinMax": 1}
            reader = _Reader({model.input: image} for image in images)
            ort.quantize_static(prepared, output, reader, ort.QuantFormat.QDQ, STATIC_OPERATORS, **how)
        proto = model_file.parse(model.name, pathlib.Path(output).read_bytes()).proto
    _shorten(proto)
    graph.label(proto, {**model.facts, "quantization": way})
    return model_file.parse(f"{model.name} quantised ({way})", proto.SerializeToString())


def _shorten(proto: Any) -> None:
    """Drop the zero points of convolution weights and of biases, which are the default, and shorten tensor
    names.

    ONNX Runtime refuses a classifier without zero points.
    """
    tensors = list(proto.graph.initializer)
    symmetric = {t.name for t in tensors if t.data_type == TensorProto.INT32 or len(t.dims) == 4}
    dropped = set()
    for node in proto.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in symmetric:
            dropped.add(node.input.pop(2))
    del proto.graph.initializer[:], proto.graph.value_info[:], proto.metadata_props[:]
    proto.graph.initializer.extend(tensor for tensor in tensors if tensor.name not in dropped)
    outputs = dict.fromkeys(output for node in proto.graph.node for output in node.output)
    short = {name: str(number) for number, name in enumerate(outputs) if name != proto.graph.output[0].name}
    for node in proto.graph.node:
        node.name = ""
        for names in (node.input, node.output):
            names[:] = [short.get(name, name) for name in names]

"""ONNX files: read as untrusted, described, and opened in ONNX Runtime."""

import contextlib
import logging
import os
import pathlib
import re
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rn50 import files
from rn50.deploy.outcomes import LIMIT_S, Run
from rn50.errors import UserError
from rn50.packages import needed_for
from rn50.settings.fields import Data
from rn50.weights import weights_file

with needed_for("ONNX models"):
    import onnx
    import onnxruntime
    from google.protobuf.message import DecodeError
    from onnx import TensorProto

REMEDY = "give a file that rn50 export or rn50 quantize wrote"
CPU = "CPUExecutionProvider"
SILENT = 4
"""Severity from which ONNX Runtime logs: fatal errors. Others are raised as exceptions too."""
CONVOLUTIONS_AND_PRODUCTS = {"Conv", "Gemm", "MatMul"}
INTEGER = {"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul", "QGemm"}
"""Operators that compute in int8; a convolution or product of ``DequantizeLinear`` outputs also runs in
int8."""


class Model(NamedTuple):
    """An ONNX model of this benchmark's kind: images in, logits out."""

    name: str
    """Name of its file."""
    proto: Any
    content: bytes
    input: str
    image_size: int | None
    """Side in pixels of normalised images, float32 (N, 3, S, S); None: it takes decoded images, uint8 (N, H,
    W, 3)."""
    classes: int
    facts: Mapping[str, str]

    @property
    def precision(self) -> str:
        """Return "int8" if any of its operators computes in it, else "float32"."""
        return "int8" if int8_operators(self.proto)[0] else "float32"

    def refuse_other(self, data: Data) -> None:
        """Raise UserError unless it is a model of a configuration's task."""
        task = {
            "NUMCLASSES": (self.classes, data.classes),
            "IMAGE_SIZE": (self.image_size or self.facts.get("image_size"), data.image_size),
            "EVAL_RESIZE": (self.facts.get("eval_resize"), data.eval_resize),
        }
        for name, (value, expected) in task.items():
            if value is not None and str(value) != str(expected):
                problem = f"is a model of {name}={value}, and the configuration has {name}={expected}"
                raise UserError(self.name, problem, "name the configuration that it was trained with")


def read(file: pathlib.Path) -> Model:
    """Return the model of a file. Raises UserError if it is not a model, or of another kind."""
    return parse(str(file), files.read_bytes(file, weights_file.LARGEST, REMEDY))


def parse(name: str, content: bytes) -> Model:
    """Return the model of a file's content. Raises UserError, which names ``name``, if it is not a model, or
    of another kind."""
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
        # Tensors in other files, which an untrusted model could name anywhere.
        if any(tensor.data_location == TensorProto.EXTERNAL for tensor in proto.graph.initializer):
            raise UserError(name, "keeps its tensors in other files", REMEDY)
        onnx.checker.check_model(proto)
    except (DecodeError, onnx.checker.ValidationError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise UserError(name, f"no ONNX file ({reason})", REMEDY) from None
    constants = {tensor.name for tensor in proto.graph.initializer}
    inputs = [tensor for tensor in proto.graph.input if tensor.name not in constants]
    if len(inputs) != 1 or len(proto.graph.output) != 1:
        counts = f"has {len(inputs)} inputs and {len(proto.graph.output)} outputs"
        raise UserError(name, f"{counts}, expected one of each", REMEDY)
    facts = {entry.key: entry.value for entry in proto.metadata_props}
    weights_file.refuse_other_facts(name, {**dict.fromkeys(weights_file.FACTS, "1"), **facts})
    images, logits = _form(inputs[0]), _form(proto.graph.output[0])
    square = re.fullmatch(r"float32 \(\?, 3, (\d{1,9}), \1\)", images)
    size = int(square[1]) if square else None
    possible = size in range(1, weights_file.FACTS["image_size"] + 1)
    if not possible and images != "uint8 (?, ?, ?, 3)":
        expected = "float32 (N, 3, S, S) or uint8 (N, H, W, 3) with a dynamic N"
        raise UserError(name, f"its input is {images}, expected {expected}", REMEDY)
    classes = re.fullmatch(r"float32 \([^,]*, ([1-9]\d*)\)", logits)
    if not classes:
        raise UserError(name, f"its output is {logits}, expected float32 (N, classes)", REMEDY)
    return Model(name, proto, content, inputs[0].name, size, int(classes[1]), facts)


def _form(value: Any) -> str:
    """Return the type and the sizes of an input or output, as in "float32 (?, 10)"."""
    tensor = value.type.tensor_type
    names = {number: name.lower() for name, number in TensorProto.DataType.items()}
    names[TensorProto.FLOAT] = "float32"
    sizes = (str(dim.dim_value) if dim.HasField("dim_value") else "?" for dim in tensor.shape.dim)
    return f"{names.get(tensor.elem_type, tensor.elem_type)} ({', '.join(sizes)})"


def int8_operators(proto: Any) -> tuple[int, int]:
    """Return how many convolutions and matrix products of a model compute in int8, and how many there are."""
    nodes = proto.graph.node
    dequantized = {output for node in nodes if node.op_type == "DequantizeLinear" for output in node.output}
    integer = sum(node.op_type in INTEGER for node in nodes)
    others = [node for node in nodes if node.op_type in CONVOLUTIONS_AND_PRODUCTS]
    integer_too = sum(all(operand in dequantized for operand in node.input[:2]) for node in others)
    return integer + integer_too, integer + len(others)


def session(model: Model, threads: int, provider: str = CPU) -> Any:
    """Return an ``onnxruntime.InferenceSession`` of a model. Raises UserError if ONNX Runtime cannot load
    it."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = SILENT
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    with faults(model.name, "load"):
        return onnxruntime.InferenceSession(model.content, settings, [provider])


def running(model: Model, threads: int) -> Run:
    """Return a function from a model's images to its logits, by ONNX Runtime on the CPU, which is stopped
    after ``LIMIT_S``."""
    opened = session(model, threads)

    def logits(images: np.ndarray) -> np.ndarray:
        options = onnxruntime.RunOptions()
        limit = threading.Timer(LIMIT_S, setattr, (options, "terminate", True))
        limit.start()
        try:
            with faults(model.name, "run"):
                return opened.run(None, {model.input: images}, options)[0]
        except UserError:
            if options.terminate:
                raise UserError(model.name, f"no answer within {LIMIT_S} s", REMEDY) from None
            raise
        finally:
            limit.cancel()

    return logits


@contextlib.contextmanager
def faults(name: str, what: str) -> Iterator[None]:
    """Turn ONNX Runtime's errors during ``what`` into a UserError about a file."""
    try:
        yield
    except Exception as error:
        if type(error).__module__ != onnxruntime.capi.onnxruntime_pybind11_state.__name__:
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(name, f"ONNX Runtime cannot {what} it ({reason[:200]})", REMEDY) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Discard the output of ONNX Runtime, whose Python part logs on the root logger."""
    with contextlib.ExitStack() as stack:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        for descriptor in (1, 2):
            kept = os.dup(descriptor)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, descriptor)
            os.dup2(nowhere.fileno(), descriptor)
        stack.enter_context(contextlib.redirect_stdout(nowhere))
        stack.enter_context(contextlib.redirect_stderr(nowhere))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.WARNING)
        yield

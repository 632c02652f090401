"""Read ONNX files, which may come from anybody, describe them as ``Model``, and run them in ONNX Runtime. All
files of this folder that work with ONNX models use it."""

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
"""Lowest severity that ONNX Runtime logs: fatal errors. It also raises every error as an exception."""
CONVOLUTIONS_AND_PRODUCTS = {"Conv", "Gemm", "MatMul"}
"""Operators that ONNX Runtime executes in int8 if both operands are outputs of ``DequantizeLinear``, else in
float32."""
INTEGER = {"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul", "QGemm"}
"""Convolutions and matrix products that always compute in int8."""


class Model(NamedTuple):
    """An ONNX model that computes logits from images."""

    name: str
    """Path of its file, for messages."""
    proto: Any
    """The parsed model, an ``onnx.ModelProto``."""
    content: bytes
    """The content of the file."""
    input: str
    """Name of the graph's input."""
    image_size: int | None
    """Side S in pixels, if the input is normalised images, float32 (N, 3, S, S). None: the input is decoded
    images, uint8 (N, H, W, 3)."""
    classes: int
    facts: Mapping[str, str]
    """Metadata of the file, text by name, such as "eval_resize"."""

    @property
    def precision(self) -> str:
        """Return "int8" if any of the model's operators computes in int8, else "float32"."""
        return "int8" if int8_operators(self.proto)[0] else "float32"

    def refuse_other(self, data: Data) -> None:
        """Raise UserError unless the model has the number of classes and the image sizes of a
        configuration."""
        # Variable -> (value of the model, value of the configuration); None: the model does not say it.
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
    """Return the model of a file. Raises UserError as ``parse`` does."""
    return parse(str(file), files.read_bytes(file, weights_file.LARGEST, REMEDY))


def parse(name: str, content: bytes) -> Model:
    """Return the model of a file's content. Raises UserError about the file ``name`` if the content is no
    ONNX model, or a model whose input is not images or whose output is not logits."""
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
        # A model that keeps tensors in other files names them by paths, and a stranger's model could so name
        # any file of this machine.
        if any(tensor.data_location == TensorProto.EXTERNAL for tensor in proto.graph.initializer):
            raise UserError(name, "keeps its tensors in other files", REMEDY)
        onnx.checker.check_model(proto)
    except (DecodeError, onnx.checker.ValidationError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise UserError(name, f"no ONNX file ({reason})", REMEDY) from None
    # The file may list constants among the inputs, too.
    constants = {tensor.name for tensor in proto.graph.initializer}
    inputs = [tensor for tensor in proto.graph.input if tensor.name not in constants]
    if len(inputs) != 1 or len(proto.graph.output) != 1:
        counts = f"has {len(inputs)} inputs and {len(proto.graph.output)} outputs"
        raise UserError(name, f"{counts}, expected one of each", REMEDY)
    facts = {entry.key: entry.value for entry in proto.metadata_props}
    # The facts that the model has must be valid. A model of another program may lack some of them, so the
    # check gets 1, which is valid, for each that is missing.
    weights_file.refuse_other_facts(name, {**dict.fromkeys(weights_file.FACTS, "1"), **facts})
    images, logits = _type_and_shape(inputs[0]), _type_and_shape(proto.graph.output[0])
    # ``images`` is a text such as "float32 (?, 3, 224, 224)", ``logits`` one such as "float32 (?, 1000)".
    square = re.fullmatch(r"float32 \(\?, 3, (\d{1,9}), \1\)", images)
    size = int(square[1]) if square else None
    # ``weights_file.FACTS`` has the largest value that each fact may have.
    is_normalised = size in range(1, weights_file.FACTS["image_size"] + 1)
    if not is_normalised and images != "uint8 (?, ?, ?, 3)":
        expected = "float32 (N, 3, S, S) or uint8 (N, H, W, 3) with a dynamic N"
        raise UserError(name, f"its input is {images}, expected {expected}", REMEDY)
    classes = re.fullmatch(r"float32 \([^,]*, ([1-9]\d*)\)", logits)
    if not classes:
        raise UserError(name, f"its output is {logits}, expected float32 (N, classes)", REMEDY)
    return Model(name, proto, content, inputs[0].name, size, int(classes[1]), facts)


def _type_and_shape(value: Any) -> str:
    """Return the type and the shape of an input or output, as in "float32 (?, 10)"; "?" is a dynamic size."""
    tensor = value.type.tensor_type
    names = {number: name.lower() for name, number in TensorProto.DataType.items()}
    names[TensorProto.FLOAT] = "float32"
    sizes = (str(dim.dim_value) if dim.HasField("dim_value") else "?" for dim in tensor.shape.dim)
    return f"{names.get(tensor.elem_type, tensor.elem_type)} ({', '.join(sizes)})"


def int8_operators(proto: Any) -> tuple[int, int]:
    """Return the number of convolutions and matrix products of a model that compute in int8, and the number
    of all its convolutions and matrix products."""
    nodes = proto.graph.node
    dequantized = {output for node in nodes if node.op_type == "DequantizeLinear" for output in node.output}
    integer = sum(node.op_type in INTEGER for node in nodes)
    others = [node for node in nodes if node.op_type in CONVOLUTIONS_AND_PRODUCTS]
    executed_in_int8 = sum(all(operand in dequantized for operand in node.input[:2]) for node in others)
    return integer + executed_in_int8, integer + len(others)


def session(model: Model, threads: int, provider: str = CPU) -> Any:
    """Return an ``onnxruntime.InferenceSession`` of a model, which computes in ``threads`` threads. Raises
    UserError if ONNX Runtime cannot load it."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = SILENT
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    with faults(model.name, "load"):
        return onnxruntime.InferenceSession(model.content, settings, [provider])


def logits_function(model: Model, threads: int) -> Run:
    """Return a function from images to the logits of a model, which ONNX Runtime computes on the CPU. The
    function raises UserError if it takes more than ``LIMIT_S`` seconds."""
    opened = session(model, threads)

    def logits(images: np.ndarray) -> np.ndarray:
        options = onnxruntime.RunOptions()
        # After ``LIMIT_S`` seconds set ``terminate``, which makes ONNX Runtime end with an error.
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
def faults(name: str, action: str) -> Iterator[None]:
    """Turn an error of ONNX Runtime in this context into a UserError about the file ``name``. ``action`` is a
    verb for what ONNX Runtime cannot do with it: "load" or "run"."""
    try:
        yield
    except Exception as error:
        # The errors of ONNX Runtime have no base class of their own, but are all defined in one module.
        if type(error).__module__ != onnxruntime.capi.onnxruntime_pybind11_state.__name__:
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(name, f"ONNX Runtime cannot {action} it ({reason[:200]})", REMEDY) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Discard all output of ONNX Runtime in this context: of its C++ part on the descriptors of stdout and
    stderr, and of its Python part by print, by warnings and on the root logger."""
    with contextlib.ExitStack() as stack:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        null = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        for descriptor in (1, 2):
            saved = os.dup(descriptor)
            stack.callback(os.close, saved)
            stack.callback(os.dup2, saved, descriptor)
            os.dup2(null.fileno(), descriptor)
        stack.enter_context(contextlib.redirect_stdout(null))
        stack.enter_context(contextlib.redirect_stderr(null))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.WARNING)
        yield

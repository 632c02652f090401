"""ONNX Runtime as an engine of ``rn50 bench inference``."""

import pathlib

import numpy as np

from rn50.deploy import export, model_file
from rn50.deploy.model_file import Model
from rn50.deploy.outcomes import Run
from rn50.errors import UserError
from rn50.packages import needed_for
from rn50.weights import weights_file

with needed_for("rn50 bench inference"):
    import onnxruntime


def refuse_missing(engine: str, provider: str) -> None:
    """Raise UserError if this onnxruntime lacks the provider of an engine."""
    available = onnxruntime.get_available_providers()
    if provider not in available:
        problem = f"this onnxruntime has no {provider}, only {', '.join(available)}"
        remedy = "install onnxruntime-gpu in place of onnxruntime on a machine with a GPU"
        raise UserError(f"--engines {engine}", problem, f"{remedy}, or leave the engine out")


def model(file: pathlib.Path) -> Model:
    """Read an ONNX file, or convert weights as ``rn50 export`` would."""
    return export.convert(file, str(file)) if file.suffix == weights_file.SUFFIX else model_file.read(file)


def running(model: Model, engine: str, provider: str, threads: int) -> Run:
    """Return a function from a model's images to its logits. Raises UserError if the provider cannot
    start."""
    session = model_file.session(model, threads, provider)
    if session.get_providers()[0] != provider:  # it falls back on the CPU without an error
        problem = f"ONNX Runtime cannot start {provider} here"
        remedy = "install the libraries of CUDA or TensorRT that this onnxruntime wants"
        raise UserError(f"--engines {engine}", problem, f"{remedy}, or leave the engine out")
    # The name is looked up once, because None in its place would be resolved in every request.
    outputs, name = [session.get_outputs()[0].name], model.input

    def logits_of(images: np.ndarray) -> np.ndarray:
        return session.run(outputs, {name: images})[0]

    return logits_of

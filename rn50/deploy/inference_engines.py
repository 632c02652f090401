"""Engines that compute logits from images: ONNX Runtime's providers, and frameworks through their
``inference.py``, which run without ONNX."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rn50 import frameworks
from rn50.deploy.outcomes import ModelOnEngine, Run
from rn50.errors import UserError
from rn50.packages import needed_for
from rn50.weights import weights_file

PROVIDERS = {
    "onnxruntime": "CPUExecutionProvider",
    "onnxruntime-cuda": "CUDAExecutionProvider",
    "onnxruntime-tensorrt": "TensorrtExecutionProvider",
}


def of_frameworks() -> dict[str, tuple[str, str]]:
    """Return engine -> (framework, way to run it) of every framework that has ``inference.py``."""
    every = frameworks.every().items()
    return {f"{name}-{way}": (name, way) for name, traits in every for way in traits.inference}


def names() -> tuple[str, ...]:
    """Return the names of all engines, whether they are installed or not."""
    return (*PROVIDERS, *of_frameworks())


def on_gpu(engine: str) -> bool:
    """Return whether an engine computes on a GPU."""
    return "-cuda" in engine or engine.endswith("-tensorrt")


def subjects(
    files: Sequence[pathlib.Path], engines: Sequence[str], asked: Sequence[str]
) -> list[ModelOnEngine]:
    """Return every model on every engine that can run it: weights on all, ONNX models on ONNX Runtime.

    An engine runs weights in each of the precisions ``asked`` that it has. Raises UserError for a file that
    is not a model, an engine that is missing or has nothing to run, and a precision that no engine has.
    """
    runnable: list[ModelOnEngine] = []
    of_weights = [file for file in files if not weights_file.is_model(file)]
    for engine in engines:
        if engine in PROVIDERS:
            with needed_for("rn50 bench inference"):
                import onnxruntime
            available = onnxruntime.get_available_providers()
            if PROVIDERS[engine] not in available:
                problem = f"this onnxruntime has no {PROVIDERS[engine]}, only {', '.join(available)}"
                remedy = "install onnxruntime-gpu in place of onnxruntime on a machine with a GPU"
                raise UserError(f"--engines {engine}", problem, f"{remedy}, or leave the engine out")
            runnable += [ModelOnEngine(file, engine, _model(file).precision) for file in files]
            continue
        if not of_weights:
            problem = "runs weights, and no model is a .safetensors file"
            remedy = "give the weights that rn50 export made the model of"
            raise UserError(f"--engines {engine}", problem, remedy)
        framework, way = of_frameworks()[engine]
        having = [name for name in asked if name in frameworks.traits(framework).inference[way]]
        runnable += [ModelOnEngine(file, engine, precision) for file in of_weights for precision in having]
    for requested in asked:
        if of_weights and requested not in (subject.precision for subject in runnable):
            problem = f"none of {', '.join(engines)} computes in it"
            raise UserError(f"--precisions {requested}", problem, "leave it out")
    return list(dict.fromkeys(runnable))


def _model(file: pathlib.Path) -> Any:
    """Read an ONNX file, or convert weights as ``rn50 export`` would."""
    from rn50.deploy import export, model_file

    if weights_file.is_model(file):
        return model_file.read(file)
    return export.convert(weights_file.read(file), str(file))


def create(subject: ModelOnEngine, threads: int) -> tuple[Run, Callable[[int], np.ndarray]]:
    """Return a function from images to logits, and one from a batch size to random images for it."""
    if subject.engine not in PROVIDERS:
        framework, way = of_frameworks()[subject.engine]
        read = weights_file.read(subject.model)
        run: Run = frameworks.module(framework, "inference").create(read, way, subject.precision, threads)
        return run, lambda batch_size: _images(batch_size, read.image_size)
    from rn50.deploy import model_file

    model, provider = _model(subject.model), PROVIDERS[subject.engine]
    session = model_file.session(model, threads, provider)
    if session.get_providers()[0] != provider:  # it falls back on the CPU without an error
        problem = f"ONNX Runtime cannot start {provider} here"
        remedy = "install the libraries of CUDA or TensorRT that this onnxruntime wants"
        raise UserError(f"--engines {subject.engine}", problem, f"{remedy}, or leave the engine out")
    # The name is looked up once, because None in its place would be resolved in every request.
    outputs, name = [session.get_outputs()[0].name], model.input

    def logits_of(images: np.ndarray) -> np.ndarray:
        return session.run(outputs, {name: images})[0]

    height = int(model.facts.get("eval_resize", "256"))
    return logits_of, lambda batch_size: _images(batch_size, model.image_size, height)


def _images(batch_size: int, size: int | None, height: int | None = None) -> np.ndarray:
    """Return random images: normalised ones, or decoded ones in 4:3 for a model with preprocessing."""
    random = np.random.RandomState(0)
    if size is not None:
        return random.standard_normal((batch_size, 3, size, size)).astype(np.float32)
    assert height is not None
    return random.randint(0, 256, (batch_size, height, height * 4 // 3, 3)).astype(np.uint8)

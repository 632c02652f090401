"""The inference engines of ``rn50 bench inference``, which compute logits from images.

An engine is ONNX Runtime with one of its providers, or a framework in one of the ways that its
``inference.py`` has. ONNX Runtime runs ONNX models, and weights after a conversion. A framework runs weights.
"""

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
"""Engine -> ONNX Runtime's name of its provider."""


def framework_engines() -> dict[str, tuple[str, str]]:
    """Return the engines of frameworks: name -> (framework, way to run it). A framework without
    ``inference.py`` has none."""
    every = frameworks.every().items()
    return {f"{name}-{way}": (name, way) for name, traits in every for way in traits.inference}


def names() -> tuple[str, ...]:
    """Return the names of all engines, also of those that are not installed."""
    return (*PROVIDERS, *framework_engines())


def on_gpu(engine: str) -> bool:
    """Return whether an engine computes on a GPU."""
    return "-cuda" in engine or engine.endswith("-tensorrt")


def subjects(
    files: Sequence[pathlib.Path], engines: Sequence[str], precisions: Sequence[str]
) -> list[ModelOnEngine]:
    """Return every file on every engine that can run it: files of weights on all engines, ONNX models on
    those of ONNX Runtime.

    A framework runs weights in those of ``precisions`` that it has. Raises UserError if a file is neither
    weights nor an ONNX model, an engine is not installed or can run none of the files, or no engine has a
    precision.
    """
    runnable: list[ModelOnEngine] = []
    weights = [file for file in files if not weights_file.is_model(file)]
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
        if not weights:
            problem = "runs weights, and no model is a .safetensors file"
            remedy = "give the weights that rn50 export made the model of"
            raise UserError(f"--engines {engine}", problem, remedy)
        framework, way = framework_engines()[engine]
        supported = [name for name in precisions if name in frameworks.traits(framework).inference[way]]
        runnable += [ModelOnEngine(file, engine, name) for file in weights for name in supported]
    for precision in precisions:
        if weights and precision not in (subject.precision for subject in runnable):
            problem = f"none of {', '.join(engines)} computes in it"
            raise UserError(f"--precisions {precision}", problem, "leave it out")
    return list(dict.fromkeys(runnable))


def _model(file: pathlib.Path) -> Any:
    """Return the ONNX model of a file; if the file has weights, the model that ``rn50 export`` would
    write."""
    from rn50.deploy import export, model_file

    if weights_file.is_model(file):
        return model_file.read(file)
    return export.convert(weights_file.read(file), str(file))


def create(subject: ModelOnEngine, threads: int) -> tuple[Run, Callable[[int], np.ndarray]]:
    """Load the model of a subject. Return a function from images to logits, and a function from a batch size
    to random images of the kind that the first function takes."""
    if subject.engine not in PROVIDERS:
        framework, way = framework_engines()[subject.engine]
        weights = weights_file.read(subject.model)
        run: Run = frameworks.module(framework, "inference").create(weights, way, subject.precision, threads)
        return run, lambda batch_size: _images(batch_size, weights.image_size)
    from rn50.deploy import model_file

    model = _model(subject.model)
    provider = PROVIDERS[subject.engine]
    session = model_file.session(model, threads, provider)
    if session.get_providers()[0] != provider:  # ONNX Runtime uses the CPU instead, without an error
        problem = f"ONNX Runtime cannot start {provider} here"
        remedy = "install the libraries of CUDA or TensorRT that this onnxruntime wants"
        raise UserError(f"--engines {subject.engine}", problem, f"{remedy}, or leave the engine out")
    # ``run`` also takes None, for all outputs, but then looks their names up in every request.
    output_names = [session.get_outputs()[0].name]

    def logits_of(images: np.ndarray) -> np.ndarray:
        return session.run(output_names, {model.input: images})[0]

    height = int(model.facts.get("eval_resize", "256"))  # a stranger's model may lack this fact
    return logits_of, lambda batch_size: _images(batch_size, model.image_size, height)


def _images(batch_size: int, size: int | None, height: int | None = None) -> np.ndarray:
    """Return random images: normalised ones of side ``size``, or, if ``size`` is None, decoded ones of this
    ``height`` and an aspect ratio of 4:3, for a model with preprocessing."""
    random = np.random.RandomState(0)
    if size is not None:
        return random.standard_normal((batch_size, 3, size, size)).astype(np.float32)
    assert height is not None
    return random.randint(0, 256, (batch_size, height, height * 4 // 3, 3)).astype(np.uint8)

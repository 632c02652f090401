"""Classify images by saved weights or by an ONNX model (``rn50 predict``), prepared as an evaluation prepares
them."""

import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rn50 import files, frameworks
from rn50.benchmark import rules
from rn50.data.pipeline import crops, shown_batch
from rn50.deploy.outcomes import Run
from rn50.errors import UserError
from rn50.progress import counting
from rn50.terminal import Terminal
from rn50.weights import weights_file
from rn50.weights.counts import TOP


class Likely(NamedTuple):
    """One of the likeliest classes of an image."""

    label: int
    class_name: str
    """Name in the header of the file of weights; the label if it has none."""
    probability: float
    """Softmax of the logits."""


class Prediction(NamedTuple):
    """The likeliest classes of an image."""

    image: pathlib.Path
    """File of the image."""
    likeliest: list[Likely]
    """At most five classes, the likeliest first."""


class Predicted(NamedTuple):
    """The likeliest classes of several images."""

    weights: pathlib.Path
    """File of the weights or the ONNX model."""
    framework: str
    """Framework that computed them; onnxruntime: an ONNX model."""
    predictions: list[Prediction]


def predict(file: pathlib.Path, images: Sequence[pathlib.Path], picture: pathlib.Path | None) -> Predicted:
    """Classify image files by the weights or the ONNX model of ``file``, on the CPU in float32. Write the
    crops of an evaluation, with their likeliest classes, to the PNG file ``picture``, unless that is None.

    Raises UserError if a file cannot be read, no framework that computes the network is installed, or the
    picture cannot be written.
    """
    logits_of, framework, network = _network(file)
    if not {"image_size", "eval_resize"} <= set(network.facts):
        remedy = "give a model that rn50 export wrote"
        raise UserError(file, "does not say image_size and eval_resize, by which images are cropped", remedy)
    size, resize = int(network.facts["image_size"]), int(network.facts["eval_resize"])
    names = weights_file.class_names(network.facts, network.classes)
    predictions, inputs = [], []
    with counting("predicting", shown=len(images) > TOP) as progress:
        for image in images:
            pixels = _decoded(image)
            inputs.append(crops.evaluation_crop(pixels, size, resize))
            normalised = ((inputs[-1] - rules.MEAN) / rules.STD).transpose(2, 0, 1).astype(np.float32)
            # A model without a size resizes, crops and normalises decoded images itself.
            logits = logits_of((normalised if network.image_size else pixels)[None])[0]
            predictions.append(Prediction(image, _likeliest(logits.astype(np.float64), names)))
            progress(len(predictions), len(images))
    if picture is not None:
        best = [prediction.likeliest[0] for prediction in predictions]
        shown_batch.write(picture, inputs, [f"{name} {probability:.0%}" for _, name, probability in best])
    return Predicted(file, framework, predictions)


def _network(file: pathlib.Path) -> tuple[Run, str, Any]:
    """Return a function from images to logits, the framework that computes it, and the ``Model`` or
    ``Weights`` of a file.

    ONNX Runtime computes a model. Weights are computed by the framework that trained them if that is
    installed, else by the first that is. Raises UserError if none is installed that computes this network.
    """
    threads = len(os.sched_getaffinity(0))
    if weights_file.is_model(file):
        from rn50.deploy import model_file

        model = model_file.read(file)
        return model_file.logits_function(model, threads), "onnxruntime", model
    weights = weights_file.read(file, blur_pool=True)
    needed = {"BLURPOOL"} if "blur_pool" in weights.facts else set()
    able = [name for name, traits in frameworks.every().items() if needed <= set(traits.open_recipe)]
    able.sort(key=lambda name: name != weights.facts.get("framework"))  # False sorts before True
    installed = (name for name in able if frameworks.is_importable(f"implementations.{name}.inference"))
    name = next(installed, able[0])
    way = next(iter(frameworks.traits(name).inference))  # the first one is on the CPU
    run = frameworks.module(name, "inference").create(weights, way, "float32", threads)
    return run, name, weights


def _decoded(file: pathlib.Path) -> np.ndarray:
    """Return the pixels of an image file: uint8 (H, W, 3) in RGB. Raises UserError if it is none."""
    remedy = "give an image"
    content = files.read_bytes(file, remedy=remedy)
    try:
        return crops.decode(content)
    except Exception as error:  # Pillow raises errors of many types
        raise UserError(file, "no image, or a damaged one", remedy) from error


def _likeliest(logits: np.ndarray, names: Sequence[str]) -> list[Likely]:
    """Return the likeliest classes by their logits, float64 (classes,)."""
    exponentials = np.exp(logits - logits.max())
    probabilities = exponentials / exponentials.sum()
    labels = np.argsort(-probabilities, kind="stable")[:TOP].tolist()
    return [Likely(label, names[label], float(probabilities[label])) for label in labels]


def print_predictions(predicted: Predicted, terminal: Terminal) -> None:
    """Print the likeliest classes of each image, a line for each."""
    for image, likeliest in predicted.predictions:
        terminal.print(str(image))
        for _, name, probability in likeliest:
            terminal.print(f"{probability:8.2%}  {name}")

"""Our network with weights of a file, on a CPU, by Paddle Inference: to be timed, or as its files."""

import pathlib
import tempfile
from typing import Callable

import numpy as np
from paddle import inference

from implementations.paddle import paddle
from implementations.paddle.model import ResNet50, tensors
from rn50.results.weights import Weights


def create(weights: Weights, way: str, precision: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from images (N, 3, S, S) to logits (N, classes); ``way`` is "native" or "onednn"."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder, "network"))
        write(weights, path, precision)
        return read(path, threads, onednn=way == "onednn")


def write(weights: Weights, path: str, precision: str = "float32") -> None:
    """Write weights as ``path``.pdmodel and ``path``.pdiparams."""
    network = ResNet50(weights.classes, weights.width, False, precision, "NCHW")
    network.eval()
    for name, tensor in tensors(network).items():
        tensor.set_value(weights.arrays[name])
    shape = [None, 3, weights.image_size, weights.image_size]
    paddle.jit.save(network, path, input_spec=[paddle.static.InputSpec(shape, "float32", "images")])


def read(path: str, threads: int, onednn: bool = False) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from images to logits of what ``write`` wrote."""
    settings = inference.Config(f"{path}.pdmodel", f"{path}.pdiparams")
    settings.disable_glog_info()
    settings.set_cpu_math_library_num_threads(threads)
    if onednn:
        settings.enable_mkldnn()
    predictor = inference.create_predictor(settings)
    source = predictor.get_input_handle(predictor.get_input_names()[0])
    answers = predictor.get_output_handle(predictor.get_output_names()[0])

    def logits(images: np.ndarray) -> np.ndarray:
        source.copy_from_cpu(images)
        predictor.run()
        answer: np.ndarray = answers.copy_to_cpu()
        return answer

    return logits

"""Our network with saved weights as an engine of ``rn50 bench inference``, which times it on a CPU. Paddle
Inference executes it."""

import pathlib
import tempfile
from collections.abc import Callable

import numpy as np
from paddle import inference

from implementations.paddle import paddle
from implementations.paddle.model import ResNet50, tensors
from rn50.errors import UserError
from rn50.machine import hardware
from rn50.weights.weights_file import Weights


def create(weights: Weights, way: str, precision: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from images (N, 3, S, S) to logits (N, classes).

    ``way`` is the library of the kernels: "native", PaddlePaddle's own, or "onednn". ``threads`` is the
    number of threads. Raises UserError for bfloat16 on a processor without it.
    """
    # False: bn_gamma_zero, which only matters for initial weights.
    network = ResNet50(weights.classes, weights.width, False, "float32", "NCHW")
    network.eval()
    for name, tensor in tensors(network).items():
        tensor.set_value(weights.arrays[name])
    shape = [None, 3, weights.image_size, weights.image_size]
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder, "network"))
        paddle.jit.save(network, path, input_spec=[paddle.static.InputSpec(shape, "float32", "images")])
        predictor = _predictor(path, way, precision, threads)
    source = predictor.get_input_handle(predictor.get_input_names()[0])
    answers = predictor.get_output_handle(predictor.get_output_names()[0])

    def logits(images: np.ndarray) -> np.ndarray:
        source.copy_from_cpu(images)
        predictor.run()
        return answers.copy_to_cpu()

    return logits


def _predictor(path: str, way: str, precision: str, threads: int) -> inference.Predictor:
    """Return a predictor of Paddle Inference for the network that ``paddle.jit.save`` has written to
    ``path``."""
    settings = inference.Config(f"{path}.pdmodel", f"{path}.pdiparams")
    settings.disable_glog_info()
    settings.set_cpu_math_library_num_threads(threads)
    if way == "onednn":
        settings.enable_mkldnn()
    if precision == "bfloat16":
        if not hardware.BFLOAT16 & hardware.cpu_flags():  # Paddle would compute in float32, without a message
            raise UserError("bfloat16", "this processor has none", "leave it out")
        settings.enable_mkldnn_bfloat16()
    return inference.create_predictor(settings)

"""Our network with saved weights on a CPU, by Paddle Inference: timed, or exported as its files."""

import os
import pathlib
import tempfile
from collections.abc import Callable

import numpy as np
from paddle import inference
from paddle.static.quantization import PostTrainingQuantization

from implementations.paddle import paddle
from implementations.paddle.model import ResNet50, tensors
from rn50.errors import UserError
from rn50.machine import hardware
from rn50.weights.weights_file import Weights

CONVOLUTION, PRODUCT = "conv2d", "matmul_v2"
"""Operators that have weights. Paddle Inference computes the classifier's product in float32, quantised or
not."""
INT8_IMAGES = 8
"""Random images that calibrate int8 when only its rate matters."""


def create(weights: Weights, way: str, precision: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from images (N, 3, S, S) to logits (N, classes); ``way`` is "native" or "onednn".

    In int8 it matches a network of ``quantize`` in speed alone, because random images calibrate it. Raises
    UserError for bfloat16 on a processor without it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder, "network"))
        write(weights, path)
        if precision == "int8":
            shape = INT8_IMAGES, 3, weights.image_size, weights.image_size
            quantize(
                path, path, np.random.RandomState(0).standard_normal(shape).astype(np.float32), "abs_max"
            )
        return read(path, threads, way, precision)


def write(weights: Weights, path: str) -> None:
    """Write weights as ``path``.pdmodel and ``path``.pdiparams, in float32."""
    network = ResNet50(weights.classes, weights.width, False, "float32", "NCHW")
    network.eval()
    for name, tensor in tensors(network).items():
        tensor.set_value(weights.arrays[name])
    shape = [None, 3, weights.image_size, weights.image_size]
    paddle.jit.save(network, path, input_spec=[paddle.static.InputSpec(shape, "float32", "images")])


def quantize(source: str, path: str, images: np.ndarray, calibration: str) -> tuple[int, int]:
    """Quantise the files of ``write`` at ``source`` to int8 files at ``path``. Return the number of int8
    layers, and of all.

    ``images`` (N, 3, S, S) calibrate, by one of the algorithms of
    ``paddle.static.quantization.PostTrainingQuantization``. Weights have a scale for each output channel;
    they are whole numbers, stored as float32.
    """
    paddle.enable_static()
    try:
        with paddle.static.scope_guard(paddle.static.Scope()):
            program = _quantized(source, path, images, calibration)
    finally:
        paddle.disable_static()
    operators = program.global_block().ops
    rounded = {
        name
        for operator in operators
        if operator.type.startswith("fake_quantize")
        for name in operator.output_arg_names
    }
    layers = [operator for operator in operators if operator.type in (CONVOLUTION, PRODUCT)]
    return sum(bool(rounded.intersection(layer.input_arg_names)) for layer in layers), len(layers)


def _quantized(source: str, path: str, images: np.ndarray, calibration: str) -> paddle.static.Program:
    feed = paddle.static.data("images", [None, *images.shape[1:]], "float32")
    loader = paddle.io.DataLoader(
        _Images(images), feed_list=[feed], places=[paddle.CPUPlace()], return_list=False
    )
    folder, name = os.path.split(source)
    quantizer = PostTrainingQuantization(
        paddle.static.Executor(paddle.CPUPlace()),
        folder,
        model_filename=f"{name}.pdmodel",
        params_filename=f"{name}.pdiparams",
        data_loader=loader,
        algo=calibration,
        quantizable_op_type=[CONVOLUTION],
    )
    program = quantizer.quantize()
    folder, name = os.path.split(path)
    quantizer.save_quantized_model(folder, f"{name}.pdmodel", f"{name}.pdiparams")
    return program


class _Images(paddle.io.Dataset):
    """One image at a time, as a data loader wants them."""

    def __init__(self, images: np.ndarray):
        self._images = images

    def __getitem__(self, index: int) -> tuple[np.ndarray]:
        return (self._images[index],)

    def __len__(self) -> int:
        return len(self._images)


def read(
    path: str, threads: int, way: str = "onednn", precision: str = "float32"
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from images to logits, read from the files of ``write`` or, in int8, ``quantize``."""
    settings = inference.Config(f"{path}.pdmodel", f"{path}.pdiparams")
    settings.disable_glog_info()
    settings.set_cpu_math_library_num_threads(threads)
    if way == "onednn":
        settings.enable_mkldnn()
    if precision == "bfloat16":
        if not hardware.BFLOAT16 & hardware.cpu_flags():  # there Paddle would compute in float32
            raise UserError("bfloat16", "this processor has none", "leave it out")
        settings.enable_mkldnn_bfloat16()
    if precision == "int8":
        settings.enable_mkldnn_int8()
    predictor = inference.create_predictor(settings)
    source = predictor.get_input_handle(predictor.get_input_names()[0])
    answers = predictor.get_output_handle(predictor.get_output_names()[0])

    def logits(images: np.ndarray) -> np.ndarray:
        source.copy_from_cpu(images)
        predictor.run()
        return answers.copy_to_cpu()

    return logits

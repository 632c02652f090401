"""Our network with saved weights on a CPU: timed as one graph, or exported as files of Gluon."""

from collections.abc import Callable
from typing import Any

import numpy as np
from mxnet.gluon import SymbolBlock

from implementations.mxnet import mx
from implementations.mxnet.model import Layout, ResNet50
from rn50.weights.weights_file import Weights


def create(weights: Weights, way: str, precision: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from images (N, 3, S, S) to logits (N, classes); ``way`` is "hybridized".

    MXNet takes the number of threads from OMP_NUM_THREADS, which the parent process has set.
    """
    return _running(_network(weights, precision, fused_relu=precision == "float32"))


def write(weights: Weights, path: str) -> None:
    """Write ``path``-symbol.json and ``path``-0000.params: the network in float32, with operators that every
    device has."""
    network = _network(weights, "float32", fused_relu=False)
    network(mx.nd.zeros((1, 3, weights.image_size, weights.image_size)))
    network.export(path, 0)


def read(path: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from images to logits, read from the files of ``write``."""
    return _running(SymbolBlock.imports(f"{path}-symbol.json", ["data"], f"{path}-0000.params"))


def _network(weights: Weights, precision: str, fused_relu: bool) -> ResNet50:
    network = ResNet50(weights.classes, weights.width, False, Layout("NCHW", precision, fused_relu))
    network.initialize()
    network(mx.nd.zeros((1, 3, weights.image_size, weights.image_size)))
    for name, parameter in network.collect_params().items():
        parameter.set_data(mx.nd.array(weights.arrays[name]))
    network.hybridize(static_alloc=True, static_shape=True)
    return network


def _running(network: Any) -> Callable[[np.ndarray], np.ndarray]:
    return lambda images: network(mx.nd.array(images)).asnumpy()

"""Inference on a CPU, to be timed: our network with weights of a file, as one graph."""

from typing import Callable

import numpy as np

from implementations.mxnet import mx
from implementations.mxnet.model import Layout, ResNet50
from rn50.results.weights import Weights


def create(weights: Weights, way: str, precision: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from images (N, 3, S, S) to logits (N, classes); ``way`` is "hybridized".

    MXNet takes the number of threads from OMP_NUM_THREADS, which whoever started this process has set.
    """
    network = ResNet50(weights.classes, weights.width, False, Layout("NCHW", precision, fused_relu=precision == "float32"))
    network.initialize()
    network(mx.nd.zeros((1, 3, weights.image_size, weights.image_size)))
    for name, parameter in network.collect_params().items():
        parameter.set_data(mx.nd.array(weights.arrays[name]))
    network.hybridize(static_alloc=True, static_shape=True)

    def logits(images: np.ndarray) -> np.ndarray:
        answer: np.ndarray = network(mx.nd.array(images)).asnumpy()
        return answer

    return logits

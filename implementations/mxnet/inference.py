"""Our network with saved weights as an engine of ``rn50 bench inference``, which times it on a CPU."""

from collections.abc import Callable

import numpy as np

from implementations.mxnet import mx
from implementations.mxnet.model import Layout, ResNet50
from rn50.weights.weights_file import Weights


def create(weights: Weights, way: str, precision: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from images (N, 3, S, S) to logits (N, classes), which executes the network as one
    graph. ``way`` is always "hybridized".

    ``threads`` is not used: MXNet reads OMP_NUM_THREADS, which the parent process has set to it.
    """
    layout = Layout("NCHW", precision, precision == "float32")
    network = ResNet50(weights.classes, weights.width, False, layout)
    network.initialize()
    network(mx.nd.zeros((1, 3, weights.image_size, weights.image_size)))
    for name, parameter in network.collect_params().items():
        parameter.set_data(mx.nd.array(weights.arrays[name]))
    network.hybridize(static_alloc=True, static_shape=True)
    return lambda images: network(mx.nd.array(images)).asnumpy()

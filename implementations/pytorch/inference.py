"""Inference on a CPU, to be timed: our network with weights of a file, operation by operation or compiled."""

from typing import Callable

import numpy as np
import torch

from implementations.pytorch.model import ResNet50, tensors
from rn50.results.weights import Weights


def create(weights: Weights, way: str, precision: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from images (N, 3, S, S) to logits (N, classes); ``way`` is "eager" or "compiled"."""
    torch.set_num_threads(threads)
    network = ResNet50(weights.classes, weights.width, False, precision).eval()
    for name, tensor in tensors(network).items():
        tensor.copy_(torch.from_numpy(np.array(weights.arrays[name])))
    run = torch.compile(network) if way == "compiled" else network

    def logits(images: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            answer: np.ndarray = run(torch.from_numpy(images).contiguous(memory_format=torch.channels_last)).numpy()
        return answer

    return logits

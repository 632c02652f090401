"""Our network with saved weights on a CPU: timed, or exported as a file of torch.export."""

from collections.abc import Callable

import numpy as np
import torch

from implementations.pytorch.model import ResNet50, tensors
from rn50.weights.weights_file import Weights


def create(weights: Weights, way: str, precision: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from images (N, 3, S, S) to logits (N, classes); ``way`` is "eager" or "compiled"."""
    torch.set_num_threads(threads)
    network = _network(weights, precision)
    return _running(torch.compile(network) if way == "compiled" else network)


def write(weights: Weights, path: str) -> None:
    """Write ``path``.pt2: the network in float32 by torch.export, for any number of images."""
    images = torch.zeros(2, 3, weights.image_size, weights.image_size)
    exported = torch.export.export(
        _network(weights, "float32"), (images,), dynamic_shapes=({0: torch.export.Dim("images")},)
    )
    torch.export.save(exported, f"{path}.pt2")


def read(path: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from images to logits, read from the file of ``write``."""
    torch.set_num_threads(threads)
    return _running(torch.export.load(f"{path}.pt2").module())


def _network(weights: Weights, precision: str) -> torch.nn.Module:
    network = ResNet50(weights.classes, weights.width, False, precision).eval()
    for name, tensor in tensors(network).items():
        tensor.copy_(torch.from_numpy(np.array(weights.arrays[name])))
    return network


def _running(network: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[np.ndarray], np.ndarray]:
    def logits(images: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            answer: np.ndarray = network(
                torch.from_numpy(images).contiguous(memory_format=torch.channels_last)
            ).numpy()
        return answer

    return logits

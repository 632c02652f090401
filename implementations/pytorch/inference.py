"""Our network with saved weights as an engine of ``rn50 bench inference``, which times it on a CPU or a
GPU."""

from collections.abc import Callable

import numpy as np
import torch

from implementations.pytorch.model import PRECISIONS, ResNet50, tensors, trainable
from implementations.pytorch.step import captured
from rn50.benchmark import optimizers
from rn50.errors import UserError
from rn50.weights.weights_file import Weights

Network = Callable[[torch.Tensor], torch.Tensor]


def create(weights: Weights, way: str, precision: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from images (N, 3, S, S) to logits (N, classes), both in the host's memory.

    ``way`` says how the network is executed: "eager" or "compiled" on the CPU; on a GPU "cuda-eager",
    "cuda-graph", captured as CUDA graphs, or "cuda-compiled", compiled and captured. ``threads`` is the
    number of threads on the CPU. Raises UserError if a GPU is needed and PyTorch sees none.
    """
    torch.set_num_threads(threads)
    on_gpu = way.startswith("cuda-")
    if on_gpu and not torch.cuda.is_available():
        remedy = "rn50 doctor says what is missing, or leave the engine out"
        raise UserError(f"--engines pytorch-{way}", "PyTorch sees no GPU", remedy)
    # True lets cuDNN time its algorithms. It does so in the first requests of a batch size, which are no part
    # of the measurement.
    torch.backends.cudnn.benchmark = on_gpu
    device = torch.device("cuda" if on_gpu else "cpu")
    network: Network = _network(weights, precision, device)
    if way.endswith("compiled"):
        # A captured graph has one shape anyway, so on a GPU the code of each is compiled for its shape.
        network = torch.compile(network, dynamic=False if on_gpu else None)
    if way in ("cuda-graph", "cuda-compiled"):
        network = Graphs(network)
    return _on_arrays(network, device)


class Graphs:
    """Runs the network as a CUDA graph, captured once for each shape of images."""

    def __init__(self, network: Network):
        self._network = network
        self._graphs: dict[torch.Size, tuple[torch.Tensor, Callable[[], None], torch.Tensor]] = {}
        """Shape of images -> (images that the graph reads, function that replays the graph, logits that it
        writes)."""

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits, which the next images of this shape overwrite."""
        if images.shape not in self._graphs:
            source = images.clone()
            self._graphs[images.shape] = source, *captured(lambda: self._network(source), images.device)
        source, replay, answer = self._graphs[images.shape]
        source.copy_(images)
        replay()
        return answer


def _network(weights: Weights, precision: str, device: torch.device) -> torch.nn.Module:
    """Return the network with the saved weights. Weights of convolutions and classifier are cast to
    ``precision`` here, once: autocast would cast float32 weights for every request."""
    # False is ``gamma_zero``: it concerns initial values only, which are replaced below.
    blur = "blur_pool" in weights.facts
    network = ResNet50(weights.classes, weights.width, False, precision, blur=blur).eval().to(device)
    for name, tensor in tensors(network).items():
        tensor.copy_(torch.from_numpy(np.array(weights.arrays[name])))
    for name, parameter in trainable(network):
        if optimizers.has_weight_decay(name):
            parameter.data = parameter.data.to(PRECISIONS[precision])
    return network


def _on_arrays(network: Network, device: torch.device) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that runs ``network`` on arrays in the host's memory."""

    def logits(images: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            tensor = torch.from_numpy(images)
            if device.type == "cuda":  # a copy from pinned memory is several times as fast
                tensor = tensor.pin_memory().to(device, non_blocking=True)
            answer: np.ndarray = network(tensor.contiguous(memory_format=torch.channels_last)).cpu().numpy()
        return answer

    return logits

"""Forward and backward pass of a training step, and how a device executes them (STEP_MODE).

All full batches have one shape, so they can be compiled for it, or captured once as a CUDA graph that the host then starts
with a single call. Ragged ones run operation by operation. The sum over the ranks and the update come after and are no part of a
graph: while the device works on one, the host has long started them, and the learning rate may be what it likes.
"""

from typing import Any, Callable

import torch
from torch import nn

from implementations.pytorch.model import Normalise, separate_normalise, training_loss
from rn50.errors import UserError

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Images and labels -> the loss of every sample, shape (batch,); the gradients of their sum are in ``gradients`` then."""
WARM_UP_STEPS = 3
"""Before a capture: libraries choose their algorithms and take their memory, which a graph cannot."""


class Eager:
    """Operation by operation, or with ``losses`` compiled."""

    def __init__(self, network: nn.Module, gradients: torch.Tensor, label_smoothing: float, losses: Any = training_loss):
        self._network, self._gradients, self._label_smoothing = network, gradients, label_smoothing
        self._losses = losses

    def compiled(self) -> "Eager":
        """The same by ``torch.compile``; on a GPU it tries its own kernels beside those of the libraries, which takes minutes."""
        mode = "max-autotune-no-cudagraphs" if self._gradients.is_cuda else "default"
        losses = torch.compile(training_loss, mode=mode, fullgraph=True, dynamic=False)
        return Eager(self._network, self._gradients, self._label_smoothing, losses)

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """See ``Step``."""
        self._network.train()
        self._gradients.zero_()
        losses = self._losses(self._network, images, labels, self._label_smoothing)
        losses.sum().backward()
        return losses.detach()


class Graph:
    """A step captured as a CUDA graph. It reads and writes the weights, statistics and gradients where they lay then."""

    def __init__(self, step: Step, images: torch.Tensor, labels: torch.Tensor):
        self._images, self._labels = images.clone(), labels.clone()
        # Both on one stream other than the default one, which cannot be captured.
        stream = torch.cuda.Stream(images.device)
        stream.wait_stream(torch.cuda.current_stream(images.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                step(self._images, self._labels)
        self._graph = torch.cuda.CUDAGraph()
        # Of this thread alone: those of NCCL and DALI may go on using the device meanwhile.
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self._losses = step(self._images, self._labels)
        torch.cuda.current_stream(images.device).wait_stream(stream)

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """See ``Step``; of the shapes that it was captured with."""
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._graph.replay()
        return self._losses.clone()  # the next replay writes there again


def normalise_of(mode: str, device: torch.device) -> Normalise:
    """What a network computes behind its convolutions with STEP_MODE ``mode``. Raises UserError where a package is missing."""
    if mode != "fused" or device.type != "cuda":
        return separate_normalise
    try:
        from implementations.pytorch.fused_norm import normalise
    except ImportError as error:
        remedy = "install triton, which PyTorch's builds for CUDA bring, or set STEP_MODE=graph"
        raise UserError("STEP_MODE=fused", error, remedy) from error
    return normalise


def of_full_batches(mode: str, step: Eager, images: torch.Tensor, labels: torch.Tensor) -> Step:
    """``step`` as STEP_MODE ``mode`` wants it for batches of these shapes. On a GPU all but "eager" are captured."""
    if mode == "compile":
        step = step.compiled()
    return Graph(step, images, labels) if images.is_cuda and mode != "eager" else step

"""Forward and backward pass of a training step, and the ways in which a device executes them (STEP_MODE).

All full batches have one shape, so their step can be compiled for it, or captured once as a CUDA graph that
the host then starts with a single call. Ragged batches run operation by operation.

The update is not part of a graph. With several ranks the all-reduce is between the two. With one, the host
starts the update's kernels, about 30, while the device still computes the graph, so they follow closely.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from implementations.pytorch.model import Normalise, separate_normalise, training_loss
from rn50.errors import UserError

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Images and labels -> the loss of every sample, shape (batch,). It leaves the gradients of their sum in
``gradients``."""
WARM_UP_STEPS = 3
"""Steps before a capture, in which libraries choose algorithms and allocate memory. Neither is possible
during a capture."""


class Eager:
    """Runs a step operation by operation, or with ``losses`` compiled."""

    def __init__(
        self, network: nn.Module, gradients: torch.Tensor, label_smoothing: float, losses: Any = training_loss
    ):
        self._network, self._gradients, self._label_smoothing = network, gradients, label_smoothing
        self._losses = losses

    def compiled(self) -> "Eager":
        """Return the same step compiled by ``torch.compile``, which with TORCHINDUCTOR_MAX_AUTOTUNE=1 takes
        minutes longer."""
        losses = torch.compile(training_loss, fullgraph=True, dynamic=False)
        return Eager(self._network, self._gradients, self._label_smoothing, losses)

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """See ``Step``."""
        self._network.train()
        self._gradients.zero_()
        losses = self._losses(self._network, images, labels, self._label_smoothing)
        losses.sum().backward()
        return losses.detach()


class Graph:
    """A step captured as a CUDA graph. It reads and writes weights, statistics and gradients where they were
    at the capture."""

    def __init__(self, step: Step, images: torch.Tensor, labels: torch.Tensor):
        self._images, self._labels = images.clone(), labels.clone()
        # Warm-up and capture are on one stream other than the default one, which cannot be captured.
        stream = torch.cuda.Stream(images.device)
        stream.wait_stream(torch.cuda.current_stream(images.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                step(self._images, self._labels)
        self._graph = torch.cuda.CUDAGraph()
        # Only this thread is captured, because threads of NCCL and DALI may use the device meanwhile.
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self._losses = step(self._images, self._labels)
        torch.cuda.current_stream(images.device).wait_stream(stream)

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """See ``Step``; the shapes have to be those of the capture."""
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._graph.replay()
        return self._losses.clone()  # the next replay overwrites the original


def normalise_of(mode: str, device: torch.device) -> Normalise:
    """Return the function that follows each convolution in STEP_MODE ``mode``. Raises UserError if a package
    is missing."""
    if mode != "fused" or device.type != "cuda":
        return separate_normalise
    try:
        from implementations.pytorch.fused_norm import normalise
    except ImportError as error:
        remedy = "install triton, which PyTorch's builds for CUDA bring, or set STEP_MODE=graph"
        raise UserError("STEP_MODE=fused", error, remedy) from error
    return normalise


def of_full_batches(mode: str, step: Eager, images: torch.Tensor, labels: torch.Tensor) -> Step:
    """Return ``step`` in STEP_MODE ``mode`` for batches of these shapes. On a GPU all modes but "eager"
    capture it."""
    if mode == "compile":
        step = step.compiled()
        step(images, labels)  # compiles before a step is counted: the watchdog allows for that
    return Graph(step, images, labels) if images.is_cuda and mode != "eager" else step

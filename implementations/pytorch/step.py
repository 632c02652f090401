"""Forward and backward pass of a training step, and the ways in which a device executes them (STEP_MODE).

All full batches have one shape, so their step can be compiled for it, or captured once as a CUDA graph that
the host then starts with a single call. Ragged batches run operation by operation. The update is a graph of
its own, because with several ranks the all-reduce is between the two.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from implementations.pytorch.model import training_loss

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Images and labels -> the loss of every sample, shape (batch,). It leaves the gradients of their sum in
``gradients``."""
Result = TypeVar("Result")
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


def captured(run: Callable[[], Result], device: torch.device) -> tuple[Callable[[], None], Result]:
    """Capture ``run`` as a CUDA graph, after three calls. Return what replays it, and the result that each
    replay overwrites. A replay reads and writes tensors where they were at the capture."""
    # Warm-up and capture are on one stream other than the default one, which cannot be captured.
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP_STEPS):
            run()
    graph = torch.cuda.CUDAGraph()
    # Only this thread is captured, because threads of NCCL and DALI may use the device meanwhile.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        result = run()
    torch.cuda.current_stream(device).wait_stream(stream)
    return graph.replay, result


class Graph:
    """A step captured as a CUDA graph."""

    def __init__(self, step: Step, images: torch.Tensor, labels: torch.Tensor):
        self._images, self._labels = images.clone(), labels.clone()
        self._replay, self._losses = captured(lambda: step(self._images, self._labels), images.device)

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """See ``Step``; the shapes have to be those of the capture."""
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._replay()
        return self._losses.clone()  # the next replay overwrites the original


def of_full_batches(mode: str, step: Eager, images: torch.Tensor, labels: torch.Tensor) -> Step:
    """Return ``step`` in STEP_MODE ``mode`` for batches of these shapes."""
    if mode == "compile":
        step = step.compiled()
    return Graph(step, images, labels) if is_captured(mode, images.device) else step


def is_captured(mode: str, device: torch.device) -> bool:
    """Return True if STEP_MODE ``mode`` runs a step as CUDA graphs: all but "eager" do on a GPU."""
    return device.type == "cuda" and mode != "eager"

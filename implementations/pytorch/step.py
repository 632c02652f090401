"""Forward and backward pass of a training step, and the ways in which a device executes them (STEP_MODE).

``PytorchEngine`` has a step for ragged batches and one for the full batches of each size of images. These
have one shape, so their step can be compiled for that shape, or captured once as a CUDA graph, which the host
then starts with a single call. The last batch of an epoch may be ragged, that is smaller; its step runs
operation by operation. The update of the weights is not part of these steps: the all-reduce comes before it.
On a GPU it is a CUDA graph of its own.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from implementations.pytorch.model import training_loss

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""A function of images and labels that returns the loss of every sample, shape (batch,). It also writes the
gradients of the sum of these losses to the tensor ``gradients`` that it was created with."""
Result = TypeVar("Result")
WARM_UP_STEPS = 3
"""Calls before a capture, in which libraries choose algorithms and allocate memory. Neither is possible
during a capture."""


class Eager:
    """Runs a step operation by operation. ``losses`` is ``training_loss``, or its compiled form: the
    operations are then those that the compiler has made of both passes."""

    def __init__(
        self,
        network: nn.Module,
        gradients: torch.Tensor,
        label_smoothing: float,
        binary: bool = False,
        losses: Any = training_loss,
    ):
        self._network, self._gradients = network, gradients
        self._target, self._losses = (label_smoothing, binary), losses

    def compiled(self) -> "Eager":
        """Return this step with both passes compiled by ``torch.compile``. The first call compiles; with
        TORCHINDUCTOR_MAX_AUTOTUNE=1 it takes minutes longer."""
        losses = torch.compile(training_loss, fullgraph=True, dynamic=False)
        return Eager(self._network, self._gradients, *self._target, losses)

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Run a step; see ``Step``."""
        self._network.train()
        self._gradients.zero_()
        losses = self._losses(self._network, images, labels, *self._target)
        losses.sum().backward()
        return losses.detach()


def captured(
    run: Callable[[], Result], device: torch.device, pool: Any = None
) -> tuple[Callable[[], None], Result]:
    """Call ``run`` three times, then capture it as a CUDA graph. Return a function that replays the graph,
    and the tensors that ``run`` returned. Each replay reads and writes the tensors of the capture, and so
    overwrites the returned ones.

    Graphs with one ``pool`` of memory share it, so that a replay overwrites what the others have returned;
    None: the graph has memory of its own.
    """
    # The default stream cannot be captured, so the calls and the capture are on another stream.
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP_STEPS):
            run()
    graph = torch.cuda.CUDAGraph()
    # Capture the work of this thread only: threads of NCCL and DALI may use the device meanwhile.
    with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
        result = run()
    torch.cuda.current_stream(device).wait_stream(stream)
    return graph.replay, result


class Graph:
    """A step captured as a CUDA graph."""

    def __init__(self, step: Step, images: torch.Tensor, labels: torch.Tensor, pool: Any):
        self._images, self._labels = images.clone(), labels.clone()
        self._replay, self._losses = captured(lambda: step(self._images, self._labels), images.device, pool)

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Run a step; see ``Step``. The shapes must be those of the capture."""
        self._images.copy_(images)
        self._labels.copy_(labels)
        self._replay()
        return self._losses.clone()  # the next replay overwrites the original


def full_batch_step(
    mode: str, step: Eager, images: torch.Tensor, labels: torch.Tensor, pool: Any = None
) -> Step:
    """Return ``step`` as STEP_MODE ``mode`` executes it, for batches of the shapes of ``images`` and
    ``labels``. ``pool`` is that of ``captured``."""
    if mode == "compile":
        step = step.compiled()
    return Graph(step, images, labels, pool) if is_captured(mode, images.device) else step


def is_captured(mode: str, device: torch.device) -> bool:
    """Return True if STEP_MODE ``mode`` runs a step as CUDA graphs. On a GPU all modes except "eager" do."""
    return device.type == "cuda" and mode != "eager"

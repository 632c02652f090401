"""The contract between the timed run and a framework.

The boundary is the epoch, not the step: the hot loop stays whole in the framework's own file, and clock, log, evaluation and
stopping are written once in ``timed_run.py``.
"""

import functools
import pathlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Protocol, Tuple

import numpy as np

from rn50 import frameworks
from rn50.data.pipeline.dali import Form
from rn50.settings.config import Config, InputPipeline

Progress = Callable[[int, float], None]
"""Called after the first step of the run, now and then after it, and at the end of an epoch, with (samples seen by this rank in
this epoch, mean training loss of a step)."""


class EpochResult(NamedTuple):
    """What one rank's pass over its part of the training set gave."""

    samples: int
    seconds: float
    data_wait_seconds: float
    """Of ``seconds``, the time that the training loop waited for its next batch."""


class Operator(NamedTuple):
    """What an operator of the framework took of profiled steps."""

    name: str
    calls: int
    seconds: float
    """On the device, without the operators that it called itself."""


class Communicator(Protocol):
    """The ranks of a run. One process is a communicator of size 1."""

    rank: int
    local_rank: int
    size: int
    library: str
    """What carries the sums of gradients: "shared memory", "Gloo", "MPI", "NCCL", or "" in one process."""

    def barrier(self) -> None:
        """Returns once every rank has called it."""

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The element-wise sum of an int64 array over all ranks, on every rank."""

    def all_reduce_seconds(self, values: int, repeats: int) -> List[float]:
        """How long each of ``repeats`` sums of ``values`` float32 numbers took, on the device and in the way of the gradients."""


class Implementation(Protocol):
    """One rank of a training job in some framework. Built by ``create(config)`` of ``implementations.<framework>.train``; by
    ``create(config, model)`` one that has a model of the framework's own zoo in place of ours, for ``train_steps`` alone."""

    communicator: Communicator
    steps: int
    """Batches of any kind that this rank has begun, so that another thread can see whether it goes on."""
    waits_for_data: bool
    """Whether it waits for its input pipeline just now."""
    forward_seconds: float
    """After ``warm_up``: how long this rank takes for a forward pass, on its own. It shows which rank is a slow one."""
    batch_form: Form
    """What its input pipeline makes of the images, and where."""

    def warm_up(self, seed: int) -> List[str]:
        """Builds model and optimizer, compiles, and runs steps on synthetic batches; touches no file of the data set.

        Afterwards the weights are again those that ``seed`` gives and the optimizer has no memory of the synthetic steps.
        Returns the names of the trainable tensors, as the log is to call them.
        """

    def open_data(self) -> None:
        """The first moment at which any file of the data set may be opened, its index included."""

    def train_epoch(self, epoch: int, progress: Progress) -> EpochResult:
        """One pass, every sample exactly once across the ranks. Epochs count from 1."""

    def open_input(self, knobs: Optional[InputPipeline]) -> Any:
        """Batches for ``train_steps``, after ``warm_up``: the training set through a pipeline of these ``knobs``, or with None
        one random batch that is held on the device. Several may be open at a time.

        A pipeline has given its first batch: what it cannot do, for want of memory or of data, it refuses here.
        """

    def train_steps(self, batches: Any, lead_in: int, steps: int) -> EpochResult:
        """``steps`` training steps on what ``open_input`` gave, at a learning rate of 0.

        They are to cost what they cost amid a long run: batches that were prepared ahead in idle time are thrown away first, and
        ``lead_in`` steps then go before those that are timed and counted. All ranks call it.
        """

    def profile(self, batches: Any, steps: int, trace: pathlib.Path) -> Tuple[EpochResult, List[Operator]]:
        """``train_steps`` under the framework's own profiler, which slows it; its timeline is written to ``trace``, in the format
        of Chrome's tracing."""

    def evaluate(self) -> Tuple[int, int]:
        """(correct, total) of this rank's part of the validation set."""

    def close(self) -> None:
        """Ends communication and input threads; also after a fault, and before ``open_data``."""


def load(framework: str, model: Optional[str] = None) -> Callable[[Config], Implementation]:
    """Return ``create`` of ``implementations.<framework>.train``; of ``model``, where one of its ``zoo`` is named.

    Raises UserError where there is no such implementation, or a package that it needs is missing.
    """
    create: Callable[..., Implementation] = frameworks.module(framework, "train").create
    return create if model is None else functools.partial(create, model=model)


def zoo(framework: str) -> Dict[str, int]:
    """Return the models of the framework's own zoo: name -> side of the input in pixels.

    Raises UserError as ``load`` does, and where the zoo is not installed.
    """
    models: Dict[str, int] = frameworks.module(framework, "zoo").models()
    return models

"""The contract between the timed run and a framework.

The boundary is the epoch, not the step. The hot loop stays whole in the framework's own file; clock, log, evaluation and
stopping are written once, in ``timed_run.py``.
"""

import functools
import pathlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Protocol, Tuple

import numpy as np

from rn50 import frameworks
from rn50.data.pipeline.batches import BatchFormat
from rn50.settings.config import Config, InputPipeline

Progress = Callable[[int, float], None]
"""Called with (samples seen by this rank in this epoch, mean training loss of a step): after the first step of the run, now and
then during an epoch, and at its end."""


class EpochResult(NamedTuple):
    """The result of one rank's pass over its part of the training set."""

    samples: int
    seconds: float
    data_wait_seconds: float
    """The part of ``seconds`` in which the training loop waited for its next batch."""


class Operator(NamedTuple):
    """Calls and time of one operator of the framework in the profiled steps."""

    name: str
    calls: int
    seconds: float
    """Time on the device, without that of the operators it called."""


class Communicator(Protocol):
    """The ranks of a run. One process is a communicator of size 1."""

    rank: int
    local_rank: int
    size: int
    library: str
    """The library of the gradients' all-reduce: "shared memory", "Gloo", "MPI", "NCCL", or "" in one process."""

    def barrier(self) -> None:
        """Wait until every rank has called it."""

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """Return the element-wise sum of an int64 array over all ranks, on every rank."""

    def all_reduce_seconds(self, values: int, repeats: int) -> List[float]:
        """Return the seconds of each of ``repeats`` all-reduces of ``values`` float32 numbers, made on the device as for
        gradients."""


class Implementation(Protocol):
    """One rank of a training job in some framework, built by ``create(config)`` of ``implementations.<framework>.train``.

    ``create(config, model)`` builds one with a model of the framework's own zoo in place of ours, for ``train_steps`` only.
    """

    communicator: Communicator
    steps: int
    """Batches of any kind that this rank has begun; another thread reads it to see whether the rank makes progress."""
    waits_for_data: bool
    """True while the rank waits for its input pipeline."""
    forward_seconds: float
    """Seconds of a forward pass of this rank alone, known after ``warm_up``. It shows which rank is slow."""
    batch_format: BatchFormat
    """The form of the batches that the input pipeline makes, and where it makes them."""

    def warm_up(self, seed: int) -> List[str]:
        """Build model and optimizer, compile, and run steps on synthetic batches. Touches no file of the data set.

        Afterwards the weights are again those of ``seed``, and the optimizer has no state from the synthetic steps.
        Returns the names of the trainable tensors for the log.
        """

    def open_data(self) -> None:
        """Open the data set. Before this call no file of it may be opened, its index included."""

    def train_epoch(self, epoch: int, progress: Progress) -> EpochResult:
        """Train one epoch: every sample exactly once across the ranks. Epochs count from 1."""

    def open_input(self, knobs: Optional[InputPipeline]) -> Any:
        """Return batches for ``train_steps``: the training set through a pipeline of these settings, or with None one random
        batch held on the device. ``warm_up`` comes first. Several inputs may be open at a time.

        A pipeline has given its first batch by then, so too little memory or missing data is an error here.
        """

    def train_steps(self, batches: Any, lead_in: int, steps: int) -> EpochResult:
        """Run ``steps`` training steps at a learning rate of 0 on ``batches`` of ``open_input``.

        The steps have to cost what they cost in the middle of a long run. So batches that were prepared ahead in idle time are
        discarded, and ``lead_in`` steps run before those that are timed and counted. All ranks call it.
        """

    def profile(self, batches: Any, steps: int, trace: pathlib.Path) -> Tuple[EpochResult, List[Operator]]:
        """Run ``train_steps`` under the framework's own profiler, which slows it, and write the timeline to ``trace`` in Chrome's
        tracing format."""

    def evaluate(self) -> Tuple[int, int]:
        """Return (correct, total) of this rank's part of the validation set."""

    def close(self) -> None:
        """End communication and input threads. It may be called after a fault, and before ``open_data``."""


def load(framework: str, model: Optional[str] = None) -> Callable[[Config], Implementation]:
    """Return the ``create`` function of ``implementations.<framework>.train``, bound to ``model`` of its ``zoo`` if one is named.

    Raises UserError if there is no such implementation or a package that it needs is missing.
    """
    create: Callable[..., Implementation] = frameworks.module(framework, "train").create
    return create if model is None else functools.partial(create, model=model)


def zoo(framework: str) -> Dict[str, int]:
    """Return the models of the framework's own zoo: name -> side of the input in pixels.

    Raises UserError as ``load`` does, and if the zoo is not installed.
    """
    models: Dict[str, int] = frameworks.module(framework, "zoo").models()
    return models

"""The contract between the timed run and a framework.

The boundary is the epoch, not the step. The hot loop stays whole in the framework's own file; clock, log,
evaluation and stopping are written once, in ``timed_run.py``.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from rn50 import frameworks
from rn50.settings.config import Config

OnProgress = Callable[[int, float], None]
"""Called with (samples seen by this rank in this epoch, mean training loss of a step): after the first step
of the run, now and then during an epoch, and at its end."""


class EpochResult(NamedTuple):
    """The result of one rank's pass over its part of the training set."""

    samples: int
    seconds: float
    data_wait_seconds: float
    """The part of ``seconds`` in which the training loop waited for its next batch."""
    sample_order: int | None = None
    """See ``Batches.sample_order``."""


class Precision(NamedTuple):
    """The precision of the matrix products (``rn50.run.precision``)."""

    name: str
    """"float32", "float16" or "bfloat16"."""
    reason: str = ""
    """A line that says why PRECISION=auto became it; empty where configuration and device leave no choice."""


class Communicator(Protocol):
    """The ranks of a run. One process is a communicator of size 1."""

    rank: int
    local_rank: int
    size: int
    library: str
    """The library of the gradients' all-reduce: "shared memory", "Gloo", "MPI", "NCCL", or "" in one
    process."""

    def barrier(self) -> None:
        """Wait until every rank has called it."""

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """Return the element-wise sum of an int64 array over all ranks, on every rank."""

    def all_reduce_seconds(self, values: int, repeats: int) -> list[float]:
        """Return the seconds of each of ``repeats`` all-reduces of ``values`` float32 numbers, made on the
        device as for gradients."""


class Rank(Protocol):
    """One rank of a training job or of a measurement in some framework."""

    communicator: Communicator
    forward_seconds: float
    """Seconds of a forward pass of this rank alone, known after ``warm_up``. It shows which rank is slow."""
    precision: Precision
    """The same on all ranks, known after ``warm_up``."""

    def warm_up(self, seed: int) -> list[str]:
        """Build model and optimizer, compile, and run steps on synthetic batches. Touches no file of the data
        set.

        Afterwards the weights are again those of ``seed``, and the optimizer has no state from the synthetic
        steps. Returns the names of the trainable tensors for the log.
        """

    def close(self) -> None:
        """End communication and input threads. It may be called after a fault, and before ``open_data``."""


class Implementation(Rank, Protocol):
    """One rank of a training job, built by ``create(config)`` of ``implementations.<framework>.train``.

    Measurements need more: see ``rn50.speed.measurable``.
    """

    steps: int
    """Batches of any kind that this rank has begun; another thread reads it to see whether the rank makes
    progress."""
    waits_for_data: bool
    """True while the rank waits for its input pipeline."""

    def weights(self) -> dict[str, np.ndarray]:
        """Return float32 copies of all tensors, by the names and in the shapes of
        ``rn50.benchmark.network.shapes``."""

    def assign(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Give tensors these values, by the names of ``weights``. Call it after ``warm_up``; momentum is
        unchanged."""

    def keep(self, masks: Mapping[str, np.ndarray]) -> None:
        """Multiply the tensors of these names by the masks after every update from now on. Call it after
        ``warm_up``."""

    def momentum(self) -> dict[str, np.ndarray]:
        """Return float32 copies of the optimizer's momentum, by the names of the trainable tensors."""

    def assign_momentum(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Give the momentum these values. Call it after ``warm_up``."""

    def begin_after(self, epoch: int, seed: int) -> None:
        """Go on as after ``epoch`` epochs: count their steps, and reopen the training set, read with
        ``seed``.

        Call it after ``open_data``.
        """

    def open_data(self) -> None:
        """Open the data set. Before this call no file of it may be opened, its index included."""

    def train_epoch(self, epoch: int, progress: OnProgress) -> EpochResult:
        """Train one epoch: every sample exactly once across the ranks. Epochs count from 1."""

    def evaluate(self) -> tuple[int, int]:
        """Return (correct, total) of this rank's part of the validation set."""

    def predictions(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield float32 logits (n, classes) and labels (n,) of the batches that ``evaluate`` counts.

        Call it after ``warm_up``. It opens the validation set itself, because an evaluation alone needs no
        training set.
        """


R = TypeVar("R", bound=Rank)


@contextlib.contextmanager
def opened(config: Config, create: Callable[[Config], R]) -> Iterator[R]:
    """Yield one rank. At the end it waits for the others, and it is closed whatever happens."""
    rank = create(config)
    try:
        yield rank
        rank.communicator.barrier()
    finally:
        rank.close()


def load(framework: str) -> Callable[[Config], Implementation]:
    """Return the ``create`` function of ``implementations.<framework>.train``.

    Raises UserError if there is no such implementation or a package that it needs is missing.
    """
    create: Callable[[Config], Implementation] = frameworks.module(framework, "train").create
    return create

"""The contract of a framework: an engine, which computes, and a communicator, which joins the ranks.

The boundary is the step, not the epoch: the loops over batches are in ``rn50.run.loop``, once.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import numpy as np

from rn50.data.pipeline.batches import Batch, BatchFormat

Tensor: TypeAlias = Any
"""An array of the framework, on its device."""


class Communicator(Protocol):
    """The ranks of a run: ``connect(config)`` of ``rn50.run.communicators``. One process is a communicator of
    size 1."""

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

    def shared(self, values: int) -> np.ndarray | None:
        """Return zeros for gradients, float32 of shape (values,), in memory that all ranks share; None if the
        engine has to make them. All ranks call it in the same order."""

    def all_reduce_gradients(self, gradients: Any) -> None:
        """All-reduce in place the gradients of a step: one array of the framework, or several, in the order
        of ``shared``."""

    def lost_rank_named(self) -> AbstractContextManager[None]:
        """Raise RankLostError, in this context, in place of the library's error after a rank is lost."""

    def close(self) -> None:
        """Leave the job. It may be called after a fault, and twice."""


class Engine(Protocol):
    """Network, step and tensors of one rank, from ``create(config, communicator)`` of
    ``implementations.<framework>.engine``. It raises UserError if the framework cannot use the rank's
    device. ``create(config, communicator, model)`` of ``zoo`` beside it times a model of the framework's own
    zoo in place of ours."""

    batch_format: BatchFormat
    """The format of the batches that it takes, known before ``build``."""

    def build(self, seed: int, precision: str) -> list[str]:
        """Build network and optimizer with the initial weights of ``seed``, matrix products in ``precision``.

        Touches no file of the data set. Returns the names of the trainable tensors, as the MLPerf rulesets
        spell them.
        """

    def step(self, batch: Batch, learning_rate: float) -> Tensor:
        """Run forward pass, backward pass, all-reduce and update; return the loss of every sample. It may
        return before the device has finished."""

    def mean(self, loss: Tensor) -> float:
        """Return the mean of the losses of a step before the latest one, without waiting for the latest one.
        After ``wait``, ``loss`` may be of the latest one."""

    def correct(self, batch: Batch) -> Tensor:
        """Return how many of the samples that are not padding have their highest logit at their label."""

    def logits(self, images: Tensor) -> Tensor:
        """Return the logits of an evaluation, float32 of shape (B, classes)."""

    def tensors(self) -> Mapping[str, Tensor]:
        """Return all tensors of the network by the names of ``rn50.benchmark.network.shapes``."""

    def momentum(self) -> Mapping[str, Tensor]:
        """Return the optimizer's momentum by the names of the trainable tensors. After the first step it is
        complete."""

    def array(self, tensor: Tensor) -> np.ndarray:
        """Return a copy of a tensor, in the shape of ``rn50.benchmark.network.shapes``."""

    def set(self, tensor: Tensor, array: np.ndarray) -> None:
        """Give a tensor the values of an array, in place, in the shape that ``array`` returns."""

    def keep(self, masks: Mapping[str, np.ndarray]) -> None:
        """Multiply the tensors of these names by the masks after every update from now on."""

    def synthetic(self) -> Batch:
        """Return a full random batch on the device."""

    def wait(self) -> None:
        """Wait until the device has finished its work."""

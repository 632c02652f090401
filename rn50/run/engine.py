"""The contract of a framework: an engine, which computes, and a communicator, which joins the ranks.

Each folder of ``implementations/`` implements both. ``rn50.run.loop`` calls them, and has the loops over
batches for all frameworks. So an engine computes one step, never an epoch.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import numpy as np

from rn50.data.pipeline.batches import Batch, BatchFormat

Tensor: TypeAlias = Any
"""An array of the framework, on its device."""


class Communicator(Protocol):
    """One rank's connection to all ranks of a run. ``rn50.run.communicators.connect`` returns it. For a run
    of one rank it is a communicator of size 1."""

    rank: int
    """Number of this rank, from 0."""
    local_rank: int
    """Number of this rank among those of its machine, from 0, which is also the number of its GPU."""
    size: int
    """Number of ranks."""
    library: str
    """Library that all-reduces the gradients: "shared memory", "Gloo", "MPI" or "NCCL"; "" for one rank."""

    def barrier(self) -> None:
        """Wait until every rank has called this method."""

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """Return the element-wise sum of an int64 array over all ranks, on every rank."""

    def all_reduce_seconds(self, values: int, repeats: int) -> list[float]:
        """Time ``repeats`` all-reduces of ``values`` float32 numbers, on the device and with the library of
        the gradients. Return the seconds of each."""

    def shared(self, values: int) -> np.ndarray | None:
        """Return an array for gradients, float32 zeros of shape (values,), in memory that all ranks share.
        Return None if the engine has to allocate it. All ranks make the same calls in the same order."""

    def all_reduce_gradients(self, gradients: Any) -> None:
        """Sum the gradients of a step over all ranks, in place. ``gradients`` is an array of the framework,
        or a sequence of arrays in the order of the calls of ``shared``."""

    def lost_rank_named(self) -> AbstractContextManager[None]:
        """Return a context in which RankLostError replaces the library's error after another rank has
        ended."""

    def close(self) -> None:
        """Leave the job. May be called after a fault, and more than once."""


class Engine(Protocol):
    """Network, training step and tensors of one rank.

    ``create(config, communicator)`` of ``implementations.<framework>.engine`` returns it, or raises UserError
    if the framework cannot use the rank's device. ``create(config, communicator, model)`` of
    ``implementations.<framework>.zoo`` returns an engine of another model, for measurements.
    """

    batch_format: BatchFormat
    """The format of the batches that the methods take. It is set before ``build`` is called."""

    def build(self, seed: int, precision: str) -> list[str]:
        """Build network and optimizer. Draw the initial weights from ``seed``. ``precision`` is that of
        matrix products: "float32", "float16" or "bfloat16".

        Touches no file of the data set. Returns the names of the trainable tensors, as the MLPerf rulesets
        spell them.
        """

    def step(self, batch: Batch, learning_rate: float, average_share: float = 0.0) -> Tensor:
        """Run forward pass, backward pass, all-reduce and update. Return the losses of the samples, from
        which ``mean`` makes a number. May return before the device has finished.

        Every average of ``state`` then becomes ``average + average_share * (tensor - average)``.
        """

    def mean(self, loss: Tensor) -> float:
        """Return the mean of ``loss``, which ``step`` returned.

        The loop asks for the step before the latest one, and this method must not wait for the latest one.
        After ``wait`` the loop asks for the latest step too.
        """

    def correct(self, batch: Batch) -> Tensor:
        """Return the number of samples whose highest logit is that of their label. Padding, all after the
        first ``batch.samples`` samples, does not count."""

    def logits(self, images: Tensor) -> Tensor:
        """Return the logits of a batch of ``images`` in inference mode, float32 of shape (B, classes)."""

    def tensors(self) -> Mapping[str, Tensor]:
        """Return all tensors of the network by the names of ``rn50.benchmark.network.shapes``."""

    def state(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Return what a step changes besides ``tensors``: under "momentum" the optimizer's momentum, by the
        names of the trainable tensors, and under "average" the moving averages of all ``tensors``, by name;
        without EMA_HALF_LIFE there are none. Before the first step some momentum may be missing."""

    def array(self, tensor: Tensor) -> np.ndarray:
        """Return a copy of a tensor as a NumPy array, in the shape of ``rn50.benchmark.network.shapes``."""

    def set(self, tensor: Tensor, array: np.ndarray) -> None:
        """Set the values of a tensor in place. ``array`` has the shape that the method ``array`` returns."""

    def keep(self, masks: Mapping[str, np.ndarray]) -> None:
        """After every update from now on, multiply the tensors that ``masks`` names by their masks of 0 and
        1."""

    def synthetic(self, image_size: int) -> Batch:
        """Return a random batch of BATCHSIZE samples on the device, with images of ``image_size`` pixels."""

    def wait(self) -> None:
        """Wait until the device has finished its work."""

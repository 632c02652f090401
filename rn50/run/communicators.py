"""Communicators, which connect this process to the other ranks (``rn50.run.engine.Communicator``).

``connect`` chooses one of three: ``SingleProcess`` for one rank; ``SharedMemory`` of a framework, based on
``LocalRanks``, for ranks on the CPUs of one machine; ``Distributed`` of a framework, based on
``MessageRanks``, for all others.
"""

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rn50 import frameworks
from rn50.errors import RankLostError
from rn50.process import environment
from rn50.run.clock import seconds_of
from rn50.run.engine import Communicator
from rn50.run.local_ranks import started_here
from rn50.settings.config import Config


def connect(config: Config) -> Communicator:
    """Return the communicator of this process. Raises UserError if a rank of this machine lacks its GPU."""
    framework, on_gpu = config.run.framework, config.run.device == "gpu"
    if on_gpu:
        frameworks.module(framework, "device").require_gpus(config)
    if config.ranks == 1:
        return SingleProcess()
    module = frameworks.module(framework, "communicator")
    # Ranks on the CPUs of this machine, which ``local_launcher`` started, share memory.
    if started_here(environment()) and not on_gpu:
        return module.SharedMemory(environment())
    return module.Distributed(on_gpu, environment())


class SingleProcess:
    """A communicator of size 1."""

    rank = 0
    size = 1
    library = ""
    lost_rank_named = contextlib.nullcontext  # no other rank can be lost

    def __init__(self, local_rank: int = 0):
        self.local_rank = local_rank

    def barrier(self) -> None:
        """Do nothing."""

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """Return the array itself."""
        return array

    def all_reduce_seconds(self, values: int, repeats: int) -> list[float]:
        """Return zeros, because nothing is sent."""
        return [0.0] * repeats

    def shared(self, values: int) -> None:
        """Return None: there is no other rank to share gradients with."""

    def all_reduce_gradients(self, gradients: Any) -> None:
        """Do nothing: the gradients of the only rank are their sum over all ranks."""

    def close(self) -> None:
        """Do nothing."""


class MessageRanks(ABC):
    """A communicator whose library passes messages: Horovod, torch.distributed or paddle.distributed.

    The subclass of a framework adds ``all_reduce_gradients``, because gradients are arrays of the framework.
    """

    errors: tuple[type[Exception], ...]
    """Types of the library's errors after a rank is lost."""
    words = re.compile("gloo|nccl", re.IGNORECASE)
    """Pattern found in the messages of these errors, but not in those of other errors of the same types."""

    @abstractmethod
    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """Return the element-wise sum of an int64 array over all ranks."""

    @abstractmethod
    def _all_reduce_of(self, values: int) -> Callable[[], Any]:
        """Return a function that all-reduces ``values`` float32 numbers on the device of the gradients, and
        waits for the result."""

    @classmethod
    @contextlib.contextmanager
    def lost_rank_named(cls) -> Iterator[None]:
        """In this context, raise RankLostError in place of the library's error after a rank is lost."""
        try:
            yield
        except cls.errors as error:
            if cls.words.search(str(error)):
                raise RankLostError from error
            raise

    def shared(self, values: int) -> None:
        """Return None: each rank keeps its gradients in memory of its own."""
        return

    def barrier(self) -> None:
        """Wait until every rank has called this method."""
        self.all_reduce(np.zeros(1, dtype=np.int64))

    def all_reduce_seconds(self, values: int, repeats: int) -> list[float]:
        """Time ``repeats`` all-reduces of ``values`` float32 numbers, on the device of the gradients. Return
        the seconds of each."""
        return seconds_of(self._all_reduce_of(values), self.barrier, repeats)

"""How this process is connected to the other ranks: by nothing, by shared memory, or by messages."""

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
    framework, on_gpu, environ = config.run.framework, config.run.device == "gpu", environment()
    if on_gpu:
        frameworks.module(framework, "device").require_gpus(config)
    if config.ranks == 1:
        return SingleProcess()
    ranks, joined = frameworks.module(framework, "communicator"), started_here(environ) and not on_gpu
    communicator: Communicator = ranks.SharedMemory(environ) if joined else ranks.Distributed(on_gpu, environ)
    return communicator


class SingleProcess:
    """A communicator of size 1."""

    rank = 0
    size = 1
    library = ""
    lost_rank_named = contextlib.nullcontext

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
        """Return None: nobody shares the gradients."""

    def all_reduce_gradients(self, gradients: Any) -> None:
        """Do nothing: one rank's gradients are the sum."""

    def close(self) -> None:
        """Do nothing."""


class MessageRanks(ABC):
    """One rank of a job whose library passes messages: Horovod, torch.distributed or paddle.distributed.

    A framework adds ``all_reduce_gradients``, because these are its own arrays.
    """

    errors: tuple[type[Exception], ...]
    """Types of the library's errors after a rank is lost."""
    words = re.compile("gloo|nccl", re.IGNORECASE)
    """Pattern that tells these errors from others of the types."""

    @abstractmethod
    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """Return the element-wise sum of an int64 array over all ranks."""

    @abstractmethod
    def _all_reduce_of(self, values: int) -> Callable[[], Any]:
        """Return a function that all-reduces ``values`` float32 numbers on the device of the gradients, and
        waits for them."""

    @classmethod
    @contextlib.contextmanager
    def lost_rank_named(cls) -> Iterator[None]:
        """Raise RankLostError in place of the library's error after a rank is lost."""
        try:
            yield
        except cls.errors as error:
            if cls.words.search(str(error)):
                raise RankLostError from error
            raise

    def shared(self, values: int) -> None:
        """Return None: each rank has gradients of its own."""
        return

    def barrier(self) -> None:
        """Wait until every rank has called it."""
        self.all_reduce(np.zeros(1, dtype=np.int64))

    def all_reduce_seconds(self, values: int, repeats: int) -> list[float]:
        """Return the seconds of each of ``repeats`` all-reduces of ``values`` float32 numbers, on the device
        of the gradients."""
        return seconds_of(self._all_reduce_of(values), self.barrier, repeats)

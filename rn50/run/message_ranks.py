"""The ranks of a job whose library passes messages: Horovod, torch.distributed or paddle.distributed."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from rn50.run.clock import seconds_of


class MessageRanks(ABC):
    """A communicator except for gradients, whose arrays are a framework's."""

    lost_rank_named: Callable[[], AbstractContextManager[None]]

    @abstractmethod
    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """Return the element-wise sum of an int64 array over all ranks."""

    @abstractmethod
    def _all_reduce_of(self, values: int) -> Callable[[], Any]:
        """Return a function that all-reduces ``values`` float32 numbers on the device of the gradients, and
        waits for them."""

    def barrier(self) -> None:
        """Wait until every rank has called it."""
        self.all_reduce(np.zeros(1, dtype=np.int64))

    def all_reduce_seconds(self, values: int, repeats: int) -> list[float]:
        """Return the seconds of each of ``repeats`` all-reduces of ``values`` float32 numbers, on the device
        of the gradients."""
        return seconds_of(self._all_reduce_of(values), self.barrier, repeats)

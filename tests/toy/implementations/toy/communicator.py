"""The ranks of a toy job: one process, or ranks on one machine."""

from typing import Any

import numpy as np

from rn50.process import environment
from rn50.run import local_ranks, single_process


class OneRank(single_process.SingleProcess):
    """A communicator of size 1."""

    def gradients(self, values: int) -> np.ndarray:
        return np.zeros(values, np.float32)


class SharedMemory(local_ranks.LocalRanks):
    """One of several ranks; the gradients of all are in shared memory."""

    def gradients(self, values: int) -> np.ndarray:
        self._arrays = self.share(values)
        return self._arrays[self.rank]

    def all_reduce_gradients(self, gradients: np.ndarray) -> None:
        self.all_reduce_shared(self._arrays)


def connect(config: Any) -> Any:
    return OneRank() if config.ranks == 1 else SharedMemory(environment())

"""The communicator of a run of one process, except for its gradients, whose arrays are a framework's."""

import contextlib
from typing import Any

import numpy as np


class SingleProcess:
    """A communicator of size 1."""

    rank = 0
    local_rank = 0
    size = 1
    library = ""
    lost_rank_named = contextlib.nullcontext

    def barrier(self) -> None:
        """Do nothing."""

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """Return the array itself."""
        return array

    def all_reduce_seconds(self, values: int, repeats: int) -> list[float]:
        """Return zeros, because nothing is sent."""
        return [0.0] * repeats

    def all_reduce_gradients(self, gradients: Any) -> None:
        """Do nothing: one rank's gradients are the sum."""

    def close(self) -> None:
        """Do nothing."""

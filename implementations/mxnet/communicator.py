"""The ranks of an MXNet job: one process, or Horovod."""

import contextlib
from typing import Any, Iterable, Iterator

import mxnet as mx
import numpy as np

from rn50.errors import RankLostError, UserError


@contextlib.contextmanager
def lost_rank_named() -> Iterator[None]:
    """Raises RankLostError for what MXNet reports, wherever it next waits for the device, once Horovod has lost a rank."""
    try:
        yield
    except mx.base.MXNetError as error:
        if "Horovod" in str(error) or "gloo" in str(error):
            raise RankLostError from error
        raise


class SingleProcess:
    """A communicator of size 1."""

    rank = 0
    local_rank = 0
    size = 1

    def barrier(self) -> None:
        """Nobody to wait for."""

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The array itself."""
        return array

    def sum_gradients(self, gradients: Iterable[Any]) -> None:
        """They are the sum already."""

    def close(self) -> None:
        """Nothing is open."""


class Horovod:
    """One rank of a Horovod job."""

    def __init__(self) -> None:
        try:
            import horovod.mxnet as hvd
        except ImportError as error:
            raise UserError(f"DGXNGPU: more than one rank needs Horovod ({error}); run 'make test', which builds it") from error
        hvd.init()
        self._hvd = hvd
        self.rank, self.local_rank, self.size = hvd.rank(), hvd.local_rank(), hvd.size()

    def barrier(self) -> None:
        """Returns once every rank has called it."""
        self.sum(np.zeros(1, dtype=np.int64))

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The element-wise sum of an int64 array over all ranks."""
        with lost_rank_named():
            return self._hvd.allreduce(mx.nd.array(array, dtype="int64"), average=False).asnumpy()

    def sum_gradients(self, gradients: Iterable[Any]) -> None:
        """Sums each array in place over all ranks; arrays that backpropagation finishes first go first."""
        # Only gradients go through Horovod: a weight that an inference pass has touched lies in a layout of oneDNN's own,
        # and reducing or broadcasting it can fail on one rank and leave the others waiting.
        for index, gradient in enumerate(gradients):
            self._hvd.allreduce_(gradient, average=False, name=f"gradient_{index}", priority=-index)

    def close(self) -> None:
        """Leaves the job."""
        self._hvd.shutdown()

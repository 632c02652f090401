"""The ranks of an MXNet job: one process, ranks on one machine's CPU, or Horovod."""

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mxnet as mx
import numpy as np

from implementations.mxnet.device import require_gpus
from rn50 import process
from rn50.errors import RankLostError, UserError
from rn50.run import single_process
from rn50.run.local_ranks import LocalRanks, started_here
from rn50.run.message_ranks import MessageRanks
from rn50.settings import config as configuration

MEETING_SECONDS = 60
"""Time that ranks started by Slurm wait for rank 0."""
LOST = re.compile("Horovod|gloo|(Read|Write) error|Connection (reset|closed)")
"""Words in errors of Horovod and Gloo. MXNet takes the beginning of some for the name of a source file and
leaves it out."""


@contextlib.contextmanager
def lost_rank_named() -> Iterator[None]:
    """Raise RankLostError in place of MXNet's error after Horovod has lost a rank, raised when MXNet next
    waits for the device."""
    try:
        yield
    except mx.base.MXNetError as error:
        if LOST.search(str(error)):
            raise RankLostError from error
        raise


class SingleProcess(single_process.SingleProcess):
    """A communicator of size 1."""

    def gradients(self, values: int, context: Any) -> Any:
        """Return an array of zeros for gradients, float32 of shape (values,)."""
        return mx.nd.zeros(values, context)


class SharedMemory(LocalRanks):
    """One of several ranks on the CPU of one machine; the gradients of all ranks are in shared memory."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ)
        self._shared: list[list[np.ndarray]] = []
        """The arrays of all ranks for each array of ``gradients``, in their order."""

    def gradients(self, values: int, context: Any) -> Any:
        """Return an array of zeros for gradients, float32 of shape (values,), in shared memory. All ranks
        call it."""
        arrays = self.share(values)
        # from_numpy makes its NumPy array read-only, so it gets a view of its own.
        array = mx.nd.from_numpy(arrays[self.rank][:], zero_copy=True)
        self._shared.append(arrays)
        return array

    def all_reduce_gradients(self, gradients: Sequence[Any]) -> None:
        """All-reduce every array of ``gradients`` in place, once backpropagation has written it."""
        for array, arrays in zip(gradients, self._shared, strict=False):
            array.wait_to_read()
            self.all_reduce_shared(arrays)


class Horovod(MessageRanks):
    """One rank of a Horovod job."""

    lost_rank_named = staticmethod(lost_rank_named)

    def __init__(self, on_gpu: bool) -> None:
        try:
            import horovod.mxnet as hvd
        except ImportError as error:
            raise UserError(
                "DGXNGPU",
                f"more than one rank needs Horovod ({error})",
                "rn50 doctor names the command that builds it",
            ) from error
        _meet()
        hvd.init()
        self._hvd = hvd
        self.rank, self.local_rank, self.size = hvd.rank(), hvd.local_rank(), hvd.size()
        self.library = "NCCL" if on_gpu and hvd.nccl_built() else "Gloo" if hvd.gloo_enabled() else "MPI"
        self._on_gpu = on_gpu

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        with lost_rank_named():
            return self._hvd.allreduce(mx.nd.array(array, dtype="int64"), average=False).asnumpy()

    def _all_reduce_of(self, values: int) -> Callable[[], None]:
        array = mx.nd.zeros(values, mx.gpu(self.local_rank) if self._on_gpu else mx.cpu())

        def all_reduce() -> None:
            with lost_rank_named():
                self._hvd.allreduce_(array, average=False, name=f"timed_{values}")
                array.wait_to_read()

        return all_reduce

    gradients = SingleProcess.gradients

    def all_reduce_gradients(self, gradients: Sequence[Any]) -> None:
        """All-reduce each array in place, in the order in which backpropagation finishes them."""
        # Only gradients go through Horovod. A weight that an inference pass has used has a layout of oneDNN's
        # own, and an all-reduce or broadcast of it can fail on one rank and leave the others waiting.
        for index, array in enumerate(gradients):
            self._hvd.allreduce_(array, average=False, name=f"gradients_{index}", priority=-index)

    def close(self) -> None:
        """Leave the job."""
        self._hvd.shutdown()


def connect(config: configuration.Config) -> Any:
    """Return the communicator of this process. Raises UserError if a rank lacks its GPU."""
    require_gpus(config)
    if config.ranks == 1:
        return SingleProcess()
    environ = process.environment()
    return SharedMemory(environ) if started_here(environ) else Horovod(on_gpu=config.run.device == "gpu")


def _meet() -> None:
    """Start the rendezvous server on rank 0 and wait for it on the others, if Slurm started the ranks.

    horovodrun and mpirun do that themselves. Raises UserError if rank 0 cannot open its port or cannot be
    reached.
    """
    environ = process.environment()
    hosts = environ.get("RN50_RENDEZVOUS")
    if hosts is None:
        return
    address = environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    rank = int(environ["HOROVOD_RANK"])
    if rank == 0:
        from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
        from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

        try:
            server = RendezvousHTTPServer(("", address[1]), RendezvousHandler, 0)
        except OSError as error:
            raise UserError(
                f"port {address[1]}",
                f"rank 0 cannot open it ({error.strerror})",
                "set HOROVOD_GLOO_RENDEZVOUS_PORT to a free one",
            ) from error
        server.init(get_host_assignments(parse_hosts(hosts), int(environ["HOROVOD_SIZE"])))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return
    deadline = time.monotonic() + MEETING_SECONDS
    while True:
        try:
            socket.create_connection(address, timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise UserError(
                    f"rank {rank} on {environ['HOROVOD_HOSTNAME']}",
                    f"no rank 0 at {address[0]} port {address[1]} within {MEETING_SECONDS} s ({error})",
                    "see whether it was started, and whether a firewall is between them",
                ) from error
            time.sleep(0.1)

"""The ranks of an MXNet job: one process, those of one machine's CPU, or Horovod."""

import contextlib
import socket
import threading
import time
from typing import Any, Dict, Iterator, List, Mapping, Sequence

import mxnet as mx
import numpy as np

from rn50 import process
from rn50.errors import RankLostError, UserError
from rn50.run.local_ranks import LocalRanks, started_here
from rn50.settings import config as configuration

MEETING_SECONDS = 60
"""So long ranks that Slurm started wait for rank 0 to start too."""


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
    library = ""

    def barrier(self) -> None:
        """Nobody to wait for."""

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The array itself."""
        return array

    def all_reduce_seconds(self, values: int, repeats: int) -> List[float]:
        """Nothing has to be sent."""
        return [0.0] * repeats

    def gradients(self, values: int, context: Any) -> Any:
        """An array of zeros, float32 of shape (values,), for gradients that are to be summed."""
        return mx.nd.zeros(values, context)

    def sum_gradients(self, gradients: Sequence[Any]) -> None:
        """They are the sum already."""

    def close(self) -> None:
        """Nothing is open."""


class SharedMemory(LocalRanks):
    """One of several ranks on the CPU of one machine; the gradients of all of them lie in one memory."""

    library = "shared memory"

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ)
        self.local_rank = self.rank
        self._everybodys: Dict[int, List[np.ndarray]] = {}
        """Of an array of ``gradients``, by its id: that of every rank."""

    def gradients(self, values: int, context: Any) -> Any:
        """An array of zeros, float32 of shape (values,), for gradients that are to be summed. All ranks call it."""
        everybodys = self.share(values)
        # MXNet's view of the memory makes NumPy's read-only, so it gets one of its own.
        array = mx.nd.from_numpy(everybodys[self.rank][:], zero_copy=True)
        self._everybodys[id(array)] = everybodys
        return array

    def all_reduce_seconds(self, values: int, repeats: int) -> List[float]:
        """How long each of ``repeats`` sums of ``values`` float32 numbers took."""
        arrays = self.share(values)
        seconds = []
        for _ in range(repeats):
            self.barrier()
            begin = time.perf_counter()
            self.sum_shared(arrays)
            seconds.append(time.perf_counter() - begin)
        return seconds

    def sum_gradients(self, gradients: Sequence[Any]) -> None:
        """Sums each array in place over all ranks, once backpropagation has written it."""
        for array in gradients:
            array.wait_to_read()
            self.sum_shared(self._everybodys[id(array)])


class Horovod:
    """One rank of a Horovod job."""

    def __init__(self, on_gpu: bool) -> None:
        try:
            import horovod.mxnet as hvd
        except ImportError as error:
            raise UserError("DGXNGPU", f"more than one rank needs Horovod ({error})",
                            "run 'make test', which builds it") from error
        _meet(process.environment())
        hvd.init()
        self._hvd = hvd
        self.rank, self.local_rank, self.size = hvd.rank(), hvd.local_rank(), hvd.size()
        self.library = "NCCL" if on_gpu and hvd.nccl_built() else "Gloo" if hvd.gloo_enabled() else "MPI"
        self._on_gpu = on_gpu

    def barrier(self) -> None:
        """Returns once every rank has called it."""
        self.sum(np.zeros(1, dtype=np.int64))

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The element-wise sum of an int64 array over all ranks."""
        with lost_rank_named():
            return self._hvd.allreduce(mx.nd.array(array, dtype="int64"), average=False).asnumpy()

    def all_reduce_seconds(self, values: int, repeats: int) -> List[float]:
        """How long each of ``repeats`` sums of ``values`` float32 numbers took, on the device of the gradients."""
        array = mx.nd.zeros(values, mx.gpu(self.local_rank) if self._on_gpu else mx.cpu())
        seconds = []
        with lost_rank_named():
            for _ in range(repeats):
                self.barrier()
                begin = time.perf_counter()
                self._hvd.allreduce_(array, average=False, name=f"timed_{values}")
                array.wait_to_read()
                seconds.append(time.perf_counter() - begin)
        return seconds

    def gradients(self, values: int, context: Any) -> Any:
        """An array of zeros, float32 of shape (values,), for gradients that are to be summed."""
        return mx.nd.zeros(values, context)

    def sum_gradients(self, gradients: Sequence[Any]) -> None:
        """Sums each array in place over all ranks; arrays that backpropagation finishes first go first."""
        # Only gradients go through Horovod: a weight that an inference pass has touched lies in a layout of oneDNN's own,
        # and reducing or broadcasting it can fail on one rank and leave the others waiting.
        for index, array in enumerate(gradients):
            self._hvd.allreduce_(array, average=False, name=f"gradients_{index}", priority=-index)

    def close(self) -> None:
        """Leaves the job."""
        self._hvd.shutdown()


def join(config: configuration.Config) -> Any:
    """The communicator of this process."""
    if config.ranks == 1:
        return SingleProcess()
    environ = process.environment()
    return SharedMemory(environ) if started_here(environ) else Horovod(on_gpu=config.run.device == "gpu")


def _meet(environ: Mapping[str, str]) -> None:
    """Among ranks that Slurm started, rank 0 tells all of them each other's addresses; the others wait until it does.

    horovodrun and mpirun do that themselves. Raises UserError where rank 0 cannot be had.
    """
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
            raise UserError(f"port {address[1]}", f"rank 0 cannot open it ({error.strerror})",
                            "set HOROVOD_GLOO_RENDEZVOUS_PORT to a free one") from error
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
                raise UserError(f"rank {rank} on {environ['HOROVOD_HOSTNAME']}",
                                f"no rank 0 at {address[0]} port {address[1]} within {MEETING_SECONDS} s ({error})",
                                "see whether it was started, and whether a firewall is between them") from error
            time.sleep(0.1)

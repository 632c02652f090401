"""The communicators of MXNet (``rn50.run.engine.Communicator``): they join the ranks of a run.

``connect`` in ``rn50/run/communicators.py`` creates ``SharedMemory`` if all ranks are on the CPU of one
machine, else ``Distributed``, on Horovod.
"""

import re
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mxnet as mx
import numpy as np

# Import DALI before Horovod: a DALI that is loaded later ends the process by "free(): invalid size".
from implementations.mxnet import dali_batches  # noqa: F401
from rn50.errors import UserError
from rn50.run.communicators import MessageRanks
from rn50.run.local_ranks import LocalRanks

MEETING_SECONDS = 60
"""Seconds for which a rank that Slurm has started waits until rank 0 can be reached."""


class SharedMemory(LocalRanks):
    """Communicator of ranks on the CPU of one machine. The gradients of all ranks are in shared memory."""

    def all_reduce_gradients(self, gradients: Sequence[Any]) -> None:
        """Sum every gradient over all ranks, in place, when backpropagation has written it. ``gradients`` are
        this rank's, in the order in which ``LocalRanks.shared`` has returned their memory. ``_shared`` has
        for each of them the arrays of all ranks."""
        for gradient, arrays in zip(gradients, self._shared, strict=False):
            gradient.wait_to_read()
            self.all_reduce_shared(arrays)


class Distributed(MessageRanks):
    """Communicator of ranks that Horovod joins. If a rank is lost, Horovod's error comes when MXNet next
    waits for the device."""

    # ``MessageRanks`` takes an error of these types whose message has one of these words as the loss of a
    # rank. The beginning of a message names Horovod or Gloo, but MXNet may take it for the name of a source
    # file and leave it out. The other words are from the rest of such messages.
    errors = (mx.base.MXNetError,)
    words = re.compile("Horovod|gloo|(Read|Write) error|Connection (reset|closed)")

    def __init__(self, on_gpu: bool, environ: Mapping[str, str]) -> None:
        try:
            import horovod.mxnet as hvd
        except ImportError as error:
            problem = f"more than one rank needs Horovod ({error})"
            raise UserError("DGXNGPU", problem, "rn50 doctor names the command that builds it") from error
        _rendezvous(environ)
        hvd.init()
        self._hvd = hvd
        self.rank, self.local_rank, self.size = hvd.rank(), hvd.local_rank(), hvd.size()
        library_on_cpu = "Gloo" if hvd.gloo_enabled() else "MPI"
        self.library = "NCCL" if on_gpu and hvd.nccl_built() else library_on_cpu
        self._on_gpu = on_gpu

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """Return the element-wise sum of an int64 array over all ranks."""
        with self.lost_rank_named():
            return self._hvd.allreduce(mx.nd.array(array, dtype="int64"), average=False).asnumpy()

    def _all_reduce_of(self, values: int) -> Callable[[], None]:
        """Return a function that all-reduces ``values`` float32 numbers and waits for the result. It is
        called to time all-reduces."""
        array = mx.nd.zeros(values, mx.gpu(self.local_rank) if self._on_gpu else mx.cpu())

        def all_reduce() -> None:
            with self.lost_rank_named():
                self._hvd.allreduce_(array, average=False, name=f"timed_{values}")
                array.wait_to_read()

        return all_reduce

    def all_reduce_gradients(self, gradients: Sequence[Any]) -> None:
        """Start the sum of every gradient over all ranks, in place. The first of ``gradients`` has the
        highest priority, because backpropagation finishes it first."""
        # Only gradients go through Horovod, never weights. After an evaluation the weights have a memory
        # layout of oneDNN's own, and Horovod can fail on one rank and leave the other ranks waiting.
        for index, array in enumerate(gradients):
            self._hvd.allreduce_(array, average=False, name=f"gradients_{index}", priority=-index)

    def close(self) -> None:
        """Leave the job."""
        self._hvd.shutdown()


def _rendezvous(environ: Mapping[str, str]) -> None:
    """Start Horovod's rendezvous server on rank 0, and let the other ranks wait for it.

    Do so only if Slurm has started the ranks: ``rn50/launch/launchers.py`` has then set RN50_RENDEZVOUS to
    their hosts. horovodrun and mpirun have a rendezvous of their own. Raises UserError if rank 0 cannot open
    its port or cannot be reached.
    """
    hosts = environ.get("RN50_RENDEZVOUS")  # like host1:8,host2:8, with the number of ranks on each host
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
            problem = f"rank 0 cannot open it ({error.strerror})"
            remedy = "set HOROVOD_GLOO_RENDEZVOUS_PORT to a free one"
            raise UserError(f"port {address[1]}", problem, remedy) from error
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
                problem = f"no rank 0 at {address[0]} port {address[1]} within {MEETING_SECONDS} s ({error})"
                remedy = "see whether it was started, and whether a firewall is between them"
                raise UserError(f"rank {rank} on {environ['HOROVOD_HOSTNAME']}", problem, remedy) from error
            time.sleep(0.1)

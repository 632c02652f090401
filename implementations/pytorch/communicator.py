"""The communicators of PyTorch (``rn50.run.engine.Communicator``): they join the ranks of a run.

``connect`` in ``rn50/run/communicators.py`` creates ``SharedMemory`` if all ranks are on the CPU of one
machine, else ``Distributed``, on torch.distributed.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import distributed

from rn50.errors import UserError
from rn50.run.communicators import MessageRanks
from rn50.run.local_ranks import LocalRanks, started_here

SharedMemory = LocalRanks
"""Ranks on one machine's CPU. PyTorch needs nothing beyond ``LocalRanks``: when ``backward`` returns, the
gradients in the shared memory are complete."""


class Distributed(MessageRanks):
    """A rank of torch.distributed, which uses NCCL between GPUs and Gloo between CPUs. Our launchers or
    torchrun have started it."""

    errors = (RuntimeError,)  # raised by torch.distributed after a rank is lost

    def __init__(self, on_gpu: bool, environ: Mapping[str, str]) -> None:
        self.library = "NCCL" if on_gpu else "Gloo"
        arguments: dict[str, Any] = {}
        if started_here(environ):
            arguments = _rendezvous(LocalRanks(environ))
            self.local_rank = arguments["rank"]
        elif "LOCAL_RANK" in environ:
            self.local_rank = int(environ["LOCAL_RANK"])
        else:
            remedy = "use ./run_and_time.sh, ./run.sub or torchrun"
            raise UserError("DGXNGPU", "nobody has started more than one rank", remedy)
        self._device = torch.device("cuda", self.local_rank) if on_gpu else torch.device("cpu")
        if on_gpu:
            torch.cuda.set_device(self._device)
        try:
            with self.lost_rank_named():
                distributed.init_process_group(self.library.lower(), **arguments)
        except distributed.DistNetworkError as error:
            if "EADDRINUSE" not in str(error):
                raise
            port = "{MASTER_ADDR}:{MASTER_PORT}".format_map(environ)
            raise UserError(port, "rank 0 cannot open this port", "set MASTER_PORT to a free one") from error
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        with self.lost_rank_named():
            tensor = torch.from_numpy(array.copy()).to(self._device)
            distributed.all_reduce(tensor)
            return tensor.cpu().numpy()

    def _all_reduce_of(self, values: int) -> Callable[[], None]:
        """Return a function that all-reduces ``values`` zeros and waits for the device."""
        tensor = torch.zeros(values, device=self._device)

        def all_reduce() -> None:
            self.all_reduce_gradients(tensor)
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)

        return all_reduce

    def all_reduce_gradients(self, gradients: torch.Tensor) -> None:
        """Sum ``gradients`` over all ranks, in place."""
        with self.lost_rank_named():
            distributed.all_reduce(gradients)

    def close(self) -> None:
        """Leave the job. A second call does nothing."""
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _rendezvous(ranks: LocalRanks) -> dict[str, Any]:
    """Return the arguments of ``init_process_group`` for ranks that our launcher has started on one machine.

    Rank 0 opens a store on a free port and broadcasts the port. The others connect to it.
    """
    store = None
    if ranks.rank == 0:
        store = distributed.TCPStore("127.0.0.1", 0, ranks.size, is_master=True, wait_for_workers=False)
    (port,) = ranks.all_reduce(np.array([store.port if store else 0]))  # all other ranks add 0
    store = store or distributed.TCPStore("127.0.0.1", int(port), ranks.size, is_master=False)
    return {"store": store, "rank": ranks.rank, "world_size": ranks.size}

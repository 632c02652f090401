"""The ranks of a PyTorch job: one process, ranks on one machine's CPU, or torch.distributed."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import distributed

from implementations.pytorch.device import require_gpus
from rn50 import process
from rn50.errors import RankLostError, UserError
from rn50.run import single_process
from rn50.run.local_ranks import LocalRanks, started_here
from rn50.run.message_ranks import MessageRanks
from rn50.settings import config as configuration


@contextlib.contextmanager
def lost_rank_named() -> Iterator[None]:
    """Raise RankLostError in place of torch.distributed's error after a rank is lost."""
    try:
        yield
    except RuntimeError as error:
        if "gloo" in str(error).lower() or "nccl" in str(error).lower():
            raise RankLostError from error
        raise


class SingleProcess(single_process.SingleProcess):
    """A communicator of size 1."""

    def gradients(self, values: int, device: torch.device) -> torch.Tensor:
        """Return a tensor of zeros for gradients, float32 of shape (values,)."""
        return torch.zeros(values, device=device)


class SharedMemory(LocalRanks):
    """One of several ranks on the CPU of one machine; the gradients of all ranks are in shared memory."""

    def gradients(self, values: int, device: torch.device) -> torch.Tensor:
        """Return a tensor of zeros for gradients, float32 of shape (values,), in shared memory. All ranks
        call it, once."""
        self._arrays = self.share(values)
        return torch.from_numpy(self._arrays[self.rank])

    def all_reduce_gradients(self, gradients: torch.Tensor) -> None:
        """All-reduce the tensor of ``gradients`` in place."""
        self.all_reduce_shared(self._arrays)


class Distributed(MessageRanks):
    """One rank of a torch.distributed job, NCCL between GPUs and Gloo between CPUs; started by our launchers
    or by torchrun."""

    lost_rank_named = staticmethod(lost_rank_named)

    def __init__(self, on_gpu: bool, environ: Mapping[str, str]) -> None:
        self.library = "NCCL" if on_gpu else "Gloo"
        how: dict[str, Any] = {}
        if started_here(environ):
            how = _met(LocalRanks(environ))
            self.local_rank = how["rank"]
        elif "LOCAL_RANK" in environ:
            self.local_rank = int(environ["LOCAL_RANK"])
        else:
            raise UserError(
                "DGXNGPU",
                "nobody has started more than one rank",
                "use ./run_and_time.sh, ./run.sub or torchrun",
            )
        self._device = torch.device("cuda", self.local_rank) if on_gpu else torch.device("cpu")
        if on_gpu:
            torch.cuda.set_device(self._device)
        try:
            with lost_rank_named():
                distributed.init_process_group(self.library.lower(), **how)
        except distributed.DistNetworkError as error:
            if "EADDRINUSE" not in str(error):
                raise
            raise UserError(
                f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}",
                "rank 0 cannot open this port",
                "set MASTER_PORT to a free one",
            ) from error
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        with lost_rank_named():
            tensor = torch.from_numpy(array.copy()).to(self._device)
            distributed.all_reduce(tensor)
            return tensor.cpu().numpy()

    def _all_reduce_of(self, values: int) -> Callable[[], None]:
        tensor = torch.zeros(values, device=self._device)

        def all_reduce() -> None:
            self.all_reduce_gradients(tensor)
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)

        return all_reduce

    gradients = SingleProcess.gradients

    def all_reduce_gradients(self, gradients: torch.Tensor) -> None:
        """All-reduce ``gradients`` in place."""
        with lost_rank_named():
            distributed.all_reduce(gradients)

    def close(self) -> None:
        """Leave the job. A second call does nothing."""
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _met(ranks: LocalRanks) -> dict[str, Any]:
    """Return the arguments of ``init_process_group`` for ranks of ``local_launcher``. Rank 0 broadcasts a
    free port."""
    store = (
        distributed.TCPStore("127.0.0.1", 0, ranks.size, is_master=True, wait_for_workers=False)
        if ranks.rank == 0
        else None
    )
    (port,) = ranks.all_reduce(np.array([store.port if store else 0]))
    store = store or distributed.TCPStore("127.0.0.1", int(port), ranks.size, is_master=False)
    return {"store": store, "rank": ranks.rank, "world_size": ranks.size}


def connect(config: configuration.Config) -> Any:
    """Return the communicator of this process. Raises UserError if a rank lacks its GPU."""
    require_gpus(config)
    if config.ranks == 1:
        return SingleProcess()
    environ = process.environment()
    on_gpu = config.run.device == "gpu"
    return SharedMemory(environ) if started_here(environ) and not on_gpu else Distributed(on_gpu, environ)

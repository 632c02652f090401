"""The communicators of PaddlePaddle (``rn50.run.engine.Communicator``): they join the ranks of a run.

``connect`` in ``rn50/run/communicators.py`` creates ``SharedMemory`` if all ranks are on the CPU of one
machine, else ``Distributed``, on paddle.distributed. This project has tested it with Gloo between CPUs, and
never run it with NCCL between GPUs.
"""

import socket
from collections.abc import Callable, Mapping

import numpy as np
from paddle import distributed

from implementations.paddle import paddle
from rn50 import process
from rn50.errors import UserError
from rn50.run.communicators import MessageRanks
from rn50.run.local_ranks import LocalRanks, started_here

SharedMemory = LocalRanks
"""Ranks on one machine's CPU. PaddlePaddle needs nothing beyond ``LocalRanks``: when ``backward`` returns,
the gradients in the shared memory are complete."""


class Distributed(MessageRanks):
    """A rank of paddle.distributed, which uses NCCL between GPUs and Gloo between CPUs.

    Our launchers have started it, or any launcher that sets the variables of torch.distributed: RANK,
    WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.
    """

    errors = (RuntimeError, OSError)  # raised by the library after a rank is lost

    def __init__(self, on_gpu: bool, environ: Mapping[str, str]) -> None:
        self.library = "NCCL" if on_gpu else "Gloo"
        if started_here(environ):
            process.set_variables(_rendezvous(LocalRanks(environ)))
        elif "RANK" not in environ:
            problem = "nobody has started more than one rank"
            raise UserError("DGXNGPU", problem, "use ./run_and_time.sh or ./run.sub")
        else:
            rank, size, local_rank = (environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
            master = "{MASTER_ADDR}:{MASTER_PORT}".format_map(environ)
            process.set_variables(_variables(rank, size, local_rank, master))
        self._on_gpu = on_gpu
        self.local_rank = int(process.environment()["PADDLE_RANK_IN_NODE"])
        if not on_gpu:  # a build for GPUs would choose NCCL
            process.set_variables({"PADDLE_DISTRI_BACKEND": "gloo"})
        try:
            with self.lost_rank_named():
                distributed.init_parallel_env()
        except ValueError as error:
            # Paddle's message says "Bind network" if another process has the port of rank 0.
            if "Bind network" not in str(error):
                raise
            port = process.environment()["PADDLE_MASTER"]
            raise UserError(port, "rank 0 cannot open this port", "set MASTER_PORT to a free one") from error
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        tensor = paddle.to_tensor(array)
        self.all_reduce_gradients(tensor)
        return tensor.numpy()

    def _all_reduce_of(self, values: int) -> Callable[[], None]:
        """Return a function that all-reduces ``values`` zeros and waits for the device. The base class times
        it."""
        tensor = paddle.zeros([values])

        def all_reduce() -> None:
            self.all_reduce_gradients(tensor)
            if self._on_gpu:
                paddle.device.cuda.synchronize()

        return all_reduce

    def all_reduce_gradients(self, gradients: paddle.Tensor) -> None:
        """Sum ``gradients`` over all ranks, in place."""
        with self.lost_rank_named():
            distributed.all_reduce(gradients)

    def close(self) -> None:
        """Leave the job. A second call does nothing."""
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _rendezvous(ranks: LocalRanks) -> dict[str, str]:
    """Return the environment variables that ``init_parallel_env`` reads, for ranks that our launcher has
    started on one machine. Rank 0 chooses a free port and broadcasts it."""
    with socket.socket() as holder:  # it holds the port until all ranks know it
        holder.bind(("127.0.0.1", 0))  # 0: a free port
        port = holder.getsockname()[1] if ranks.rank == 0 else 0
        (port,) = ranks.all_reduce(np.array([port]))  # all other ranks add 0
    return _variables(str(ranks.rank), str(ranks.size), str(ranks.rank), f"127.0.0.1:{port}")


def _variables(rank: str, size: str, local_rank: str, master: str) -> dict[str, str]:
    """Return the environment variables that ``init_parallel_env`` reads, for a rank. ``master``,
    address:port, is where the ranks connect to rank 0."""
    return {
        "PADDLE_TRAINER_ID": rank,
        "PADDLE_TRAINERS_NUM": size,
        "PADDLE_RANK_IN_NODE": local_rank,
        "FLAGS_selected_gpus": local_rank,
        "PADDLE_MASTER": master,
        "PADDLE_CURRENT_ENDPOINT": master,  # must be set, though nothing reads it
    }

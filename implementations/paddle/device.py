"""The device of a rank, and checks that PaddlePaddle can use it."""

from implementations.paddle import paddle
from rn50.run import gpu
from rn50.settings.config import Config


def require_gpus(config: Config) -> None:
    """Raise UserError unless PaddlePaddle sees a GPU for every rank of this machine."""
    remedy = "use paddlepaddle-gpu and a GPU of compute capability 6.1 to 8.9"
    gpu.require_gpus(config, paddle.device.cuda.device_count(), remedy)


def of_rank(config: Config, local_rank: int) -> int | None:
    """Return the index of the GPU of a rank, None if it uses the CPU, and make this device PaddlePaddle's
    default. Raises UserError unless PaddlePaddle has code for the GPU."""
    if config.run.device != "gpu":
        paddle.set_device("cpu")
        return None
    gpu.require_code(config, paddle.device.cuda.get_device_capability(local_rank))
    paddle.set_device(f"gpu:{local_rank}")
    return local_rank

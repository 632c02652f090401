"""The device of a rank, checks that MXNet can use it, and the layout of images on it."""

from typing import Any

import mxnet as mx

from rn50 import frameworks
from rn50.machine import hardware
from rn50.run import gpu
from rn50.settings.config import Config


def require_gpus(config: Config) -> None:
    """Raise UserError unless MXNet sees a GPU for every rank of this machine."""
    remedy = "use mxnet-cu112 and a GPU of compute capability 5.0 to 8.9"
    gpu.require_gpus(config, mx.context.num_gpus(), remedy)


def of_rank(config: Config, local_rank: int) -> Any:
    """Return the context of a rank. Raises UserError unless MXNet's wheel has code for the rank's GPU.

    MXNet does not tell the compute capability of a GPU; the driver's tool does. In NVIDIA's container nothing
    is checked, because its build of MXNet has code for other GPUs than the wheel.
    """
    if config.run.device != "gpu":
        return mx.cpu()
    gpus = hardware.read().gpus
    capability = gpus[local_rank].capability if local_rank < len(gpus) else None
    if capability is not None and not _is_container(config):
        gpu.require_code(config, capability)
    return mx.gpu(local_rank)


def image_layout(config: Config) -> str:
    """Return the layout of images: "HWC" on the GPUs of NVIDIA's MXNet container, else "CHW".

    MXNet has channels-last convolutions on GPUs only. The batch norm of its release cannot be channels-last
    in this network: it describes such a tensor to cuDNN as (N*H*W, C, 1, 1) (MXNet 1.9.1,
    cudnn_batch_norm-inl.h, ``Init``), and cuDNN refuses a first dimension beyond 880,801 in training and
    65,535 in inference (PyTorch, Normalization.cpp). After the first convolution N*H*W is N * 12,544. The
    build in NVIDIA's container has a batch norm of its own.
    """
    return "HWC" if config.run.device == "gpu" and _is_container(config) else "CHW"


def _is_container(config: Config) -> bool:
    """Return True in NVIDIA's MXNet container, which sets a variable with its version."""
    return bool(config.environment.get(frameworks.traits("mxnet").container))

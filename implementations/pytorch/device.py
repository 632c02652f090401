"""The device of a rank or of a batch, and checks that PyTorch can use a GPU."""

import re

import torch

from implementations.pytorch.traits import TRAITS
from rn50.data.pipeline.batches import BatchFormat
from rn50.errors import UserError
from rn50.run import gpu
from rn50.settings.config import Config


def require_gpus(config: Config) -> None:
    """Raise UserError unless PyTorch sees a GPU for every rank of this machine, and the driver is new enough
    for the CUDA that PyTorch was built for."""
    gpu.require_gpus(config, torch.cuda.device_count(), "install a driver and PyTorch that fit the GPUs")
    try:
        torch.cuda.init()
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError("DEVICE=gpu", reason, "rn50 doctor says which driver PyTorch needs") from error


def of_rank(config: Config, local_rank: int) -> torch.device:
    """Return the device of a rank. Raises UserError unless PyTorch has code for its GPU."""
    if config.run.device != "gpu":
        return torch.device("cpu")
    # PyTorch names what it was built for: sm_75 or sm_90a for machine code, compute_120 for PTX.
    names = [re.fullmatch(r"(sm|compute)_(\d+)(\d)[a-z]?", name) for name in torch.cuda.get_arch_list()]
    built_for = [(match[1], (int(match[2]), int(match[3]))) for match in names if match]
    # The traits describe another build than the one that is installed. A driver compiles the oldest PTX of a
    # build for every newer GPU.
    build = TRAITS._replace(
        capabilities=tuple(capability for kind, capability in built_for if kind == "sm"),
        ptx=min((capability for kind, capability in built_for if kind == "compute"), default=None),
    )
    gpu.require_code(config, torch.cuda.get_device_capability(local_rank), build)
    return torch.device("cuda", local_rank)


def device_of(batch_format: BatchFormat) -> torch.device:
    """Return the device that has the batches of a format."""
    gpu_id = batch_format.device_id
    return torch.device("cpu") if gpu_id is None else torch.device("cuda", gpu_id)

"""The operations that replace those of ``ResNet50`` in a STEP_MODE."""

import functools
import importlib.util
from typing import Any

import torch

from rn50.errors import UserError


def layers_of(mode: str, device: torch.device, images: int) -> dict[str, Any]:
    """Return the arguments of ``ResNet50`` that replace its operations in STEP_MODE ``mode``, where a full
    batch has ``images``. nvidia-cudnn-frontend is used if it is installed. Raises UserError if Triton is
    missing."""
    if mode != "fused" or device.type != "cuda":
        return {}
    try:
        from implementations.pytorch.fused_norm import normalise
    except ImportError as error:
        remedy = "install triton, which PyTorch's builds for CUDA bring, or set STEP_MODE=graph"
        raise UserError("STEP_MODE=fused", error, remedy) from error
    if importlib.util.find_spec("cudnn") is None:
        return {"normalise": normalise}
    from implementations.pytorch.convolution_statistics import convolve

    return {"normalise": normalise, "convolve": functools.partial(convolve, images=images)}

"""The operations that replace those of ``ResNet50`` in a STEP_MODE."""

import functools
import importlib.util
from typing import Any

import torch

from rn50.errors import UserError


def layers_of(mode: str, device: torch.device, images: int) -> dict[str, Any]:
    """Return the arguments of ``ResNet50`` that replace its operations in STEP_MODE ``mode``, where a full
    batch has ``images``. nvidia-cudnn-frontend is used if it is installed. Raises UserError if kernels cannot
    be compiled."""
    if mode != "fused" or device.type != "cuda":
        return {}
    try:
        import triton

        from implementations.pytorch.fused_norm import convolve, normalise

        triton.runtime.driver.active.get_current_device()  # compiles what starts kernels, in C
    except Exception as error:  # of many types: no Triton, no C compiler, no headers of Python
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        remedy = (
            "sudo apt-get install g++ python3-dev and install triton, which PyTorch's builds for CUDA bring, "
            "or set STEP_MODE=graph"
        )
        raise UserError("STEP_MODE=fused", f"Triton cannot compile ({reason})", remedy) from error
    if importlib.util.find_spec("cudnn") is None:
        return {"normalise": normalise, "convolve": convolve}
    from implementations.pytorch import convolution_statistics

    summed = functools.partial(convolution_statistics.convolve, images=images)
    return {"normalise": normalise, "convolve": functools.partial(convolve, summed=summed)}

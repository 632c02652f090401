"""The choice of the operations that ``ResNet50`` calls in training, by STEP_MODE: PyTorch's, or those of
``fused_norm.py``. The engine calls ``layers_of`` when it builds the network."""

import functools
import importlib.util
from typing import Any

import torch

from rn50.errors import UserError


def layers_of(mode: str, device: torch.device, images: int) -> dict[str, Any]:
    """Return the arguments ``normalise`` and ``convolve`` of ``ResNet50`` for STEP_MODE ``mode``: for "fused"
    on a GPU our own functions, else no arguments, so that ``ResNet50`` keeps its defaults.

    ``images`` is the number of images of a full batch. If nvidia-cudnn-frontend (the module ``cudnn``) is
    installed, convolutions also compute the sums for batch norm (``convolution_statistics.py``). Raises
    UserError if Triton cannot compile kernels.
    """
    if mode != "fused" or device.type != "cuda":
        return {}
    try:
        import triton

        from implementations.pytorch.fused_norm import convolve, normalise

        # Triton builds its launcher of kernels, in C, which fails here if it cannot be built.
        triton.runtime.driver.active.get_current_device()
    except Exception as error:  # its type depends on what is missing: Triton, a C compiler, Python's headers
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        remedy = "sudo apt-get install g++ python3-dev and install triton, which PyTorch's builds for CUDA "
        remedy += "bring, or set STEP_MODE=graph"
        raise UserError("STEP_MODE=fused", f"Triton cannot compile ({reason})", remedy) from error
    if importlib.util.find_spec("cudnn") is None:
        return {"normalise": normalise, "convolve": convolve}
    from implementations.pytorch import convolution_statistics

    compute = functools.partial(convolution_statistics.convolve, images=images)
    return {"normalise": normalise, "convolve": functools.partial(convolve, compute=compute)}

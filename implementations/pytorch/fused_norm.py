"""Batch norm, the sum with a shortcut and ReLU by Triton kernels that make as few passes over memory as possible.

Ioffe and Szegedy, "Batch Normalization" (arXiv:1502.03167): y = gamma * x' + beta, x' = (x - mean) / sqrt(var + eps), with mean
and variance of a channel over the batch. ``kernels/moments.py`` computes these, ``kernels/normalise.py`` the output, and
``kernels/gradients.py`` the backward pass. "fused" of ``benchmarks/step_floor.py`` counts the bytes moved.
"""

from typing import Any, Optional, Tuple

import torch

from implementations.pytorch.kernels.gradients import RESIDENT, input_gradient, sums_of_parts
from implementations.pytorch.kernels.moments import moments
from implementations.pytorch.kernels.normalise import normalise as normalise_kernel
from implementations.pytorch.kernels.tile import SHAPE, divided


class _FusedNorm(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor, shortcut: Optional[torch.Tensor], gamma: torch.Tensor, beta: torch.Tensor,
                running_mean: torch.Tensor, running_var: torch.Tensor, momentum: float, eps: float, relu: bool) -> torch.Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        added = None if shortcut is None else shortcut.contiguous(memory_format=torch.channels_last)
        of = divided(x)
        mean, scale = moments(x, of, running_mean, running_var, momentum, eps)
        out = torch.empty_like(x)
        normalise_kernel[of.programs](x, x if added is None else added, out, mean, scale, gamma, beta, of.rows, of.columns,
                                   ADD=added is not None, RELU=relu, **SHAPE)
        context.save_for_backward(x, gamma, beta, mean, scale, out if relu and added is not None else None)
        context.relu, context.added = relu, added is not None
        return out

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:
        x, gamma, beta, mean, scale, out = context.saved_tensors
        of = divided(x)
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        let_through = gradient if out is None else torch.empty_like(gradient)
        parts = of.parts(RESIDENT)
        sums = torch.empty(2, parts, of.columns, device=x.device)
        sums_of_parts[(parts * of.column_blocks,)](
            gradient, x, x if out is None else out, let_through, sums, mean, scale, gamma, beta, of.rows, of.columns,
            parts, ADD=context.added, RELU=context.relu, **SHAPE)
        for_beta, for_gamma = sums.sum(1)
        to = torch.empty_like(x)
        input_gradient[of.programs](let_through, x, to, mean, scale, gamma, beta, for_beta, for_gamma, of.rows, of.columns,
                                    MASK=context.relu and not context.added, **SHAPE)
        return to, let_through if context.added else None, for_gamma, for_beta, None, None, None, None, None


def normalise(x: torch.Tensor, shortcut: Optional[torch.Tensor], gamma: torch.Tensor, beta: torch.Tensor,
              running_mean: torch.Tensor, running_var: torch.Tensor, momentum: float, eps: float, relu: bool) -> torch.Tensor:
    """Return relu(batch_norm(x) + shortcut) in training mode, with the shape (N, C, H, W) and dtype of ``x``.

    ``x`` has more than one value per channel. ``shortcut`` is None or like ``x``. Without ``relu`` the sum itself is returned.
    The other tensors are float32 of shape (C,). The running statistics are updated like those of
    ``torch.nn.functional.batch_norm``.
    """
    return _FusedNorm.apply(x, shortcut, gamma, beta, running_mean, running_var, momentum, eps, relu)

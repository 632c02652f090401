"""Batch norm, the sum with a shortcut and ReLU by Triton kernels that make as few passes over memory as
possible.

Ioffe and Szegedy, "Batch Normalization" (arXiv:1502.03167): y = gamma * x' + beta, x' = (x - mean) / sqrt(var
+ eps), with mean and variance of a channel over the batch. The equations of the backward pass stand beside
the kernels, in ``kernels/``. ``BUILT`` of ``benchmarks/step_floor.py`` counts the bytes moved.
"""

from typing import Any

import torch
from torch import Tensor

from implementations.pytorch.kernels import block, gradients, stem
from implementations.pytorch.kernels.mask import empty_mask
from implementations.pytorch.kernels.moments import moments
from implementations.pytorch.kernels.normalise import normalise as normalise_kernel
from implementations.pytorch.kernels.tile import NARROW, SHAPE, divided

Gradients = tuple[Tensor | None, ...]


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


class _Norm(torch.autograd.Function):
    """Batch norm, and ReLU if ``relu``. ``statistics`` are the arguments of ``moments`` behind ``x``."""

    @staticmethod
    def forward(context: Any, x: Tensor, gamma: Tensor, beta: Tensor, relu: bool, *statistics: Any) -> Tensor:
        x = _channels_last(x)
        division, out = divided(x), torch.empty_like(x)
        mean, scale = moments(x, *statistics)
        normalise_kernel[division.programs](
            x, out, mean, scale, gamma, beta, *division.size, RELU=relu, **SHAPE
        )
        context.save_for_backward(x, gamma, beta, mean, scale)
        context.relu = relu
        return out

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Gradients:
        x, gamma, beta, mean, scale = context.saved_tensors
        division, gradient = divided(x), _channels_last(gradient)
        parts = division.parts(gradients.RESIDENT)
        sums = torch.empty(2, parts, division.columns, device=x.device)
        gradients.sums_of_parts[(parts * division.column_blocks,)](
            gradient, x, sums, mean, scale, gamma, beta, *division.size, parts, RELU=context.relu, **SHAPE
        )
        for_beta, for_gamma = sums.sum(1)
        dx = _input_gradient(gradient, x, context.relu, gamma, beta, mean, scale, for_beta, for_gamma)
        return dx, for_gamma, for_beta, None, None, None, None, None, None


class _EndOfBlock(torch.autograd.Function):
    """Batch norm, the sum with a shortcut and ReLU. The output is returned twice, so that the gradients of
    two readers arrive separately."""

    @staticmethod
    def forward(
        context: Any, x: Tensor, shortcut: Tensor, gamma: Tensor, beta: Tensor, *statistics: Any
    ) -> tuple[Tensor, ...]:
        x, shortcut = _channels_last(x), _channels_last(shortcut)
        division, out = divided(x, NARROW), torch.empty_like(x)
        mean, scale = moments(x, *statistics)
        mask = empty_mask(division, x.device)
        block.end_of_block[division.programs](
            x, shortcut, out, mask, mean, scale, gamma, beta, *division.size, **NARROW
        )
        context.save_for_backward(x, mask, gamma, beta, mean, scale)
        context.set_materialize_grads(False)
        return out, out.detach()

    @staticmethod
    def backward(context: Any, *arrived: Tensor | None) -> Gradients:
        x, mask, gamma, beta, mean, scale = context.saved_tensors
        division = divided(x, NARROW)
        given = [_channels_last(gradient) for gradient in arrived if gradient is not None]
        parts = division.parts(block.RESIDENT)
        sums = torch.empty(2, parts, division.columns, device=x.device)
        g = torch.empty_like(x)
        tensors = given[0], given[-1], x, mask, g, sums, mean, scale
        block.block_sums[(parts * division.column_blocks,)](
            *tensors, *division.size, parts, TWO=len(given) == 2, **NARROW
        )
        for_beta, for_gamma = sums.sum(1)
        dx = _input_gradient(g, x, False, gamma, beta, mean, scale, for_beta, for_gamma)
        return dx, g, for_gamma, for_beta, None, None, None, None, None


class _Stem(torch.autograd.Function):
    """Batch norm, ReLU and max-pooling of 3x3 with stride 2 and padding 1."""

    @staticmethod
    def forward(context: Any, x: Tensor, gamma: Tensor, beta: Tensor, *statistics: Any) -> Tensor:
        x = _channels_last(x)
        images, channels, *sides = x.shape
        mean, scale = moments(x, *statistics)
        pooled = images, channels, *((side + 1) // 2 for side in sides)
        out = torch.empty(pooled, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        positions = torch.empty_like(out, dtype=torch.uint8)
        division = divided(out, NARROW)
        stem.stem[division.programs](
            x, out, positions, mean, scale, gamma, beta, *division.size, *sides, *out.shape[2:], **NARROW
        )
        context.save_for_backward(x, positions, gamma, mean, scale)
        return out

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Gradients:
        x, positions, gamma, mean, scale = context.saved_tensors
        division, gradient, dx = divided(x, NARROW), _channels_last(gradient), torch.empty_like(x)
        sides = *x.shape[2:], *gradient.shape[2:]
        parts = division.parts(stem.RESIDENT)
        sums = torch.empty(2, parts, division.columns, device=x.device)
        stem.stem_sums[(parts * division.column_blocks,)](
            gradient, positions, x, sums, mean, scale, *division.size, parts, *sides, **NARROW
        )
        for_beta, for_gamma = sums.sum(1)
        tensors = gradient, positions, x, dx, mean, scale, gamma, for_beta, for_gamma
        stem.stem_input_gradient[division.programs](*tensors, *division.size, *sides, **NARROW)
        return dx, for_gamma, for_beta, None, None, None, None, None


def _input_gradient(gradient: Tensor, x: Tensor, relu: bool, *vectors: Tensor) -> Tensor:
    """Return the gradient of ``x``. ``vectors`` are gamma, beta, mean, scale and the gradients of beta and
    gamma."""
    division, dx = divided(x), torch.empty_like(x)
    gamma, beta, mean, scale, for_beta, for_gamma = vectors
    gradients.input_gradient[division.programs](
        gradient, x, dx, mean, scale, gamma, beta, for_beta, for_gamma, *division.size, RELU=relu, **SHAPE
    )
    return dx


def normalise(
    x: Tensor,
    shortcut: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
    relu: bool,
    twice: bool = False,
    pool: bool = False,
    sums: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return relu(batch_norm(x) + shortcut) in training mode, with the shape (N, C, H, W) and dtype of ``x``.

    ``x`` has more than one value per channel. ``shortcut`` is None or like ``x``. Without a shortcut ReLU is
    applied if ``relu``, and with one always. The other tensors are float32 of shape (C,). The running
    statistics are updated like those of ``torch.nn.functional.batch_norm``. With a shortcut and ``twice`` the
    result is returned twice, for two readers. With ``pool`` and ``relu``, and no shortcut, max-pooling of 3x3
    with stride 2 and padding 1 follows. ``sums``, if the convolution has added them up, are those of
    ``moments``.
    """
    statistics = running_mean, running_var, momentum, eps, sums
    if pool:
        return _Stem.apply(x, gamma, beta, *statistics)
    if shortcut is None:
        return _Norm.apply(x, gamma, beta, relu, *statistics)
    both = _EndOfBlock.apply(x, shortcut, gamma, beta, *statistics)
    return both if twice else both[0]

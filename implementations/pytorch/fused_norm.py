"""Batch norm, the sum with a shortcut and ReLU by Triton kernels that make as few passes over memory as
possible.

Ioffe and Szegedy, "Batch Normalization" (arXiv:1502.03167): y = gamma * x' + beta, x' = (x - mean) / sqrt(var
+ eps), with mean and variance of a channel over the batch. The equations of the backward pass stand beside
the kernels, in ``kernels/``. ``BUILT`` of ``benchmarks/step_floor.py`` counts the bytes moved.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from implementations.pytorch.kernels import block, gradients, one_pass, stem
from implementations.pytorch.kernels.mask import empty_mask
from implementations.pytorch.kernels.moments import moments
from implementations.pytorch.kernels.normalise import normalise as normalise_kernel
from implementations.pytorch.kernels.tile import NARROW, SHAPE, divided
from implementations.pytorch.model import plain_convolution

Gradients = tuple[Tensor | None, ...]
Summed = tuple[Tensor, Tensor | None]
"""Output of a convolution, and sums and sums of squares of its channels in float32, shape (2, channels), if
they were added up."""


class Source(NamedTuple):
    """Where the input of a norm comes from: a convolution that autograd has not recorded, so that the norm's
    backward pass computes the gradients of both."""

    x: Tensor | None = None
    """Images, channels-last, in half precision; None: the input comes from elsewhere."""
    weight: Tensor | None = None
    """In the precision of ``x``."""
    stride: int = 1
    padding: int = 0


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


class _Norm(torch.autograd.Function):
    """Batch norm, and ReLU if ``relu``. ``others`` are a source and the arguments of ``moments`` behind
    ``x``."""

    @staticmethod
    def forward(context: Any, x: Tensor, gamma: Tensor, beta: Tensor, relu: bool, *others: Any) -> Tensor:
        x, source = _channels_last(x), Source(*others[:4])
        division, out = divided(x), torch.empty_like(x)
        mean, scale = moments(x, *others[4:])
        normalise_kernel[division.programs](
            x, out, mean, scale, gamma, beta, *division.size, RELU=relu, **SHAPE
        )
        context.save_for_backward(x, gamma, beta, mean, scale, *source[:2])
        context.relu, context.around = relu, source[2:]
        return out

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Gradients:
        x, gamma, beta, mean, scale, *inputs = context.saved_tensors
        division, gradient = divided(x), _channels_last(gradient)
        parts = division.parts(gradients.RESIDENT)
        sums = torch.empty(2, parts, division.columns, device=x.device)
        gradients.sums_of_parts[(parts * division.column_blocks,)](
            gradient, x, sums, mean, scale, gamma, beta, *division.size, parts, RELU=context.relu, **SHAPE
        )
        for_beta, for_gamma = sums.sum(1)
        norm = mean, scale, gamma, beta, for_beta, for_gamma
        dx, *of_source = _input_gradients(gradient, x, norm, context.relu, Source(*inputs, *context.around))
        return dx, for_gamma, for_beta, None, *of_source, *[None] * 7


class _EndOfBlock(torch.autograd.Function):
    """Batch norm, the sum with a shortcut and ReLU. The output is returned twice, so that the gradients of
    two readers arrive separately."""

    @staticmethod
    def forward(
        context: Any, x: Tensor, shortcut: Tensor, gamma: Tensor, beta: Tensor, *others: Any
    ) -> tuple[Tensor, ...]:
        x, shortcut, source = _channels_last(x), _channels_last(shortcut), Source(*others[:4])
        division, out = divided(x, NARROW), torch.empty_like(x)
        mean, scale = moments(x, *others[4:])
        mask = empty_mask(division, x.device)
        block.end_of_block[division.programs](
            x, shortcut, out, mask, mean, scale, gamma, beta, *division.size, **NARROW
        )
        context.save_for_backward(x, mask, gamma, beta, mean, scale, *source[:2])
        context.around = source[2:]
        context.set_materialize_grads(False)
        return out, out.detach()

    @staticmethod
    def backward(context: Any, *arrived: Tensor | None) -> Gradients:
        x, mask, gamma, beta, mean, scale, *inputs = context.saved_tensors
        division = divided(x, NARROW)
        gradients = [_channels_last(gradient) for gradient in arrived if gradient is not None]
        parts = division.parts(block.RESIDENT)
        sums = torch.empty(2, parts, division.columns, device=x.device)
        g = torch.empty_like(x)
        tensors = gradients[0], gradients[-1], x, mask, g, sums, mean, scale
        block.block_sums[(parts * division.column_blocks,)](
            *tensors, *division.size, parts, TWO=len(gradients) == 2, **NARROW
        )
        for_beta, for_gamma = sums.sum(1)
        norm = mean, scale, gamma, beta, for_beta, for_gamma
        dx, *of_source = _input_gradients(g, x, norm, False, Source(*inputs, *context.around))
        return dx, g, for_gamma, for_beta, *of_source, *[None] * 7


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


def _input_gradients(
    gradient: Tensor, y: Tensor, norm: tuple[Tensor, ...], relu: bool, source: Source
) -> Gradients:
    """Return the gradients of ``y`` and of images and weight of its source, as far as each is an input of the
    norm. ``norm`` has mean, scale, gamma, beta, dbeta and dgamma."""
    x, weight, stride, padding = source
    if x is not None and weight is not None and one_pass.takes(x, weight, stride):
        return None, *one_pass.both_gradients(gradient, y, x, weight, norm, relu)
    division, dy = divided(y), torch.empty_like(y)
    gradients.input_gradient[division.programs](gradient, y, dy, *norm, *division.size, RELU=relu, **SHAPE)
    if x is None:
        return dy, None, None
    around = [stride] * 2, [padding] * 2, [1] * 2, False, [0] * 2, 1
    which = [True, True, False]
    return None, *torch.ops.aten.convolution_backward(dy, x, weight, None, *around, which)[:2]


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
    source: Source = Source(),  # noqa: B008
) -> Tensor | tuple[Tensor, Tensor]:
    """Return relu(batch_norm(x) + shortcut) in training mode, with the shape (N, C, H, W) and dtype of ``x``.

    ``x`` has more than one value per channel. ``shortcut`` is None or like ``x``. Without a shortcut ReLU is
    applied if ``relu``, and with one always. The other tensors are float32 of shape (C,). The running
    statistics are updated like those of ``torch.nn.functional.batch_norm``. With a shortcut and ``twice`` the
    result is returned twice, for two readers. With ``pool`` and ``relu``, and no shortcut, max-pooling of 3x3
    with stride 2 and padding 1 follows. ``sums``, if the convolution has added them up, are those of
    ``moments``. With a ``source`` its images and weight get the gradients.
    """
    statistics = running_mean, running_var, momentum, eps, sums
    if pool:
        return _Stem.apply(x, gamma, beta, *statistics)
    if shortcut is None:
        return _Norm.apply(x, gamma, beta, relu, *source, *statistics)
    both = _EndOfBlock.apply(x, shortcut, gamma, beta, *source, *statistics)
    return both if twice else both[0]


def unsummed(x: Tensor, weight: Tensor, stride: int, padding: int) -> Summed:
    """Return the convolution alone."""
    return functional.conv2d(x, weight, stride=stride, padding=padding), None


def convolve(
    x: Tensor, weight: Tensor, stride: int, padding: int, summed: Callable[..., Summed] = unsummed
) -> tuple[Tensor, dict[str, Any]]:
    """Return the convolution, and for ``normalise`` its sums, if ``summed`` adds them up, and its source.
    Autograd records the first convolution, whose kernel is larger, and one in float32."""
    if x.dtype == torch.float32 or weight.shape[2] > 3:
        return plain_convolution(x, weight, stride, padding)
    x, weight = (tensor.to(x.dtype, memory_format=torch.channels_last) for tensor in (x, weight))
    with torch.no_grad():
        y, sums = summed(x, weight, stride, padding)
    return y, {"sums": sums, "source": Source(x, weight, stride, padding)}

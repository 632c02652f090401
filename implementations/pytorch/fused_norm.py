"""Batch norm with the sum of a shortcut and ReLU, in Triton kernels that make as few passes over memory as
possible: STEP_MODE=fused.

``layers.py`` gives ``normalise`` and ``convolve`` to ``ResNet50``, which calls them in training in place of
PyTorch's operations. The three classes are functions of autograd, each with a forward and a backward pass:
``_Stem`` behind the first convolution, ``_EndOfBlock`` at the end of a block, ``_Norm`` elsewhere. ``divide``
returns how their kernels divide a tensor into tiles: its ``programs`` is the grid of a kernel that runs one
program for each tile, its ``parts`` the number of programs that share a sum over all rows.

Ioffe and Szegedy, "Batch Normalization" (arXiv:1502.03167): y = gamma * x' + beta, x' = (x - mean) / sqrt(var
+ eps), with mean and variance of a channel over the batch. In the code ``scale`` is 1 / sqrt(var + eps). The
equations of the backward pass are in the files of ``kernels/``. ``benchmarks/step_floor.py`` counts the bytes
that the kernels read and write.
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
from implementations.pytorch.kernels.tile import NARROW, SHAPE, divide
from implementations.pytorch.model import plain_convolution

Gradients = tuple[Tensor | None, ...]
"""The gradients of the arguments of ``forward``, in their order; None for an argument without a gradient."""
OutputAndSums = tuple[Tensor, Tensor | None]
"""The output of a convolution; and the sum and the sum of squares of each of its channels, float32 of shape
(2, channels), or None if the convolution has not computed them."""


class Source(NamedTuple):
    """A convolution whose output is the input of a norm, if autograd has not recorded the convolution. The
    backward pass of the norm then computes the gradients of the convolution too."""

    x: Tensor | None = None
    """Input of the convolution, channels-last, in half precision. None: there is no such convolution, and the
    norm returns the gradient of its own input."""
    weight: Tensor | None = None
    """Weight of the convolution, in the precision of ``x``."""
    stride: int = 1
    padding: int = 0


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


class _Norm(torch.autograd.Function):
    """Batch norm, and ReLU if ``relu``. ``others`` are the four fields of a ``Source`` and then the arguments
    of ``moments`` except its first one. ``moments`` also updates the running statistics."""

    @staticmethod
    def forward(context: Any, x: Tensor, gamma: Tensor, beta: Tensor, relu: bool, *others: Any) -> Tensor:
        x = _channels_last(x)
        source = Source(*others[:4])
        mean, scale = moments(x, *others[4:])
        out = torch.empty_like(x)
        division = divide(x)
        tensors = x, out, mean, scale, gamma, beta
        normalise_kernel[division.programs](*tensors, *division.size, RELU=relu, **SHAPE)
        context.save_for_backward(x, gamma, beta, mean, scale, source.x, source.weight)
        context.relu = relu
        context.stride_and_padding = source.stride, source.padding
        return out

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Gradients:
        x, gamma, beta, mean, scale, *source_tensors = context.saved_tensors
        source = Source(*source_tensors, *context.stride_and_padding)
        gradient = _channels_last(gradient)
        division = divide(x)
        # Each program writes dbeta and dgamma of its part of the rows to ``sums``. Then the parts are added.
        parts = division.parts(gradients.RESIDENT)
        sums = torch.empty(2, parts, division.columns, device=x.device)
        grid = (parts * division.column_blocks,)
        tensors = gradient, x, sums, mean, scale, gamma, beta
        gradients.sums_of_parts[grid](*tensors, *division.size, parts, RELU=context.relu, **SHAPE)
        dbeta, dgamma = sums.sum(1)
        norm = mean, scale, gamma, beta, dbeta, dgamma
        dx, *source_gradients = _input_gradients(gradient, x, norm, context.relu, source)
        # None for ``relu``, and 7 times at the end: for stride and padding of the source and for the five
        # arguments of ``moments``.
        return dx, dgamma, dbeta, None, *source_gradients, *[None] * 7


class _EndOfBlock(torch.autograd.Function):
    """Batch norm, the sum with a shortcut and ReLU. ``forward`` returns its output twice, for the two layers
    that read it, so that ``backward`` gets the gradient of each reader. ``others`` are as in ``_Norm``."""

    @staticmethod
    def forward(
        context: Any, x: Tensor, shortcut: Tensor, gamma: Tensor, beta: Tensor, *others: Any
    ) -> tuple[Tensor, ...]:
        x, shortcut = _channels_last(x), _channels_last(shortcut)
        source = Source(*others[:4])
        mean, scale = moments(x, *others[4:])
        out = torch.empty_like(x)
        division = divide(x, NARROW)
        mask = empty_mask(division, x.device)
        tensors = x, shortcut, out, mask, mean, scale, gamma, beta
        block.end_of_block[division.programs](*tensors, *division.size, **NARROW)
        context.save_for_backward(x, mask, gamma, beta, mean, scale, source.x, source.weight)
        context.stride_and_padding = source.stride, source.padding
        context.set_materialize_grads(False)  # a reader without a gradient then passes None, not zeros
        return out, out.detach()  # two tensors of autograd in the same memory

    @staticmethod
    def backward(context: Any, *reader_gradients: Tensor | None) -> Gradients:
        x, mask, gamma, beta, mean, scale, *source_tensors = context.saved_tensors
        source = Source(*source_tensors, *context.stride_and_padding)
        division = divide(x, NARROW)
        # One gradient or two, because a reader may have none.
        present = [_channels_last(gradient) for gradient in reader_gradients if gradient is not None]
        parts = division.parts(block.RESIDENT)
        sums = torch.empty(2, parts, division.columns, device=x.device)
        grid = (parts * division.column_blocks,)
        g = torch.empty_like(x)
        # A single gradient is passed twice, and the kernel does not read the second one (TWO).
        tensors = present[0], present[-1], x, mask, g, sums, mean, scale
        block.block_sums[grid](*tensors, *division.size, parts, TWO=len(present) == 2, **NARROW)
        dbeta, dgamma = sums.sum(1)
        norm = mean, scale, gamma, beta, dbeta, dgamma
        dx, *source_gradients = _input_gradients(g, x, norm, False, source)
        # ``g``, the gradient behind ReLU's mask, is also that of the shortcut. The None are as in ``_Norm``.
        return dx, g, dgamma, dbeta, *source_gradients, *[None] * 7


class _Stem(torch.autograd.Function):
    """Batch norm, ReLU and max-pooling of 3x3 with stride 2 and padding 1. ``statistics`` are the arguments
    of ``moments`` except its first one."""

    @staticmethod
    def forward(context: Any, x: Tensor, gamma: Tensor, beta: Tensor, *statistics: Any) -> Tensor:
        x = _channels_last(x)
        images, channels, *sides = x.shape
        mean, scale = moments(x, *statistics)
        pooled = images, channels, *((side + 1) // 2 for side in sides)
        out = torch.empty(pooled, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        positions = torch.empty_like(out, dtype=torch.uint8)  # of each maximum, among the nine of its window
        division = divide(out, NARROW)
        tensors = x, out, positions, mean, scale, gamma, beta
        stem.stem[division.programs](*tensors, *division.size, *sides, *out.shape[2:], **NARROW)
        context.save_for_backward(x, positions, gamma, mean, scale)
        return out

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Gradients:
        x, positions, gamma, mean, scale = context.saved_tensors
        gradient = _channels_last(gradient)
        sides = *x.shape[2:], *gradient.shape[2:]  # heights and widths of input and output
        division = divide(x, NARROW)
        parts = division.parts(stem.RESIDENT)
        sums = torch.empty(2, parts, division.columns, device=x.device)
        stem.stem_sums[(parts * division.column_blocks,)](
            gradient, positions, x, sums, mean, scale, *division.size, parts, *sides, **NARROW
        )
        dbeta, dgamma = sums.sum(1)
        dx = torch.empty_like(x)
        tensors = gradient, positions, x, dx, mean, scale, gamma, dbeta, dgamma
        stem.stem_input_gradient[division.programs](*tensors, *division.size, *sides, **NARROW)
        return dx, dgamma, dbeta, None, None, None, None, None


def _input_gradients(
    gradient: Tensor, y: Tensor, norm: tuple[Tensor, ...], relu: bool, source: Source
) -> Gradients:
    """Return the gradients of ``y``, which is the input of a norm, of ``source.x`` and of ``source.weight``.
    Without a source the last two are None. With a source the first is None, because ``y`` is the output of a
    convolution that autograd has not recorded.

    ``gradient`` is the gradient of the norm's output, before ReLU's mask if ``relu``. ``norm`` has mean,
    scale, gamma, beta, dbeta and dgamma.
    """
    x, weight, stride, padding = source
    # For some convolutions of 1x1 one kernel computes both gradients, faster than the two below.
    if x is not None and weight is not None and one_pass.applies_to(x, weight, stride):
        return None, *one_pass.both_gradients(gradient, y, x, weight, norm, relu)
    division, dy = divide(y), torch.empty_like(y)
    gradients.input_gradient[division.programs](gradient, y, dy, *norm, *division.size, RELU=relu, **SHAPE)
    if x is None:
        return dy, None, None
    # Bias, stride, padding, dilation, transposed, output padding, groups, and which of input, weight and bias
    # have a gradient.
    options = None, [stride] * 2, [padding] * 2, [1] * 2, False, [0] * 2, 1, [True, True, False]
    dx, dweight, _ = torch.ops.aten.convolution_backward(dy, x, weight, *options)
    return None, dx, dweight


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

    ``x`` has more than one value per channel. ``shortcut`` has the shape and dtype of ``x``; None: there is
    no sum. With a shortcut ReLU is always applied, without one if ``relu``. ``gamma``, ``beta`` and the
    running statistics are float32 of shape (C,); the running statistics are updated as in
    ``torch.nn.functional.batch_norm``.

    With ``twice`` and a shortcut the result is returned twice, for its two readers. With ``pool``, which
    needs ``relu`` and no shortcut, max-pooling of 3x3 with stride 2 and padding 1 follows.

    ``sums`` are the sum and the sum of squares of each channel of ``x``, (2, C); None: the convolution has
    not computed them. With a ``source`` the backward pass computes the gradients of the source's input and
    weight, not that of ``x``.
    """
    statistics = running_mean, running_var, momentum, eps, sums
    if pool:
        return _Stem.apply(x, gamma, beta, *statistics)
    if shortcut is None:
        return _Norm.apply(x, gamma, beta, relu, *source, *statistics)
    both = _EndOfBlock.apply(x, shortcut, gamma, beta, *source, *statistics)
    return both if twice else both[0]


def without_sums(x: Tensor, weight: Tensor, stride: int, padding: int) -> OutputAndSums:
    """Return the convolution, and None in place of the sums of its channels."""
    return functional.conv2d(x, weight, stride=stride, padding=padding), None


def convolve(
    x: Tensor, weight: Tensor, stride: int, padding: int, compute: Callable[..., OutputAndSums] = without_sums
) -> tuple[Tensor, dict[str, Any]]:
    """Return the output of a convolution, and the arguments ``sums`` and ``source`` of the ``normalise`` that
    reads it. The function ``compute`` computes the convolution, and the sums if it can.

    A convolution in float32, or with a kernel larger than 3x3 (the first one), is an ordinary operation of
    autograd, without sums and source.
    """
    if x.dtype == torch.float32 or weight.shape[2] > 3:
        return plain_convolution(x, weight, stride, padding)
    x, weight = (tensor.to(x.dtype, memory_format=torch.channels_last) for tensor in (x, weight))
    with torch.no_grad():
        y, sums = compute(x, weight, stride, padding)
    return y, {"sums": sums, "source": Source(x, weight, stride, padding)}

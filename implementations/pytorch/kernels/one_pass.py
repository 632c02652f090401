"""Both gradients of a 1x1 convolution y = x W^T whose output is normalised, with the norm's gradient inside.

x is (rows, C), y (rows, K) and W (K, C). With g the gradient of the norm's output, masked by ReLU, and x' =
(y - mean) * scale:

    dy = gamma * scale * (g - (dbeta + x' * dgamma) / rows),  dx = dy W,  dW = dy^T x

``gradients.input_gradient`` writes dy, which two matrix products then read. Here each tile of dy is formed
once, in shared memory, and feeds both: g, y, x and dx pass through memory once. At batch 400 on one H200 the
four layers 64 -> 256 took 0.384 ms each, separately 0.911; a copy of the same bytes takes 0.390.

dy is the second operand of both products, dx^T = W^T dy^T and dW^T = x^T dy. As the first one it would be
held in registers, once for each product, and Triton would not load ahead.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from implementations.pytorch.kernels import tile


class Shape(NamedTuple):
    """Shape of the programs for one layer."""

    rows: int
    """Rows of a tile."""
    columns: int
    """Columns of x that a program has; all of y's it has always."""
    stages: int
    """Tiles in shared memory: one that is used, the others on their way."""
    warps: int
    resident: int
    """Programs that a multiprocessor runs at once."""


SHAPES = {
    (64, 64): Shape(128, 64, 3, 8, 1),
    (64, 256): Shape(64, 64, 3, 8, 1),
    (256, 64): Shape(32, 256, 3, 8, 1),
    (256, 128): Shape(32, 256, 3, 8, 1),
    (512, 128): Shape(32, 128, 3, 4, 2),
}
"""C, K -> the fastest of the shapes measured on an H200. In layers that are not here the separate kernels are
as fast, or dW does not fit into the registers."""
CAPABILITY = 9, 0
"""Compute capability of the GPUs that it was measured on. The tiles need 216 KiB of shared memory."""
ADDED_PARTS = 32
BLOCK = 256


@triton.jit
def coefficients(table, mean, scale, gamma, beta, for_beta, for_gamma, rows, columns, COLUMNS: tl.constexpr):
    """Write four numbers a column, (4, K): slope, per_y, constant, bias.

    dy = slope * g + per_y * y + constant. ReLU let through where slope * y + bias > 0.
    """
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    valid = column < columns
    factor, centre = tl.load(scale + column, mask=valid), tl.load(mean + column, mask=valid)
    slope = factor * tl.load(gamma + column, mask=valid)
    per_y = -slope * factor * tl.load(for_gamma + column, mask=valid) / rows
    constant = -slope * tl.load(for_beta + column, mask=valid) / rows - per_y * centre
    tl.store(table + column, slope, mask=valid)
    tl.store(table + columns + column, per_y, mask=valid)
    tl.store(table + 2 * columns + column, constant, mask=valid)
    tl.store(table + 3 * columns + column, tl.load(beta + column, mask=valid) - centre * slope, mask=valid)


@triton.jit(do_not_specialize=["parts"])
def one_pass(
    gradient,
    y,
    x,
    weight,
    dx,
    sums,
    table,
    rows,
    parts,
    RELU: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write dx, and dW^T of a part, (parts, C, K). A part has tiles p, p + parts, p + 2 * parts and so on."""
    blocks: tl.constexpr = C // COLUMNS
    part, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    column, k = block * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, K)
    w = tl.load(weight + k[:, None] * C + column[None, :])
    slope, per_y = tl.load(table + k)[None, :], tl.load(table + K + k)[None, :]
    constant, bias = tl.load(table + 2 * K + k)[None, :], tl.load(table + 3 * K + k)[None, :]
    within, dw = tl.arange(0, ROWS)[:, None], tl.zeros((COLUMNS, K), tl.float32)
    for index in tl.range(part, tl.cdiv(rows, ROWS), parts, num_stages=STAGES):
        start = tl.cast(index, tl.int64) * ROWS
        inside = within < rows - start
        of_x, of_y = start * C + within * C + column[None, :], start * K + within * K + k[None, :]
        x_tile = tl.load(x + of_x, mask=inside, other=0.0)
        g = tl.load(gradient + of_y, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(y + of_y, mask=inside, other=0.0).to(tl.float32)
        if RELU:
            g = tl.where(value * slope + bias > 0, g, 0.0)
        # Beyond the last row dy is finite and x is 0.
        dy = (g * slope + (value * per_y + constant)).to(x_tile.dtype)
        dx_tile = tl.trans(tl.dot(tl.trans(w), tl.trans(dy)))
        dw = tl.dot(tl.trans(x_tile), dy, dw)
        tl.store(dx + of_x, dx_tile.to(x_tile.dtype), mask=inside)
    tl.store(sums + part.to(tl.int64) * K * C + column[:, None] * K + k[None, :], dw)


@triton.jit(do_not_specialize=["parts"])
def add_parts(sums, dw, parts, K: tl.constexpr, C: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Write dW (K, C), the sum over the parts of dW^T."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((PARTS, BLOCK), tl.float32)
    for first in range(0, parts, PARTS):
        part = (first + tl.arange(0, PARTS))[:, None]
        total += tl.load(sums + part.to(tl.int64) * (K * C) + at[None, :], mask=part < parts, other=0.0)
    tl.store(dw + (at % K) * C + at // K, tl.sum(total, 0).to(dw.dtype.element_ty))


def takes(x: torch.Tensor, weight: torch.Tensor, stride: int) -> bool:
    """Return whether ``both_gradients`` is for this layer, where it was measured to be faster."""
    outputs, inputs, *kernel = weight.shape
    measured = x.device.type == "cpu" or torch.cuda.get_device_capability(x.device) == CAPABILITY
    return measured and stride == 1 and kernel == [1, 1] and x.itemsize == 2 and (inputs, outputs) in SHAPES


def both_gradients(
    gradient: torch.Tensor,
    y: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    norm: tuple[torch.Tensor, ...],
    relu: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return dx like ``x`` and dW like ``weight``, (K, C, 1, 1). Images are channels-last; ``norm`` has mean,
    scale, gamma, beta, dbeta and dgamma, float32 of shape (K,)."""
    columns, inputs = weight.shape[:2]
    shape, rows = SHAPES[inputs, columns], x.numel() // inputs
    blocks = inputs // shape.columns
    parts = min(
        triton.cdiv(rows, shape.rows), max(1, tile.multiprocessors(x.device) * shape.resident // blocks)
    )
    dx, dw = torch.empty_like(x), torch.empty_like(weight)
    table = torch.empty(4, columns, device=x.device)
    sums = torch.empty(parts, inputs, columns, device=x.device)
    coefficients[(triton.cdiv(columns, 128),)](table, *norm, rows, columns, COLUMNS=128, num_warps=4)
    one_pass[(parts * blocks,)](
        gradient,
        y,
        x,
        weight,
        dx,
        sums,
        table,
        rows,
        parts,
        RELU=relu,
        K=columns,
        C=inputs,
        ROWS=shape.rows,
        COLUMNS=shape.columns,
        STAGES=shape.stages,
        num_warps=shape.warps,
    )
    add_parts[(columns * inputs // BLOCK,)](
        sums, dw, parts, K=columns, C=inputs, PARTS=ADDED_PARTS, BLOCK=BLOCK, num_warps=8
    )
    return dx, dw

"""The backward pass of a 1x1 convolution and of the batch norm behind it, in one pass over memory.

The convolution is y = x W^T, and batch norm reads y. x is (rows, C), y is (rows, K), W is (K, C). Let g be
the gradient of the norm's output, 0 where ReLU gave 0, scale = 1 / sqrt(variance + epsilon), and
y' = (y - mean) * scale:

    dy = gamma * scale * (g - (dbeta + y' * dgamma) / rows),  dx = dy W,  dW = dy^T x

In other layers ``gradients.input_gradient`` writes dy to memory, and two matrix products read it. Here each
tile of dy is computed once, stays in shared memory, and is an operand of both products. So g, y, x and dx
pass through memory once, and dy not at all. Only with C = 512 four programs share the columns of x, and each
computes dy again.

At batch 400 on one H200 the four layers with C = 64 and K = 256 took 0.384 ms each. The three separate
operations took 0.911 ms, and a copy of the same number of bytes takes 0.390 ms.

dy is the second operand of both products, dx^T = W^T dy^T and dW^T = x^T dy. If dy were the first operand,
each product would hold a copy of it in registers, and Triton would not load the next tiles ahead of time.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from implementations.pytorch.kernels import tile


class Shape(NamedTuple):
    """Shape of the programs of ``one_pass`` for one layer."""

    rows: int
    """Rows of a tile."""
    columns: int
    """Columns of x in a tile. Of y a tile has all K columns."""
    stages: int
    """Number of tiles in shared memory: one that is being used, and others that are being loaded."""
    warps: int
    """Warps of a program."""
    resident: int
    """Number of programs that a multiprocessor runs at once."""


SHAPES = {
    (64, 64): Shape(128, 64, 3, 8, 1),
    (64, 256): Shape(64, 64, 3, 8, 1),
    (256, 64): Shape(32, 256, 3, 8, 1),
    (256, 128): Shape(32, 256, 3, 8, 1),
    (512, 128): Shape(32, 128, 3, 4, 2),
}
"""(C, K) of a layer -> the fastest of the shapes that were measured on an H200. For layers that are not in
the table, the separate kernels are as fast, or dW does not fit into the registers."""
CAPABILITY = 9, 0
"""Compute capability of the H200. On others the shapes were not measured, and may not fit: the tiles need up
to 216 KiB of shared memory."""
ADDED_PARTS = 32
"""Parts that a program of ``add_parts`` loads at a time."""
BLOCK = 256
"""Elements of dW that a program of ``add_parts`` computes."""


@triton.jit
def coefficients(table, mean, scale, gamma, beta, dbeta, dgamma, rows, columns, COLUMNS: tl.constexpr):
    """Write four numbers for each column of y to ``table`` (4, K): slope, per_y, constant and bias.

    With them dy = slope * g + per_y * y + constant, and ReLU let a value through if slope * y + bias > 0.
    """
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    valid = column < columns
    factor, centre = tl.load(scale + column, mask=valid), tl.load(mean + column, mask=valid)
    slope = factor * tl.load(gamma + column, mask=valid)
    per_y = -slope * factor * tl.load(dgamma + column, mask=valid) / rows
    constant = -slope * tl.load(dbeta + column, mask=valid) / rows - per_y * centre
    tl.store(table + column, slope, mask=valid)
    tl.store(table + columns + column, per_y, mask=valid)
    tl.store(table + 2 * columns + column, constant, mask=valid)
    tl.store(table + 3 * columns + column, tl.load(beta + column, mask=valid) - centre * slope, mask=valid)


# ``parts`` follows the batch and the GPU: Triton must not compile another kernel where it is 1 or a multiple
# of 16.
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
    """Write dx, and the contribution to dW^T, of one part of the rows and one block of columns. ``sums``
    (parts, C, K) gets the contribution. Part p has the tiles p, p + parts, p + 2 * parts and so on."""
    blocks: tl.constexpr = C // COLUMNS
    part, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    column, k = block * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, K)
    w = tl.load(weight + k[:, None] * C + column[None, :])
    slope, per_y = tl.load(table + k)[None, :], tl.load(table + K + k)[None, :]
    constant, bias = tl.load(table + 2 * K + k)[None, :], tl.load(table + 3 * K + k)[None, :]
    within = tl.arange(0, ROWS)[:, None]
    dw_transposed = tl.zeros((COLUMNS, K), tl.float32)
    for index in tl.range(part, tl.cdiv(rows, ROWS), parts, num_stages=STAGES):
        start = tl.cast(index, tl.int64) * ROWS
        inside = within < rows - start
        x_offsets = start * C + within * C + column[None, :]
        y_offsets = start * K + within * K + k[None, :]
        x_tile = tl.load(x + x_offsets, mask=inside, other=0.0)
        g = tl.load(gradient + y_offsets, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(y + y_offsets, mask=inside, other=0.0).to(tl.float32)
        if RELU:
            g = tl.where(value * slope + bias > 0, g, 0.0)
        # Below the last row of x dy is not 0, but it is finite, and x is 0, so it adds nothing to dW.
        dy = (g * slope + (value * per_y + constant)).to(x_tile.dtype)
        dx_tile = tl.trans(tl.dot(tl.trans(w), tl.trans(dy)))
        dw_transposed = tl.dot(tl.trans(x_tile), dy, dw_transposed)  # adds to it
        tl.store(dx + x_offsets, dx_tile.to(x_tile.dtype), mask=inside)
    tl.store(sums + part.to(tl.int64) * K * C + column[:, None] * K + k[None, :], dw_transposed)


@triton.jit(do_not_specialize=["parts"])
def add_parts(sums, dw, parts, K: tl.constexpr, C: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Write BLOCK elements of dW (K, C): the sums over the parts of ``sums`` (parts, C, K), transposed."""
    element = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((PARTS, BLOCK), tl.float32)
    for first in range(0, parts, PARTS):
        part = (first + tl.arange(0, PARTS))[:, None]
        total += tl.load(sums + part.to(tl.int64) * (K * C) + element[None, :], mask=part < parts, other=0.0)
    # An element of a part has column ``element // K`` of x and column ``element % K`` of y.
    tl.store(dw + (element % K) * C + element // K, tl.sum(total, 0).to(dw.dtype.element_ty))


def applies_to(x: Tensor, weight: Tensor, stride: int) -> bool:
    """Return True if ``both_gradients`` computes the gradients of the convolution of ``x`` and ``weight``,
    and was measured to be faster. On a CPU, where tests use Triton's interpreter, speed does not count."""
    outputs, inputs, *kernel = weight.shape
    is_measured_device = x.device.type == "cpu" or torch.cuda.get_device_capability(x.device) == CAPABILITY
    is_1x1_in_half = kernel == [1, 1] and stride == 1 and x.itemsize == 2
    return is_measured_device and is_1x1_in_half and (inputs, outputs) in SHAPES


def both_gradients(
    gradient: Tensor, y: Tensor, x: Tensor, weight: Tensor, norm: tuple[Tensor, ...], relu: bool
) -> tuple[Tensor, Tensor]:
    """Return dx, like ``x``, and dW, like ``weight`` (K, C, 1, 1).

    ``gradient`` is the gradient of the norm's output, before ReLU's mask if ``relu``. ``gradient``, ``y`` and
    ``x`` are channels-last. ``norm`` has mean, scale, gamma, beta, dbeta and dgamma, float32 of shape (K,).
    """
    outputs, inputs = weight.shape[:2]
    shape = SHAPES[inputs, outputs]
    rows = x.numel() // inputs
    blocks = inputs // shape.columns
    # As many parts as the GPU runs programs at once, but a tile at least for each.
    programs_at_once = tile.multiprocessors(x.device) * shape.resident
    parts = min(triton.cdiv(rows, shape.rows), max(1, programs_at_once // blocks))
    dx, dw = torch.empty_like(x), torch.empty_like(weight)
    table = torch.empty(4, outputs, device=x.device)
    sums = torch.empty(parts, inputs, outputs, device=x.device)
    coefficients[(triton.cdiv(outputs, 128),)](table, *norm, rows, outputs, COLUMNS=128, num_warps=4)
    tensors = gradient, y, x, weight, dx, sums, table
    tiles = {"ROWS": shape.rows, "COLUMNS": shape.columns, "STAGES": shape.stages, "num_warps": shape.warps}
    one_pass[(parts * blocks,)](*tensors, rows, parts, RELU=relu, K=outputs, C=inputs, **tiles)
    add_parts[(outputs * inputs // BLOCK,)](
        sums, dw, parts, K=outputs, C=inputs, PARTS=ADDED_PARTS, BLOCK=BLOCK, num_warps=8
    )
    return dx, dw

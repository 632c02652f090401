"""The end of a residual block in the forward pass and in the backward pass.

    out = relu(gamma * x' + beta + shortcut),  x' = (x - mean) * scale

The kernels see a tensor (N, C, H, W) as a matrix: a row for each of the N*H*W pixels, a column for each
channel. mean is the mean of a channel over the batch, and scale is 1 / sqrt(variance + epsilon). ``tile.py``
divides the matrix into tiles of ROWS x COLUMNS values, blocks of COLUMNS columns, and parts. A part is a set
of tiles of one block.

Two layers read ``out``: the first convolution of the next block, and the shortcut of the next block. Let a
and b be the gradients of ``out`` from these two readers. One kernel, ``block_sums``, computes

    g = (a + b) * (out > 0),  dbeta = sum g,  dgamma = sum g * x'

so that four tensors (a, b, x and g) and the mask of ReLU, a bit for each value, pass through memory once. The
sums are over the rows: the kernel sums over the rows of each part, and the caller, ``fused_norm.py``, adds up
the parts. g is the gradient of the shortcut. ``gradients.input_gradient`` computes the gradient of x from g,
dbeta and dgamma.
"""

import triton
import triton.language as tl

from implementations.pytorch.kernels.mask import read_mask, write_mask
from implementations.pytorch.kernels.tile import columns_of, last_tiles_first, place, read, read_columns, tile

RESIDENT = 4
"""Number of programs of ``block_sums`` that a multiprocessor runs at once. A program has 256 threads of at
most 64 registers, and a multiprocessor has 65,536 registers."""


@triton.jit
def end_of_block(
    x, shortcut, out, mask, mean, scale, gamma, beta, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Write ``out`` and the mask of ReLU of one tile. One program runs for each tile."""
    index, block = place(columns, COLUMNS)
    row, column = last_tiles_first(index, rows, ROWS), columns_of(block, COLUMNS)
    offsets, inside = tile(row, rows, column, columns, ROWS)
    centred = read(x, offsets, inside) - read_columns(mean, column, columns)
    standardised = centred * read_columns(scale, column, columns)
    values = standardised * read_columns(gamma, column, columns) + read_columns(beta, column, columns)
    values += read(shortcut, offsets, inside)
    write_mask(mask, values > 0, row, rows, columns, block, ROWS, COLUMNS)
    values = tl.maximum(values, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + offsets, values.to(out.dtype.element_ty), mask=inside)


@triton.jit
def block_sums(
    first,
    second,
    x,
    mask,
    g_out,
    sums,
    mean,
    scale,
    rows,
    columns,
    parts,
    TWO: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write g of one part to ``g_out``, and its sums dbeta and dgamma to ``sums`` (2, parts, columns). One
    program runs for each part and block; the part has the tiles ``part``, ``part + parts`` and so on of the
    block. ``first`` and ``second`` are the gradients a and b. Without ``TWO`` only one reader has a gradient,
    ``first``."""
    part, block = place(columns, COLUMNS)
    column = columns_of(block, COLUMNS)
    centre, factor = read_columns(mean, column, columns), read_columns(scale, column, columns)
    dbeta, dgamma = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for row in range(part * ROWS, rows, parts * ROWS):
        offsets, inside = tile(row, rows, column, columns, ROWS)
        g = read(first, offsets, inside)
        if TWO:
            g += read(second, offsets, inside)
        g = tl.where(read_mask(mask, row, rows, columns, block, ROWS, COLUMNS), g, 0.0)
        tl.store(g_out + offsets, g.to(g_out.dtype.element_ty), mask=inside)
        dbeta += g
        dgamma += g * (read(x, offsets, inside) - centre) * factor
    slot, valid = part * columns + column, column < columns  # offsets in ``sums[0]``
    tl.store(sums + slot, tl.sum(dbeta, 0), mask=valid)
    tl.store(sums + parts * columns + slot, tl.sum(dgamma, 0), mask=valid)

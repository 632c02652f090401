"""The end of a residual block: out = relu(gamma * x' + beta + shortcut), with x' = (x - mean) * scale.

Two layers read ``out``: the next block's first convolution and its shortcut. In the backward pass their
gradients a and b are summed where ReLU's gradient is applied and the sums of batch norm's gradient are
formed. Four tensors are moved, and the mask:

    g = (a + b) * (out > 0),  dbeta = sum g,  dgamma = sum g * x'

g is the shortcut's gradient. ``gradients.input_gradient`` computes x's from it.
"""

import triton
import triton.language as tl

from implementations.pytorch.kernels.mask import read_mask, write_mask
from implementations.pytorch.kernels.tile import columns_of, last_tiles_first, place, read, read_columns, tile

RESIDENT = 4
"""Programs of ``block_sums`` that a multiprocessor runs at once: each thread has up to 64 of its 65,536
registers."""


@triton.jit
def end_of_block(
    x, shortcut, out, mask, mean, scale, gamma, beta, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Write ``out`` and the mask of ReLU."""
    index, block = place(columns, COLUMNS)
    row, column = last_tiles_first(index, rows, ROWS), columns_of(block, COLUMNS)
    offsets, inside = tile(row, rows, column, columns, ROWS)
    standardised = (read(x, offsets, inside) - read_columns(mean, column, columns)) * read_columns(
        scale, column, columns
    )
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
    """Write g, and dbeta and dgamma of a part. Without ``TWO`` only the first gradient is read."""
    part, block = place(columns, COLUMNS)
    column = columns_of(block, COLUMNS)
    centre, factor = read_columns(mean, column, columns), read_columns(scale, column, columns)
    for_beta, for_gamma = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for row in range(part * ROWS, rows, parts * ROWS):
        offsets, inside = tile(row, rows, column, columns, ROWS)
        g = read(first, offsets, inside)
        if TWO:
            g += read(second, offsets, inside)
        g = tl.where(read_mask(mask, row, rows, columns, block, ROWS, COLUMNS), g, 0.0)
        tl.store(g_out + offsets, g.to(g_out.dtype.element_ty), mask=inside)
        for_beta += g
        for_gamma += g * (read(x, offsets, inside) - centre) * factor
    slot, valid = part * columns + column, column < columns
    tl.store(sums + slot, tl.sum(for_beta, 0), mask=valid)
    tl.store(sums + parts * columns + slot, tl.sum(for_gamma, 0), mask=valid)

"""The gradients of batch norm. With g the gradient masked by ReLU and x' = (x - mean) * scale:

    dbeta = sum g,  dgamma = sum g * x',  dx = gamma * scale * (g - (dbeta + x' * dgamma) / rows)

The mask of ReLU is computed from x: gamma * x' + beta > 0.
"""

import triton
import triton.language as tl

from implementations.pytorch.kernels.tile import columns_of, last_tiles_first, place, read, read_columns, tile

RESIDENT = 2
"""Programs of ``sums_of_parts`` that a multiprocessor runs at once: each thread has up to 128 of its 65,536
registers."""


@triton.jit
def sums_of_parts(
    gradient,
    x,
    sums,
    mean,
    scale,
    gamma,
    beta,
    rows,
    columns,
    parts,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write dbeta and dgamma of a part. Without ``RELU`` the gradient is g."""
    part, block = place(columns, COLUMNS)
    column = columns_of(block, COLUMNS)
    centre, factor = read_columns(mean, column, columns), read_columns(scale, column, columns)
    weight, bias = read_columns(gamma, column, columns), read_columns(beta, column, columns)
    for_beta, for_gamma = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for row in range(part * ROWS, rows, parts * ROWS):
        offsets, inside = tile(row, rows, column, columns, ROWS)
        standardised = (read(x, offsets, inside) - centre) * factor
        g = read(gradient, offsets, inside)
        if RELU:
            g = tl.where(standardised * weight + bias > 0, g, 0.0)
        for_beta += g
        for_gamma += g * standardised  # outside the matrix g is 0
    slot, valid = part * columns + column, column < columns
    tl.store(sums + slot, tl.sum(for_beta, 0), mask=valid)
    tl.store(sums + parts * columns + slot, tl.sum(for_gamma, 0), mask=valid)


@triton.jit
def input_gradient(
    gradient,
    x,
    out,
    mean,
    scale,
    gamma,
    beta,
    for_beta,
    for_gamma,
    rows,
    columns,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write dx. Without ``RELU`` the gradient is g."""
    index, block = place(columns, COLUMNS)
    column = columns_of(block, COLUMNS)
    offsets, inside = tile(last_tiles_first(index, rows, ROWS), rows, column, columns, ROWS)
    factor, weight = read_columns(scale, column, columns), read_columns(gamma, column, columns)
    standardised = (read(x, offsets, inside) - read_columns(mean, column, columns)) * factor
    g = read(gradient, offsets, inside)
    if RELU:
        g = tl.where(standardised * weight + read_columns(beta, column, columns) > 0, g, 0.0)
    common = read_columns(for_beta, column, columns) + standardised * read_columns(for_gamma, column, columns)
    tl.store(out + offsets, (weight * factor * (g - common / rows)).to(out.dtype.element_ty), mask=inside)

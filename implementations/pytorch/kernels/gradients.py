"""The backward pass of batch norm, with or without ReLU: one kernel for dbeta and dgamma, one for dx.

Let x' = (x - mean) * scale, with scale = 1 / sqrt(variance + eps), and let g be the gradient of the output, 0
where ReLU gave 0:

    dbeta = sum g,  dgamma = sum g * x',  dx = gamma * scale * (g - (dbeta + x' * dgamma) / rows)

Both kernels find out from x where ReLU let a value through: where gamma * x' + beta > 0.
"""

import triton
import triton.language as tl

from implementations.pytorch.kernels.tile import columns_of, last_tiles_first, place, read, read_columns, tile

RESIDENT = 2
"""Number of programs of ``sums_of_parts`` that a multiprocessor runs at once. A program has 256 threads of at
most 128 registers, and a multiprocessor has 65,536 registers."""


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
    """Write dbeta and dgamma of one part to ``sums`` (2, parts, columns). A part has every ``parts``-th tile
    of a block of columns; the caller adds the parts up. Without ``RELU``, g is ``gradient`` itself."""
    part, block = place(columns, COLUMNS)
    column = columns_of(block, COLUMNS)
    centre, factor = read_columns(mean, column, columns), read_columns(scale, column, columns)
    weight, bias = read_columns(gamma, column, columns), read_columns(beta, column, columns)
    dbeta, dgamma = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for row in range(part * ROWS, rows, parts * ROWS):
        offsets, inside = tile(row, rows, column, columns, ROWS)
        standardised = (read(x, offsets, inside) - centre) * factor
        g = read(gradient, offsets, inside)
        if RELU:
            g = tl.where(standardised * weight + bias > 0, g, 0.0)
        dbeta += g
        dgamma += g * standardised  # g is 0 outside the matrix, where ``standardised`` is not
    # Place in ``sums``, first of dbeta, then of dgamma.
    slot, valid = part * columns + column, column < columns
    tl.store(sums + slot, tl.sum(dbeta, 0), mask=valid)
    tl.store(sums + parts * columns + slot, tl.sum(dgamma, 0), mask=valid)


@triton.jit
def input_gradient(
    gradient,
    x,
    out,
    mean,
    scale,
    gamma,
    beta,
    dbeta,
    dgamma,
    rows,
    columns,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write dx of one tile. Without ``RELU``, g is ``gradient`` itself."""
    index, block = place(columns, COLUMNS)
    column = columns_of(block, COLUMNS)
    # From the last rows to the first: the cache still holds those that ``sums_of_parts`` has read last.
    offsets, inside = tile(last_tiles_first(index, rows, ROWS), rows, column, columns, ROWS)
    factor, weight = read_columns(scale, column, columns), read_columns(gamma, column, columns)
    standardised = (read(x, offsets, inside) - read_columns(mean, column, columns)) * factor
    g = read(gradient, offsets, inside)
    if RELU:
        g = tl.where(standardised * weight + read_columns(beta, column, columns) > 0, g, 0.0)
    common = read_columns(dbeta, column, columns) + standardised * read_columns(dgamma, column, columns)
    tl.store(out + offsets, (weight * factor * (g - common / rows)).to(out.dtype.element_ty), mask=inside)

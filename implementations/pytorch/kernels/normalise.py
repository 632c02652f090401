"""The output of batch norm, with or without ReLU, from its input in one pass over memory.

out = relu(gamma * x' + beta),  x' = (x - mean) * scale
"""

import triton
import triton.language as tl

from implementations.pytorch.kernels.tile import columns_of, last_tiles_first, place, read, read_columns, tile


@triton.jit
def normalise(
    x,
    out,
    mean,
    scale,
    gamma,
    beta,
    rows,
    columns,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write ``out`` of one tile of ROWS x COLUMNS values. x is a matrix whose columns are the channels; mean,
    scale = 1 / sqrt(variance + eps), gamma and beta have a value for each column."""
    index, block = place(columns, COLUMNS)
    column = columns_of(block, COLUMNS)
    # The kernel before ended with the last rows, so that the cache still holds them (``tile.py``).
    offsets, inside = tile(last_tiles_first(index, rows, ROWS), rows, column, columns, ROWS)
    centred = read(x, offsets, inside) - read_columns(mean, column, columns)
    standardised = centred * read_columns(scale, column, columns)
    values = standardised * read_columns(gamma, column, columns) + read_columns(beta, column, columns)
    if RELU:
        # As in PyTorch, NaN stays NaN, so that a diverged run shows it.
        values = tl.maximum(values, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + offsets, values.to(out.dtype.element_ty), mask=inside)

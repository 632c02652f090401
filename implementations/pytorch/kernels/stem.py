"""Batch norm, ReLU and max-pooling of 3x3 with stride 2 and padding 1 in one pass: out = max(0, max of a
window of y).

    y = gamma * x' + beta,  x' = (x - mean) * scale

Pixel (h, w) is at position 3 (h - 2 i + 1) + (w - 2 j + 1) of window (i, j), from 0 to 8. Of each window one
byte is kept: the position of its first maximum, or NONE if no y is positive, because then ReLU lets no
gradient through. With g the sum of the gradients of the windows whose maximum a pixel is:

    dbeta = sum g,  dgamma = sum g * x',  dx = gamma * scale * (g - (dbeta + x' * dgamma) / rows)
"""

import triton
import triton.language as tl

from implementations.pytorch.kernels.tile import columns_of, last_tiles_first, place, read, read_columns

RESIDENT = 3
"""Programs of ``stem_sums`` that a multiprocessor runs at once: each thread has up to 80 of its 65,536
registers."""
NONE = tl.constexpr(9)


@triton.jit
def _pixels(image, h, w, height, width, valid, column, columns):
    """Return the offsets (ROWS, COLUMNS) of the pixels (h, w) of images, and the mask of those within
    them."""
    inside = valid & (h >= 0) & (h < height) & (w >= 0) & (w < width)
    pixel = (image * height + h).to(tl.int64) * width + w
    return pixel[:, None] * columns + column[None, :], inside[:, None] & (column < columns)[None, :]


@triton.jit
def _placed(row, height, width):
    """Return image, h and w of rows of the matrix."""
    return row // (height * width), row // width % height, row % width


@triton.jit
def stem(
    x,
    out,
    index,
    mean,
    scale,
    gamma,
    beta,
    rows,
    columns,
    height,
    width,
    out_height,
    out_width,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write ``out`` and the positions of the maxima. ``rows`` are those of ``out``."""
    number, block = place(columns, COLUMNS)
    column = columns_of(block, COLUMNS)
    row = last_tiles_first(number, rows, ROWS) + tl.arange(0, ROWS)
    image, i, j = _placed(row, out_height, out_width)
    centre, factor = read_columns(mean, column, columns), read_columns(scale, column, columns)
    weight, bias = read_columns(gamma, column, columns), read_columns(beta, column, columns)
    highest, argmax = tl.zeros((ROWS, COLUMNS), tl.float32), tl.full((ROWS, COLUMNS), NONE, tl.int32)
    for position in tl.static_range(9):
        h, w = 2 * i - 1 + position // 3, 2 * j - 1 + position % 3
        offsets, inside = _pixels(image, h, w, height, width, row < rows, column, columns)
        y = (read(x, offsets, inside) - centre) * factor * weight + bias
        higher = inside & ((y > highest) | (y != y))  # NaN stays, as in PyTorch
        highest, argmax = tl.where(higher, y, highest), tl.where(higher, position, argmax)
    offsets, inside = _pixels(image, i, j, out_height, out_width, row < rows, column, columns)
    tl.store(out + offsets, highest.to(out.dtype.element_ty), mask=inside)
    tl.store(index + offsets, argmax.to(tl.uint8), mask=inside)


@triton.jit
def _of_windows(
    gradient,
    index,
    image,
    h,
    w,
    valid,
    column,
    columns,
    out_height,
    out_width,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Return g. An even h is in window h / 2 alone, an odd one in the next one too."""
    g = tl.zeros((ROWS, COLUMNS), tl.float32)
    for which in tl.static_range(4):
        i, j = h // 2 + which // 2, w // 2 + which % 2
        in_window = valid & (2 * i - 1 <= h) & (2 * j - 1 <= w)
        offsets, inside = _pixels(image, i, j, out_height, out_width, in_window, column, columns)
        position = 3 * (h - 2 * i + 1) + w - 2 * j + 1
        argmax = tl.load(index + offsets, mask=inside, other=NONE).to(tl.int32)
        g += tl.where(argmax == position[:, None], read(gradient, offsets, inside), 0.0)
    return g


@triton.jit
def stem_sums(
    gradient,
    index,
    x,
    sums,
    mean,
    scale,
    rows,
    columns,
    parts,
    height,
    width,
    out_height,
    out_width,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write dbeta and dgamma of a part. ``rows`` are those of ``x``."""
    part, block = place(columns, COLUMNS)
    column = columns_of(block, COLUMNS)
    centre, factor = read_columns(mean, column, columns), read_columns(scale, column, columns)
    for_beta, for_gamma = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(part * ROWS, rows, parts * ROWS):
        row = first + tl.arange(0, ROWS)
        image, h, w = _placed(row, height, width)
        offsets, inside = _pixels(image, h, w, height, width, row < rows, column, columns)
        g = _of_windows(
            gradient, index, image, h, w, row < rows, column, columns, out_height, out_width, ROWS, COLUMNS
        )
        for_beta += g
        for_gamma += g * (read(x, offsets, inside) - centre) * factor
    slot, valid = part * columns + column, column < columns
    tl.store(sums + slot, tl.sum(for_beta, 0), mask=valid)
    tl.store(sums + parts * columns + slot, tl.sum(for_gamma, 0), mask=valid)


@triton.jit
def stem_input_gradient(
    gradient,
    index,
    x,
    out,
    mean,
    scale,
    gamma,
    for_beta,
    for_gamma,
    rows,
    columns,
    height,
    width,
    out_height,
    out_width,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write dx. ``rows`` are those of ``x``."""
    number, block = place(columns, COLUMNS)
    column = columns_of(block, COLUMNS)
    row = last_tiles_first(number, rows, ROWS) + tl.arange(0, ROWS)
    image, h, w = _placed(row, height, width)
    offsets, inside = _pixels(image, h, w, height, width, row < rows, column, columns)
    g = _of_windows(
        gradient, index, image, h, w, row < rows, column, columns, out_height, out_width, ROWS, COLUMNS
    )
    factor = read_columns(scale, column, columns)
    standardised = (read(x, offsets, inside) - read_columns(mean, column, columns)) * factor
    common = read_columns(for_beta, column, columns) + standardised * read_columns(for_gamma, column, columns)
    dx = read_columns(gamma, column, columns) * factor * (g - common / rows)
    tl.store(out + offsets, dx.to(out.dtype.element_ty), mask=inside)

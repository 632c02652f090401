"""Batch norm, ReLU and max-pooling behind the first convolution: the forward pass in one kernel, the backward
pass in two.

    y = gamma * x' + beta,  x' = (x - mean) * scale,  out = max(0, maximum of a 3x3 window of y)

mean is that of a channel over the batch, and scale is 1 / sqrt(variance + epsilon). The kernels see a tensor
(N, C, H, W) as a matrix: a row for each of the N*H*W pixels, a column for each channel. ``tile.py`` divides
the matrix into blocks of COLUMNS columns, and a block into tiles of ROWS rows. A part is a set of tiles of
one block.

The windows have stride 2 and padding 1. Pixel (h, w) of y is at position 3 (h - 2 i + 1) + (w - 2 j + 1),
from 0 to 8, of window (i, j). The forward pass keeps one byte for each window and channel: the position of
the window's first maximum, or NONE if no y of the window is positive, because ReLU then lets no gradient
through. In the backward pass a pixel gets the gradients of the windows whose maximum it is. Let g be the sum
of these gradients:

    dbeta = sum g,  dgamma = sum g * x',  dx = gamma * scale * (g - (dbeta + x' * dgamma) / rows)

The sums are over the rows of x, whose number is rows: ``stem_sums`` computes the sums over each part, and the
caller, ``fused_norm.py``, adds up the parts. Then ``stem_input_gradient`` computes dx.
"""

import triton
import triton.language as tl

from implementations.pytorch.kernels.tile import columns_of, last_tiles_first, place, read, read_columns

RESIDENT = 3
"""Number of programs of ``stem_sums`` that a multiprocessor runs at once. A program has 256 threads of at
most 80 registers, and a multiprocessor has 65,536 registers."""
NONE = tl.constexpr(9)
"""Position of the maximum in a window without a positive y."""


@triton.jit
def _pixels(image, h, w, height, width, valid, column, columns):
    """Return the memory offsets (ROWS, COLUMNS) of the pixels (h, w) of the images with indices ``image``,
    and a mask: True where ``valid`` is True and the pixel lies within its image. ``image``, ``h``, ``w`` and
    ``valid`` have the shape (ROWS,)."""
    inside = valid & (h >= 0) & (h < height) & (w >= 0) & (w < width)
    pixel = (image * height + h).to(tl.int64) * width + w
    return pixel[:, None] * columns + column[None, :], inside[:, None] & (column < columns)[None, :]


@triton.jit
def _image_and_pixel(row, height, width):
    """Return the index of the image, h and w of each pixel of ``row``, indices of rows of the matrix, for
    images with this height and width."""
    return row // (height * width), row // width % height, row % width


@triton.jit
def stem(
    x,
    out,
    maxima,
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
    """Write ``out`` of one tile, and the positions of the maxima to ``maxima``, which has the shape of
    ``out``. ``rows`` is the number of rows of ``out``; ``height`` and ``width`` are those of ``x``."""
    number, block = place(columns, COLUMNS)  # number of this program among the programs of its block
    column = columns_of(block, COLUMNS)
    row = last_tiles_first(number, rows, ROWS) + tl.arange(0, ROWS)  # program 0 has the last tile
    image, i, j = _image_and_pixel(row, out_height, out_width)
    centre, factor = read_columns(mean, column, columns), read_columns(scale, column, columns)
    weight, bias = read_columns(gamma, column, columns), read_columns(beta, column, columns)
    highest = tl.zeros((ROWS, COLUMNS), tl.float32)
    argmax = tl.full((ROWS, COLUMNS), NONE, tl.int32)
    for position in tl.static_range(9):
        h, w = 2 * i - 1 + position // 3, 2 * j - 1 + position % 3
        offsets, inside = _pixels(image, h, w, height, width, row < rows, column, columns)
        y = (read(x, offsets, inside) - centre) * factor * weight + bias
        higher = inside & ((y > highest) | (y != y))  # y != y is NaN, which stays NaN, as in PyTorch
        highest, argmax = tl.where(higher, y, highest), tl.where(higher, position, argmax)
    offsets, inside = _pixels(image, i, j, out_height, out_width, row < rows, column, columns)
    tl.store(out + offsets, highest.to(out.dtype.element_ty), mask=inside)
    tl.store(maxima + offsets, argmax.to(tl.uint8), mask=inside)


@triton.jit
def _gradient_from_windows(
    gradient,
    maxima,
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
    """Return g of the pixels (h, w), shape (ROWS, COLUMNS): a sum over the windows that contain a pixel. An
    even h lies in window i = h / 2 alone, an odd h in i = (h - 1) / 2 and i + 1; so does w. So there are four
    windows at most."""
    g = tl.zeros((ROWS, COLUMNS), tl.float32)
    for window in tl.static_range(4):
        i, j = h // 2 + window // 2, w // 2 + window % 2
        in_window = valid & (2 * i - 1 <= h) & (2 * j - 1 <= w)  # pixel (h, w) is in window (i, j)
        offsets, inside = _pixels(image, i, j, out_height, out_width, in_window, column, columns)
        position = 3 * (h - 2 * i + 1) + w - 2 * j + 1
        argmax = tl.load(maxima + offsets, mask=inside, other=NONE).to(tl.int32)
        g += tl.where(argmax == position[:, None], read(gradient, offsets, inside), 0.0)
    return g


@triton.jit
def stem_sums(
    gradient,
    maxima,
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
    """Write dbeta and dgamma of one part, the tiles ``part``, ``part + parts`` and so on of a block, to
    ``sums`` (2, parts, columns). ``rows`` is the number of rows of ``x``."""
    part, block = place(columns, COLUMNS)
    column = columns_of(block, COLUMNS)
    centre, factor = read_columns(mean, column, columns), read_columns(scale, column, columns)
    dbeta, dgamma = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(part * ROWS, rows, parts * ROWS):
        row = first + tl.arange(0, ROWS)
        image, h, w = _image_and_pixel(row, height, width)
        offsets, inside = _pixels(image, h, w, height, width, row < rows, column, columns)
        g = _gradient_from_windows(
            gradient, maxima, image, h, w, row < rows, column, columns, out_height, out_width, ROWS, COLUMNS
        )
        dbeta += g
        dgamma += g * (read(x, offsets, inside) - centre) * factor
    offset = part * columns + column  # in ``sums[0]``, which has parts * columns values
    tl.store(sums + offset, tl.sum(dbeta, 0), mask=column < columns)
    tl.store(sums + parts * columns + offset, tl.sum(dgamma, 0), mask=column < columns)


@triton.jit
def stem_input_gradient(
    gradient,
    maxima,
    x,
    out,
    mean,
    scale,
    gamma,
    dbeta,
    dgamma,
    rows,
    columns,
    height,
    width,
    out_height,
    out_width,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write dx of one tile. ``rows`` is the number of rows of ``x``."""
    number, block = place(columns, COLUMNS)
    column = columns_of(block, COLUMNS)
    row = last_tiles_first(number, rows, ROWS) + tl.arange(0, ROWS)
    image, h, w = _image_and_pixel(row, height, width)
    offsets, inside = _pixels(image, h, w, height, width, row < rows, column, columns)
    g = _gradient_from_windows(
        gradient, maxima, image, h, w, row < rows, column, columns, out_height, out_width, ROWS, COLUMNS
    )
    factor = read_columns(scale, column, columns)
    standardised = (read(x, offsets, inside) - read_columns(mean, column, columns)) * factor
    common = read_columns(dbeta, column, columns) + standardised * read_columns(dgamma, column, columns)
    dx = read_columns(gamma, column, columns) * factor * (g - common / rows)
    tl.store(out + offsets, dx.to(out.dtype.element_ty), mask=inside)

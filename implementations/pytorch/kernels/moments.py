"""Mean and variance of every column, and the running statistics of batch norm.

``moments`` starts two kernels. ``moments_of_parts`` reads x and computes the mean and the sum of squared
deviations of each part. x is cut into tiles (``tile.py``); of P parts, part p has the tiles p, p + P, p + 2P
and so on of a block of columns. Let the part have n rows, and let s be its first row:

    mean = s + a / n,  a = sum (x - s);   deviation = sum (x - mean)^2 = sum (x - s)^2 - a^2 / n

The subtraction magnifies rounding errors at most n times: sum (x - s)^2 = deviation + n (s - mean)^2, and
(s - mean)^2 <= deviation (n - 1) / n, because s is a row of the part. ``combine_moments`` computes mean and
variance of all rows from those of the parts (Chan, Golub and LeVeque, "Algorithms for Computing the Sample
Variance", 1983):

    mean = sum n_p mean_p / rows,  variance = sum (deviation_p + n_p (mean_p - mean)^2) / rows

If x is the output of a convolution that has also computed sum x and sum x^2 (``convolution_statistics.py``),
x need not be read:

    mean = sum x / rows,  q = sum x^2 / rows,  variance = q - mean^2

This difference loses digits in columns whose mean is far from 0. Therefore it is used only if q <= 32
(variance + eps), that is if the mean is at most 5.6 standard deviations from 0. Otherwise
``moments_of_parts`` reads x after all. Each step decides this anew for each block of columns.

The bound of 32 keeps the error below that of rounding to bfloat16, 2^-8 = 3.9e-3. Let the errors of the two
sums be at most e sum |x| and e sum x^2. Since (sum |x| / rows)^2 <= q, the error of the mean is at most e
sqrt(q), that of its square about 2 e q, and that of the variance about 3 e q. With q <= 32 (variance + eps)
the relative error of variance + eps is at most 96 e, and that of its root 48 e. How large is e? cuDNN adds
the rows of a tile, 32 to 256 of them, and then the tiles. 400 images of 56x56 have 39,200 tiles of 32 rows,
so at most k = 32 + 39,200 numbers are added one after another. Their error exceeds e sum |x| for
e = 5 sqrt(k) 2^-24 = 5.9e-5 with a probability of 2 exp(-25 / 2) = 7e-6 (Higham and Mary, "A New Approach to
Probabilistic Rounding Error Analysis", 2019). So the relative error of the root is at most 2.8e-3.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from implementations.pytorch.kernels.tile import SHAPE, columns_of, divide, place, read, read_columns, tile

RESIDENT = 4
"""Number of programs of ``moments_of_parts`` that a multiprocessor runs at once. A program has 256 threads of
at most 64 registers, and a multiprocessor has 65,536 registers."""
COMBINED_COLUMNS = 8
"""Columns of a program of ``combine_moments``, which has all parts of its columns in registers."""
CANCELLED = tl.constexpr(32.0)
"""Limit of q / (variance + eps). Above it the variance is not computed from sum x^2."""


@triton.jit
def rows_of_part(part, parts, rows, ROWS: tl.constexpr):
    """Return the number of rows of part ``part``. All tiles have ROWS rows, except the last tile of the
    matrix."""
    tiles = tl.cdiv(rows, ROWS)
    # The last tile, number tiles - 1, belongs to part (tiles - 1) % parts.
    missing = tl.where((tiles - 1) % parts == part, tiles * ROWS - rows, 0)
    return (tl.cdiv(tiles - part, parts) * ROWS - missing).to(tl.float32)


@triton.jit
def moments_from_sums(sums, column, columns, rows, eps, limit):
    """Return mean and variance of the columns ``column`` from ``sums``, which has sum x and sum x^2, and a
    boolean for each column: True if the variance has lost too many digits, that is, if q, the mean of x^2,
    exceeds ``limit`` times (variance + eps)."""
    mean = tl.load(sums + column, mask=column < columns, other=0.0) / rows
    q = tl.load(sums + columns + column, mask=column < columns, other=0.0) / rows
    variance = q - mean * mean
    return mean, variance, q > (variance + eps) * limit


@triton.jit
def moments_of_parts(
    x, means, deviations, rows, columns, parts, sums, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Write mean and sum of squared deviations of every column of one part into its row of ``means`` and
    ``deviations``, (parts, columns). With ``sums``, x is only read if a column of the block has lost too many
    digits; otherwise what is written has no meaning, and ``combine_moments`` does not read it."""
    part, block = place(columns, COLUMNS)
    column = columns_of(block, COLUMNS)
    end = rows
    if sums is not None:
        # The limit is a little lower than in ``combine_moments``. That kernel may round q and the variance
        # differently, and every column that it takes from the parts must have been computed here.
        _, _, lost = moments_from_sums(sums, column, columns, rows, eps, CANCELLED * 0.99)
        # The loop below reads all rows if any column of the block is lost, else none.
        end = tl.where(tl.max(lost.to(tl.int32), 0) > 0, rows, 0)
    shift = read_columns(x + (part * ROWS).to(tl.int64) * columns, column, columns).to(tl.float32)
    total, squares = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for row in range(part * ROWS, end, parts * ROWS):
        offsets, inside = tile(row, rows, column, columns, ROWS)
        shifted = tl.where(inside, read(x, offsets, inside) - shift, 0.0)
        total += shifted
        squares += shifted * shifted
    count = rows_of_part(part, parts, rows, ROWS)
    shifted_mean = tl.sum(total, 0)[None, :] / count
    # A negative sum is rounding error. If tl.maximum makes 0 of a NaN, the part's mean still is NaN.
    deviation = tl.maximum(tl.sum(squares, 0)[None, :] - count * shifted_mean * shifted_mean, 0.0)
    out = (part * columns + column)[None, :]
    valid = (column < columns)[None, :]
    tl.store(means + out, shift + shifted_mean, mask=valid)
    tl.store(deviations + out, deviation, mask=valid)


@triton.jit
def combine_moments(
    means,
    deviations,
    mean_out,
    scale_out,
    running_mean,
    running_var,
    rows,
    columns,
    parts,
    momentum,
    sums,
    eps,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write mean and 1 / sqrt(variance + eps) of COLUMNS columns, and update their running statistics.

    ``means`` and ``deviations`` are those that ``moments_of_parts`` wrote, and ``sums`` the same as there.
    PARTS is a power of 2 and not less than ``parts``, because Triton has no other sizes of an array.
    """
    part = tl.arange(0, PARTS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    valid = column < columns
    offsets = part[:, None] * columns + column[None, :]
    inside = (part < parts)[:, None] & valid[None, :]
    if sums is not None:  # read the parts only for columns that have lost too many digits
        mean_of_sums, variance, lost = moments_from_sums(sums, column, columns, rows, eps, CANCELLED)
        inside = inside & lost[None, :]
    # The count of a part beyond ``parts`` has no meaning, and is not ``inside``.
    counts = rows_of_part(part, parts, rows, ROWS)[:, None]
    part_means = tl.load(means + offsets, mask=inside, other=0.0)
    mean = tl.sum(part_means * counts, 0) / rows
    difference = part_means - mean[None, :]
    part_deviations = tl.load(deviations + offsets, mask=inside, other=0.0)
    deviation = tl.sum(part_deviations + tl.where(inside, counts * difference * difference, 0.0), 0)
    if sums is not None:
        mean = tl.where(lost, mean, mean_of_sums)
        # A negative variance is rounding error, and becomes 0. NaN stays NaN, which tl.maximum would not do.
        deviation = tl.where(lost, deviation, tl.where(variance < 0, 0.0, variance) * rows)
    tl.store(mean_out + column, mean, mask=valid)
    tl.store(scale_out + column, 1 / tl.sqrt(deviation / rows + eps), mask=valid)
    old_mean = tl.load(running_mean + column, mask=valid)
    tl.store(running_mean + column, (1 - momentum) * old_mean + momentum * mean, mask=valid)
    # As in PyTorch, the running variance is unbiased: it divides by rows - 1.
    old_var = tl.load(running_var + column, mask=valid)
    new_var = (1 - momentum) * old_var + momentum * deviation / (rows - 1)
    tl.store(running_var + column, new_var, mask=valid)


def moments(
    x: Tensor, running_mean: Tensor, running_var: Tensor, momentum: float, eps: float, sums: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return mean and 1 / sqrt(variance + eps) of every column of ``x``, each of shape (columns,), and update
    the running statistics in place. ``sums`` has sum x and sum x^2 of every column, shape (2, columns); None
    if no convolution has computed them."""
    division = divide(x)
    parts = division.parts(RESIDENT)
    means, deviations = torch.empty(2, parts, division.columns, device=x.device)
    mean, scale = torch.empty(2, division.columns, device=x.device)
    programs = parts * division.column_blocks
    moments_of_parts[(programs,)](x, means, deviations, *division.size, parts, sums, eps, **SHAPE)
    tensors = means, deviations, mean, scale, running_mean, running_var
    shape = {**SHAPE, "PARTS": triton.next_power_of_2(parts), "COLUMNS": COMBINED_COLUMNS}
    programs = triton.cdiv(division.columns, COMBINED_COLUMNS)
    combine_moments[(programs,)](*tensors, *division.size, parts, momentum, sums, eps, **shape)
    return mean, scale

"""Mean and variance of every column, and the running statistics of batch norm.

For a part of n rows, with s its first row:

    mean = s + a / n,  a = sum (x - s);   deviation = sum (x - mean)^2 = sum (x - s)^2 - a^2 / n

The subtraction magnifies roundings by no more than n, because s is a row of the part: (s - mean)^2 <=
deviation. For all rows, of means and deviations of the parts (Chan, Golub and LeVeque, "Algorithms for
Computing the Sample Variance", 1983):

    mean = sum n_p mean_p / rows,  variance = sum (deviation_p + n_p (mean_p - mean)^2) / rows

A convolution may have added up x and x^2 already. Then x need not be read:

    mean = sum x / rows,  q = sum x^2 / rows,  variance = q - mean^2

This difference cancels digits where the mean is far from 0. Let the sums be off by at most e sum |x| and e
sum x^2. Since (sum |x| / rows)^2 <= q, the mean is off by at most e sqrt(q), and the variance by at most
3 e q. cuDNN adds the rows of a tile, 32 to 256 of them, and then the tiles: of 400 images of 56x56 it adds no
more than k = 32 + 39,200 numbers one after another. Their roundings exceed 5 sqrt(k) 2^-24 = 5.9e-5 = e with
a probability of 2 exp(-25 / 2) = 7e-6 (Higham and Mary, "A New Approach to Probabilistic Rounding Error
Analysis", 2019). Where q <= 32 (variance + eps), variance + eps is off by at most 96 e = 5.7e-3 of itself,
and its root by 2.8e-3, less than the 3.9e-3 = 2^-8 that rounding to bfloat16 costs. Elsewhere, that is where
the mean is more than 5.6 standard deviations from 0, x is read as above: decided in every step, for a block
of columns.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from implementations.pytorch.kernels.tile import SHAPE, columns_of, divided, place, read, read_columns, tile

RESIDENT = 4
"""Programs that a multiprocessor runs at once: each thread has up to 64 of its 65,536 registers."""
COMBINED_COLUMNS = 8
CANCELLED = tl.constexpr(32.0)
"""Least ratio of the mean square to variance + eps at which sums of squares are not used."""


@triton.jit
def rows_of_part(part, parts, rows, ROWS: tl.constexpr):
    """Return the number of rows of a part. All its tiles are full, except the last one of the matrix."""
    tiles = tl.cdiv(rows, ROWS)
    missing = tl.where((tiles - 1) % parts == part, tiles * ROWS - rows, 0)
    return (tl.cdiv(tiles - part, parts) * ROWS - missing).to(tl.float32)


@triton.jit
def of_sums(sums, column, columns, rows, eps, limit):
    """Return mean and variance of columns from their sums and sums of squares, and where the variance has
    lost too many digits."""
    mean = tl.load(sums + column, mask=column < columns, other=0.0) / rows
    square = tl.load(sums + columns + column, mask=column < columns, other=0.0) / rows
    variance = square - mean * mean
    return mean, variance, square > (variance + eps) * limit


@triton.jit
def moments_of_parts(
    x, means, deviations, rows, columns, parts, sums, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Write mean and sum of squared deviations of every column of a part; with ``sums`` only where these do
    not suffice."""
    part, block = place(columns, COLUMNS)
    column = columns_of(block, COLUMNS)
    end = rows
    if sums is not None:
        # Below the limit of the other kernel, which may round otherwise, and must find all that it wants.
        _, _, lost = of_sums(sums, column, columns, rows, eps, CANCELLED * 0.99)
        end = tl.where(tl.max(lost.to(tl.int32), 0) > 0, rows, 0)
    shift = read_columns(x + (part * ROWS).to(tl.int64) * columns, column, columns).to(tl.float32)
    sums, squares = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for row in range(part * ROWS, end, parts * ROWS):
        offsets, inside = tile(row, rows, column, columns, ROWS)
        apart = tl.where(inside, read(x, offsets, inside) - shift, 0.0)
        sums += apart
        squares += apart * apart
    count = rows_of_part(part, parts, rows, ROWS)
    mean = tl.sum(sums, 0)[None, :] / count
    deviation = tl.maximum(tl.sum(squares, 0)[None, :] - count * mean * mean, 0.0)
    out = (part * columns + column)[None, :]
    valid = (column < columns)[None, :]
    tl.store(means + out, shift + mean, mask=valid)
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
    """Write mean and 1 / sqrt(variance + eps) of every column, and move the running statistics towards mean
    and variance."""
    part, column = tl.arange(0, PARTS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    valid = column < columns
    offsets, inside = part[:, None] * columns + column[None, :], (part < parts)[:, None] & valid[None, :]
    if sums is not None:
        mean_of_sums, variance, lost = of_sums(sums, column, columns, rows, eps, CANCELLED)
        inside = inside & lost[None, :]
    counts = rows_of_part(part, parts, rows, ROWS)[:, None]
    of_parts = tl.load(means + offsets, mask=inside, other=0.0)
    mean = tl.sum(of_parts * counts, 0) / rows
    apart = of_parts - mean[None, :]
    deviation = tl.sum(
        tl.load(deviations + offsets, mask=inside, other=0.0) + tl.where(inside, counts * apart * apart, 0.0),
        0,
    )
    if sums is not None:
        mean = tl.where(lost, mean, mean_of_sums)
        # What is not a number stays so, which tl.maximum would not do.
        deviation = tl.where(lost, deviation, tl.where(variance < 0, 0.0, variance) * rows)
    tl.store(mean_out + column, mean, mask=valid)
    tl.store(scale_out + column, 1 / tl.sqrt(deviation / rows + eps), mask=valid)
    # The running variance is the unbiased one.
    for_mean, for_var = running_mean + column, running_var + column
    tl.store(for_mean, (1 - momentum) * tl.load(for_mean, mask=valid) + momentum * mean, mask=valid)
    tl.store(
        for_var, (1 - momentum) * tl.load(for_var, mask=valid) + momentum * deviation / (rows - 1), mask=valid
    )


def moments(
    x: Tensor, running_mean: Tensor, running_var: Tensor, momentum: float, eps: float, sums: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return mean and 1 / sqrt(variance + eps) of every column of ``x``, and update the running statistics in
    place. ``sums``, if known, has sum and sum of squares of every column, shape (2, columns)."""
    division = divided(x)
    parts = division.parts(RESIDENT)
    means, deviations = torch.empty(2, parts, division.columns, device=x.device)
    mean, scale = torch.empty(2, division.columns, device=x.device)
    moments_of_parts[(parts * division.column_blocks,)](
        x, means, deviations, *division.size, parts, sums, eps, **SHAPE
    )
    tensors = means, deviations, mean, scale, running_mean, running_var
    shape = {**SHAPE, "PARTS": triton.next_power_of_2(parts), "COLUMNS": COMBINED_COLUMNS}
    combine_moments[(triton.cdiv(division.columns, COMBINED_COLUMNS),)](
        *tensors, *division.size, parts, momentum, sums, eps, **shape
    )
    return mean, scale

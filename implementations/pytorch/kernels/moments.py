"""Mean and variance of every column, and the running statistics of batch norm.

For a part of n rows, with s its first row:

    mean = s + a / n,  a = sum (x - s);   deviation = sum (x - mean)^2 = sum (x - s)^2 - a^2 / n

The subtraction magnifies roundings by no more than n, because s is a row of the part: (s - mean)^2 <= deviation. For all rows, of
means and deviations of the parts (Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance", 1983):

    mean = sum n_p mean_p / rows,  variance = sum (deviation_p + n_p (mean_p - mean)^2) / rows
"""

from typing import Tuple

import torch
import triton
import triton.language as tl

from implementations.pytorch.kernels.tile import SHAPE, Division, read, read_columns, tile

COMBINED_COLUMNS = 8


@triton.jit
def moments_of_parts(x, means, deviations, rows, columns, part_rows, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write mean and sum of squared deviations of every column of a part."""
    part, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    begin = part * part_rows
    end = tl.minimum(begin + part_rows, rows)
    shift = read_columns(x + begin.to(tl.int64) * columns, column, columns).to(tl.float32)
    sums, squares = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for row in range(begin, end, ROWS):
        offsets, inside = tile(row, end, column, columns, ROWS)
        apart = tl.where(inside, read(x, offsets, inside) - shift, 0.0)
        sums += apart
        squares += apart * apart
    count = (end - begin).to(tl.float32)
    mean = tl.sum(sums, 0)[None, :] / count
    deviation = tl.maximum(tl.sum(squares, 0)[None, :] - count * mean * mean, 0.0)
    out = (part * columns + column)[None, :]
    there = (column < columns)[None, :]
    tl.store(means + out, shift + mean, mask=there)
    tl.store(deviations + out, deviation, mask=there)


@triton.jit
def combine_moments(means, deviations, mean_out, scale_out, running_mean, running_var, rows, columns, parts, part_rows, momentum,
                    eps, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write mean and 1 / sqrt(variance + eps) of every column, and move the running statistics towards mean and variance."""
    part, column = tl.arange(0, PARTS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    there = column < columns
    offsets, inside = part[:, None] * columns + column[None, :], (part < parts)[:, None] & there[None, :]
    counts = tl.maximum(tl.minimum(rows - part * part_rows, part_rows), 0).to(tl.float32)[:, None]
    of_parts = tl.load(means + offsets, mask=inside, other=0.0)
    mean = tl.sum(of_parts * counts, 0) / rows
    apart = of_parts - mean[None, :]
    deviation = tl.sum(tl.load(deviations + offsets, mask=inside, other=0.0) + tl.where(inside, counts * apart * apart, 0.0), 0)
    tl.store(mean_out + column, mean, mask=there)
    tl.store(scale_out + column, 1 / tl.sqrt(deviation / rows + eps), mask=there)
    # The running variance is the unbiased one.
    for_mean, for_var = running_mean + column, running_var + column
    tl.store(for_mean, (1 - momentum) * tl.load(for_mean, mask=there) + momentum * mean, mask=there)
    tl.store(for_var, (1 - momentum) * tl.load(for_var, mask=there) + momentum * deviation / (rows - 1), mask=there)


def moments(x: torch.Tensor, of: Division, running_mean: torch.Tensor, running_var: torch.Tensor, momentum: float,
            eps: float) -> Tuple[torch.Tensor, torch.Tensor]:
    """Return mean and 1 / sqrt(variance + eps) of every column of ``x``, and update the running statistics in place."""
    means, deviations = torch.empty(2, of.parts, of.columns, device=x.device)
    mean, scale = torch.empty(2, of.columns, device=x.device)
    moments_of_parts[(of.parts, of.column_blocks)](x, means, deviations, of.rows, of.columns, of.part_rows, **SHAPE)
    combine_moments[(triton.cdiv(of.columns, COMBINED_COLUMNS),)](
        means, deviations, mean, scale, running_mean, running_var, of.rows, of.columns, of.parts, of.part_rows, momentum, eps,
        PARTS=triton.next_power_of_2(of.parts), COLUMNS=COMBINED_COLUMNS, num_warps=8)
    return mean, scale

"""Fuse batch norm, the sum with a shortcut and ReLU into Triton kernels that make as few passes over memory as possible.

Ioffe and Szegedy, "Batch Normalization" (arXiv:1502.03167): y = gamma * x' + beta, x' = (x - mean) / sqrt(var + eps), with mean
and variance of a channel over the batch. In the forward pass one kernel computes means and sums of squared deviations of parts of
the rows, a small one combines them (Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance", 1983), and one
normalises, adds the shortcut and applies ReLU. In the backward pass, with g the gradient masked by ReLU:

    dbeta = sum g,  dgamma = sum g * x',  dx = gamma / sqrt(var + eps) * (g - (dbeta + x' * dgamma) / rows)

One kernel sums parts of the rows, and one writes dx. Without a shortcut both compute the mask of ReLU from x. With a shortcut the
first reads it from the output and writes g, which is also the shortcut's gradient.

A tensor (N, C, H, W), channels-last in memory, is a matrix of N*H*W rows and C columns here, float16, bfloat16 or float32. All
computation is in float32. "fused" of ``benchmarks/step_floor.py`` counts the bytes moved.
"""

from typing import Any, NamedTuple, Optional, Tuple

import torch
import triton
import triton.language as tl

MOST_PARTS = 512
"""Most parts of the rows, over all blocks of columns: enough for all multiprocessors of a large GPU."""
ROWS, COLUMNS = 64, 64
"""Shape of the tile that a kernel processes at a time."""


@triton.jit
def _tile(pointer, row, rows, column, columns, ROWS: tl.constexpr):
    """Return pointers (ROWS, COLUMNS) from row ``row`` on, and the mask of those within the matrix."""
    at = row + tl.arange(0, ROWS)
    offsets = at.to(tl.int64)[:, None] * columns + column[None, :]
    return pointer + offsets, (at < rows)[:, None] & (column < columns)[None, :]


@triton.jit
def _moments_of_parts(x, means, deviations, rows, columns, part_rows, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    part, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    begin = part * part_rows
    end = tl.minimum(begin + part_rows, rows)
    mean, deviation = tl.zeros((COLUMNS,), tl.float32), tl.zeros((COLUMNS,), tl.float32)
    for row in range(begin, end, ROWS):
        pointers, inside = _tile(x, row, end, column, columns, ROWS)
        values = tl.load(pointers, mask=inside, other=0.0).to(tl.float32)
        count, before = tl.minimum(end - row, ROWS).to(tl.float32), (row - begin).to(tl.float32)
        tile_mean = tl.sum(values, 0) / count
        apart = tl.where(inside, values - tile_mean[None, :], 0.0)
        step = tile_mean - mean
        mean += step * (count / (before + count))
        deviation += tl.sum(apart * apart, 0) + step * step * (before * count / (before + count))
    out = part * columns + column
    tl.store(means + out, mean, mask=column < columns)
    tl.store(deviations + out, deviation, mask=column < columns)


@triton.jit
def _combine_moments(means, deviations, mean_out, scale_out, running_mean, running_var, rows, columns, parts, part_rows, momentum,
                     eps, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
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


@triton.jit
def _normalise(x, shortcut, out, mean, scale, gamma, beta, rows, columns, ADD: tl.constexpr, RELU: tl.constexpr,
               ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    pointers, inside = _tile(x, tl.program_id(0) * ROWS, rows, column, columns, ROWS)
    deviations = _standardised(pointers, inside, mean, scale, column, columns)
    values = _affine(deviations, gamma, beta, column, columns)
    if ADD:
        others, _ = _tile(shortcut, tl.program_id(0) * ROWS, rows, column, columns, ROWS)
        values += tl.load(others, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        values = tl.maximum(values, 0.0)
    targets, _ = _tile(out, tl.program_id(0) * ROWS, rows, column, columns, ROWS)
    tl.store(targets, values.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _standardised(pointers, inside, mean, scale, column, columns):
    there = column < columns
    values = tl.load(pointers, mask=inside, other=0.0).to(tl.float32)
    return (values - tl.load(mean + column, mask=there)[None, :]) * tl.load(scale + column, mask=there)[None, :]


@triton.jit
def _affine(standardised, gamma, beta, column, columns):
    there = column < columns
    return standardised * tl.load(gamma + column, mask=there)[None, :] + tl.load(beta + column, mask=there)[None, :]


@triton.jit
def _sums_of_parts(gradient, x, out, let_through, sums, mean, scale, gamma, beta, rows, columns, part_rows, parts,
                   ADD: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    part, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    begin = part * part_rows
    end = tl.minimum(begin + part_rows, rows)
    for_beta, for_gamma = tl.zeros((COLUMNS,), tl.float32), tl.zeros((COLUMNS,), tl.float32)
    for row in range(begin, end, ROWS):
        pointers, inside = _tile(x, row, end, column, columns, ROWS)
        standardised = _standardised(pointers, inside, mean, scale, column, columns)
        arrived, _ = _tile(gradient, row, end, column, columns, ROWS)
        g = tl.load(arrived, mask=inside, other=0.0).to(tl.float32)
        if RELU and ADD:
            outputs, _ = _tile(out, row, end, column, columns, ROWS)
            g = tl.where(tl.load(outputs, mask=inside, other=0.0).to(tl.float32) > 0, g, 0.0)
            kept, _ = _tile(let_through, row, end, column, columns, ROWS)
            tl.store(kept, g.to(let_through.dtype.element_ty), mask=inside)
        elif RELU:
            g = tl.where(_affine(standardised, gamma, beta, column, columns) > 0, g, 0.0)
        for_beta += tl.sum(g, 0)
        for_gamma += tl.sum(g * standardised, 0)  # outside the matrix g is 0
    to = sums + part * columns + column
    tl.store(to, for_beta, mask=column < columns)
    tl.store(to + parts * columns, for_gamma, mask=column < columns)


@triton.jit
def _input_gradient(gradient, x, out, mean, scale, gamma, beta, for_beta, for_gamma, rows, columns, MASK: tl.constexpr,
                    ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    there = column < columns
    pointers, inside = _tile(x, row, rows, column, columns, ROWS)
    standardised = _standardised(pointers, inside, mean, scale, column, columns)
    arrived, _ = _tile(gradient, row, rows, column, columns, ROWS)
    g = tl.load(arrived, mask=inside, other=0.0).to(tl.float32)
    if MASK:
        g = tl.where(_affine(standardised, gamma, beta, column, columns) > 0, g, 0.0)
    common = tl.load(for_beta + column, mask=there)[None, :] + standardised * tl.load(for_gamma + column, mask=there)[None, :]
    factor = tl.load(gamma + column, mask=there) * tl.load(scale + column, mask=there)
    targets, _ = _tile(out, row, rows, column, columns, ROWS)
    tl.store(targets, (factor[None, :] * (g - common / rows)).to(out.dtype.element_ty), mask=inside)


class _Division(NamedTuple):
    """The division of a matrix into tiles and parts."""

    rows: int
    columns: int
    column_blocks: int
    parts: int
    part_rows: int

    @property
    def tiles(self) -> Tuple[int, int]:
        """Number of (row, column) tiles."""
        return triton.cdiv(self.rows, ROWS), self.column_blocks


def _divided(x: torch.Tensor) -> _Division:
    rows, columns = x.numel() // x.shape[1], x.shape[1]
    column_blocks = triton.cdiv(columns, COLUMNS)
    tiles = triton.cdiv(rows, ROWS)
    per_part = triton.cdiv(tiles, max(1, MOST_PARTS // column_blocks))
    return _Division(rows, columns, column_blocks, triton.cdiv(tiles, per_part), per_part * ROWS)


class _FusedNorm(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor, shortcut: Optional[torch.Tensor], gamma: torch.Tensor, beta: torch.Tensor,
                running_mean: torch.Tensor, running_var: torch.Tensor, momentum: float, eps: float, relu: bool) -> torch.Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        added = None if shortcut is None else shortcut.contiguous(memory_format=torch.channels_last)
        of = _divided(x)
        means, deviations = torch.empty(2, of.parts, of.columns, device=x.device)
        mean, scale = torch.empty(2, of.columns, device=x.device)
        _moments_of_parts[(of.parts, of.column_blocks)](
            x, means, deviations, of.rows, of.columns, of.part_rows, ROWS=ROWS, COLUMNS=COLUMNS)
        _combine_moments[(triton.cdiv(of.columns, 16),)](
            means, deviations, mean, scale, running_mean, running_var, of.rows, of.columns, of.parts, of.part_rows, momentum, eps,
            PARTS=triton.next_power_of_2(of.parts), COLUMNS=16)
        out = torch.empty_like(x)
        _normalise[of.tiles](x, x if added is None else added, out, mean, scale, gamma, beta, of.rows, of.columns,
                             ADD=added is not None, RELU=relu, ROWS=ROWS, COLUMNS=COLUMNS)
        context.save_for_backward(x, gamma, beta, mean, scale, out if relu and added is not None else None)
        context.relu, context.added = relu, added is not None
        return out

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:
        x, gamma, beta, mean, scale, out = context.saved_tensors
        of = _divided(x)
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        let_through = gradient if out is None else torch.empty_like(gradient)
        sums = torch.empty(2, of.parts, of.columns, device=x.device)
        _sums_of_parts[(of.parts, of.column_blocks)](
            gradient, x, x if out is None else out, let_through, sums, mean, scale, gamma, beta, of.rows, of.columns,
            of.part_rows, of.parts, ADD=context.added, RELU=context.relu, ROWS=ROWS, COLUMNS=COLUMNS)
        for_beta, for_gamma = sums.sum(1)
        to = torch.empty_like(x)
        _input_gradient[of.tiles](let_through, x, to, mean, scale, gamma, beta, for_beta, for_gamma, of.rows, of.columns,
                                  MASK=context.relu and not context.added, ROWS=ROWS, COLUMNS=COLUMNS)
        return to, let_through if context.added else None, for_gamma, for_beta, None, None, None, None, None


def normalise(x: torch.Tensor, shortcut: Optional[torch.Tensor], gamma: torch.Tensor, beta: torch.Tensor,
              running_mean: torch.Tensor, running_var: torch.Tensor, momentum: float, eps: float, relu: bool) -> torch.Tensor:
    """Return relu(batch_norm(x) + shortcut) in training mode, with the shape (N, C, H, W) and dtype of ``x``.

    ``x`` has more than one value per channel. ``shortcut`` is None or like ``x``. Without ``relu`` the sum itself is returned.
    The other tensors are float32 of shape (C,). The running statistics are updated like those of
    ``torch.nn.functional.batch_norm``.
    """
    return _FusedNorm.apply(x, shortcut, gamma, beta, running_mean, running_var, momentum, eps, relu)

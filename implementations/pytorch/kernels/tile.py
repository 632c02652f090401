"""Divide a matrix into tiles for the kernels beside this file, and compute what several of them do with a tile.

A tensor (N, C, H, W), channels-last in memory, is a matrix of N*H*W rows and C columns here, float16, bfloat16 or float32. All
computation is in float32. A kernel that sums over the rows does so for parts of them, one program for each part and each block of
columns. It adds whole tiles in registers, and sums over the rows of the tile once, after its loop: sums over rows need barriers,
for which loads would wait.
"""

from typing import Any, Dict, NamedTuple, Tuple

import torch
import triton
import triton.language as tl

MOST_PROGRAMS = 1024
"""Most programs of a kernel that sums over rows: about as many as a large GPU runs at once (132 multiprocessors on an H200)."""
SHAPE: Dict[str, Any] = {"ROWS": 64, "COLUMNS": 64, "num_warps": 8}
"""Shape of a tile and the warps that process it. A thread has 16 values, in float16 two loads of 16 bytes."""


@triton.jit
def tile(row, rows, column, columns, ROWS: tl.constexpr):
    """Return the offsets (ROWS, COLUMNS) of a tile from row ``row`` on, and the mask of those within the matrix."""
    at = row + tl.arange(0, ROWS)
    return at.to(tl.int64)[:, None] * columns + column[None, :], (at < rows)[:, None] & (column < columns)[None, :]


@triton.jit
def read(pointer, offsets, inside):
    """Return values in float32, 0 outside the matrix."""
    return tl.load(pointer + offsets, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def read_columns(pointer, column, columns):
    """Return one value per column as a row (1, COLUMNS)."""
    return tl.load(pointer + column, mask=column < columns, other=0.0)[None, :]


class Division(NamedTuple):
    """The division of a matrix into tiles and parts."""

    rows: int
    columns: int
    column_blocks: int
    parts: int
    part_rows: int

    @property
    def tiles(self) -> Tuple[int, int]:
        """Number of (row, column) tiles."""
        return triton.cdiv(self.rows, SHAPE["ROWS"]), self.column_blocks


def divided(x: torch.Tensor) -> Division:
    """Return the division of ``x``."""
    rows, columns = x.numel() // x.shape[1], x.shape[1]
    column_blocks = triton.cdiv(columns, SHAPE["COLUMNS"])
    tiles = triton.cdiv(rows, SHAPE["ROWS"])
    per_part = triton.cdiv(tiles, max(1, MOST_PROGRAMS // column_blocks))
    return Division(rows, columns, column_blocks, triton.cdiv(tiles, per_part), per_part * SHAPE["ROWS"])

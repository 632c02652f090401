"""Divide a matrix into tiles for the kernels beside this file, and compute what several of them do with a
tile.

A tensor (N, C, H, W), channels-last in memory, is a matrix of N*H*W rows and C columns here, float16,
bfloat16 or float32. All computation is in float32.

A kernel that sums over the rows does so for parts of them, one program for each part and each block of
columns. It adds whole tiles in registers, and sums over the rows of the tile once, after its loop: sums over
rows need barriers, for which loads would wait.

The programs are ordered for the L2 cache. Programs of all columns of a row are neighbours. Of P parts, part p
has tiles p, p + P, p + 2P and so on, and no more programs are started than run at once. So all parts together
pass through the rows from first to last. The kernel that reads the same tensors again passes from last to
first, and finds what the cache still holds of the end.
"""

import functools
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

SHAPE: dict[str, Any] = {"ROWS": 64, "COLUMNS": 64, "num_warps": 8}
"""Shape of a tile and the warps that process it. A thread has 16 values, in float16 two loads of 16 bytes."""
NARROW: dict[str, Any] = {**SHAPE, "ROWS": 32}
"""Shape for kernels with more to keep in registers, or with bits or bytes beside the values. A thread has 8
values side by side."""


@triton.jit
def place(columns, COLUMNS: tl.constexpr):
    """Return this program's index among those of its block of columns, and the index of the block, which
    varies faster."""
    blocks = tl.cdiv(columns, COLUMNS)
    return tl.program_id(0) // blocks, tl.program_id(0) % blocks


@triton.jit
def columns_of(block, COLUMNS: tl.constexpr):
    """Return the columns of a block, shape (COLUMNS,)."""
    return block * COLUMNS + tl.arange(0, COLUMNS)


@triton.jit
def last_tiles_first(index, rows, ROWS: tl.constexpr):
    """Return the first row of the tile of program ``index`` in a pass backwards through the rows."""
    return (tl.cdiv(rows, ROWS) - 1 - index) * ROWS


@triton.jit
def tile(row, rows, column, columns, ROWS: tl.constexpr):
    """Return the offsets (ROWS, COLUMNS) of a tile from row ``row`` on, and the mask of those within the
    matrix."""
    at = row + tl.arange(0, ROWS)
    return at.to(tl.int64)[:, None] * columns + column[None, :], (at < rows)[:, None] & (column < columns)[
        None, :
    ]


@triton.jit
def read(pointer, offsets, inside):
    """Return values in float32, 0 outside the matrix."""
    return tl.load(pointer + offsets, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def read_columns(pointer, column, columns):
    """Return one value per column as a row (1, COLUMNS)."""
    return tl.load(pointer + column, mask=column < columns, other=0.0)[None, :]


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Return the number of multiprocessors of a GPU, or that of an H100 where Triton's interpreter runs."""
    if device.type == "cpu":
        return 132
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


class Division(NamedTuple):
    """The division of a matrix into tiles and parts."""

    device: torch.device
    rows: int
    columns: int
    column_blocks: int
    row_tiles: int

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns, as kernels take them."""
        return self.rows, self.columns

    @property
    def programs(self) -> tuple[int]:
        """Grid of a kernel with a program for each tile."""
        return (self.row_tiles * self.column_blocks,)

    def parts(self, resident: int) -> int:
        """Return the number of parts for a kernel of which a multiprocessor runs ``resident`` programs at
        once."""
        return min(self.row_tiles, max(1, multiprocessors(self.device) * resident // self.column_blocks))


def divided(x: torch.Tensor, shape: dict[str, Any] = SHAPE) -> Division:
    """Return the division of ``x`` into tiles of ``shape``."""
    rows, columns = x.numel() // x.shape[1], x.shape[1]
    blocks = triton.cdiv(columns, shape["COLUMNS"])
    return Division(x.device, rows, columns, blocks, triton.cdiv(rows, shape["ROWS"]))

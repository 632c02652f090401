"""Divide a matrix into tiles, and read tiles: functions that the kernels of this folder share.

The kernels see a tensor (N, C, H, W), channels-last in memory, as a matrix of N*H*W rows and C columns. Its
values are float16, bfloat16 or float32. The kernels compute in float32.

A tile is a rectangle of ROWS x COLUMNS values. A block is COLUMNS neighbouring columns of the matrix. A part
is a set of tiles of one block. A kernel that computes sums over the rows runs one program for each part and
block, and writes the sum of each part. The program adds its tiles element by element in registers, and sums
over the rows of the resulting tile once, after its loop: a sum over rows needs a barrier, at which loads
would have to wait.

The order of the programs serves the L2 cache. The programs of all blocks of a row are neighbours. Of P parts,
part p has the tiles p, p + P, p + 2P and so on, and no more programs are started than run at once. So the
parts together pass through the matrix from its first row to its last. The next kernel, which reads the same
tensors again, passes from the last row to the first: the cache still holds the last rows.
"""

import functools
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

SHAPE: dict[str, Any] = {"ROWS": 64, "COLUMNS": 64, "num_warps": 8}
"""Shape of a tile, and the number of warps that process it. Each thread has 16 values of the tile, which in
float16 are two loads of 16 bytes."""
NARROW: dict[str, Any] = {**SHAPE, "ROWS": 32}
"""Shape of a tile for kernels that need more registers for a value, or that also read or write a bit or a
byte for each value. Each thread has 8 neighbouring values of one row."""


@triton.jit
def place(columns, COLUMNS: tl.constexpr):
    """Return the place of this program: its index among the programs of its block, which is the number of its
    part or tile, and the index of the block. Consecutive programs have different blocks."""
    blocks = tl.cdiv(columns, COLUMNS)
    return tl.program_id(0) // blocks, tl.program_id(0) % blocks


@triton.jit
def columns_of(block, COLUMNS: tl.constexpr):
    """Return the column indices of a block, shape (COLUMNS,)."""
    return block * COLUMNS + tl.arange(0, COLUMNS)


@triton.jit
def last_tiles_first(index, rows, ROWS: tl.constexpr):
    """Return the first row of the tile that program ``index`` of a block processes, if program 0 has the last
    tile of the matrix."""
    return (tl.cdiv(rows, ROWS) - 1 - index) * ROWS


@triton.jit
def tile(row, rows, column, columns, ROWS: tl.constexpr):
    """Return the memory offsets (ROWS, COLUMNS) of the tile that begins at row ``row``, and a mask: True
    where an offset lies within the matrix. ``column`` has the column indices of the tile."""
    row_indices = row + tl.arange(0, ROWS)
    offsets = row_indices.to(tl.int64)[:, None] * columns + column[None, :]
    return offsets, (row_indices < rows)[:, None] & (column < columns)[None, :]


@triton.jit
def read(pointer, offsets, inside):
    """Return the values at ``offsets`` in float32, and 0 where ``inside`` is False."""
    return tl.load(pointer + offsets, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def read_columns(pointer, column, columns):
    """Return the values that a vector has for the columns ``column``, as a row (1, COLUMNS)."""
    return tl.load(pointer + column, mask=column < columns, other=0.0)[None, :]


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Return the number of multiprocessors of a GPU. For the CPU, on which Triton's interpreter runs the
    kernels, return the number that an H100 has."""
    if device.type == "cpu":
        return 132
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


class Division(NamedTuple):
    """The division of a matrix into tiles and parts."""

    device: torch.device
    rows: int
    """Rows of the matrix."""
    columns: int
    """Columns of the matrix."""
    column_blocks: int
    """Number of blocks of columns."""
    row_tiles: int
    """Number of tiles in each block."""

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the matrix: two neighbouring arguments of every kernel."""
        return self.rows, self.columns

    @property
    def programs(self) -> tuple[int]:
        """Grid of a kernel that runs one program for each tile."""
        return (self.row_tiles * self.column_blocks,)

    def parts(self, resident: int) -> int:
        """Return the number of parts of each block, so that all programs of a kernel run at the same time,
        if each multiprocessor runs ``resident`` of them at once."""
        return min(self.row_tiles, max(1, multiprocessors(self.device) * resident // self.column_blocks))


def divide(x: torch.Tensor, shape: dict[str, Any] = SHAPE) -> Division:
    """Return the division of the matrix of ``x`` into tiles of ``shape``, which is SHAPE or NARROW."""
    rows, columns = x.numel() // x.shape[1], x.shape[1]
    blocks = triton.cdiv(columns, shape["COLUMNS"])
    return Division(x.device, rows, columns, blocks, triton.cdiv(rows, shape["ROWS"]))

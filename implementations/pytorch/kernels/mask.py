"""The mask of ReLU with one bit a value: bit i of byte b of a row is column 8 b + i. A row has 8 bytes for
each block of columns.

A thread of a NARROW tile has 8 values side by side, in float16 one load of 16 bytes, and their bits are one
byte. So neither kernel exchanges values between threads.
"""

import torch
import triton
import triton.language as tl

from implementations.pytorch.kernels.tile import SHAPE, Division


@triton.jit
def _bytes(row, rows, columns, block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the offsets (ROWS, COLUMNS // 8) of a tile's bytes, and the mask of those within the matrix."""
    at, byte = row + tl.arange(0, ROWS), block * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)
    in_a_row = tl.cdiv(columns, COLUMNS) * (COLUMNS // 8)
    return at.to(tl.int64)[:, None] * in_a_row + byte[None, :], (at < rows)[:, None]


@triton.jit
def write_mask(mask, positive, row, rows, columns, block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write the booleans ``positive`` (ROWS, COLUMNS)."""
    bits = tl.reshape(positive.to(tl.int32), (ROWS, COLUMNS // 8, 8)) << tl.arange(0, 8)[None, None, :]
    offsets, inside = _bytes(row, rows, columns, block, ROWS, COLUMNS)
    tl.store(mask + offsets, tl.sum(bits, 2).to(tl.uint8), mask=inside)


@triton.jit
def read_mask(mask, row, rows, columns, block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the booleans (ROWS, COLUMNS), False beyond the last row."""
    offsets, inside = _bytes(row, rows, columns, block, ROWS, COLUMNS)
    bits = (
        tl.load(mask + offsets, mask=inside, other=0).to(tl.int32)[:, :, None]
        >> tl.arange(0, 8)[None, None, :]
    )
    return tl.reshape(bits & 1, (ROWS, COLUMNS)) != 0


def empty_mask(division: Division, device: torch.device) -> torch.Tensor:
    """Return the memory for the mask of a matrix."""
    return torch.empty(
        division.rows, division.column_blocks * (SHAPE["COLUMNS"] // 8), dtype=torch.uint8, device=device
    )

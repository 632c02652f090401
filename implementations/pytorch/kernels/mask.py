"""The mask of ReLU: one bit for each value of a matrix, 1 where ReLU lets the value through.

``end_of_block`` in ``block.py`` writes the mask in the forward pass, and ``block_sums`` reads it in the
backward pass. Bit i of byte b of a row belongs to column 8 b + i. A row has 8 bytes for each block of 64
columns.

A thread that processes a NARROW tile has 8 neighbouring values of a row. In float16 they are one load of 16
bytes, and their bits are one byte of the mask. So neither kernel exchanges values between threads.

In the functions below, a tile has ROWS x COLUMNS values. It begins at row ``row`` of a matrix of ``rows``
rows and ``columns`` columns, and lies in the block of COLUMNS columns with the index ``block``.
"""

import torch
import triton
import triton.language as tl

from implementations.pytorch.kernels.tile import SHAPE, Division


@triton.jit
def _bytes(row, rows, columns, block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the offsets (ROWS, COLUMNS // 8) of the bytes of a tile, and (ROWS, 1) booleans: True where a
    row lies within the matrix."""
    row_indices = row + tl.arange(0, ROWS)
    byte = block * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)
    bytes_per_row = tl.cdiv(columns, COLUMNS) * (COLUMNS // 8)
    return row_indices.to(tl.int64)[:, None] * bytes_per_row + byte[None, :], (row_indices < rows)[:, None]


@triton.jit
def write_mask(mask, positive, row, rows, columns, block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write the mask of a tile: the booleans ``positive`` (ROWS, COLUMNS)."""
    bits = tl.reshape(positive.to(tl.int32), (ROWS, COLUMNS // 8, 8)) << tl.arange(0, 8)[None, None, :]
    offsets, inside = _bytes(row, rows, columns, block, ROWS, COLUMNS)
    tl.store(mask + offsets, tl.sum(bits, 2).to(tl.uint8), mask=inside)


@triton.jit
def read_mask(mask, row, rows, columns, block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the mask of a tile: booleans (ROWS, COLUMNS), False below the last row of the matrix."""
    offsets, inside = _bytes(row, rows, columns, block, ROWS, COLUMNS)
    loaded = tl.load(mask + offsets, mask=inside, other=0).to(tl.int32)
    shifted = loaded[:, :, None] >> tl.arange(0, 8)[None, None, :]  # the bit of each value is the lowest
    return tl.reshape(shifted & 1, (ROWS, COLUMNS)) != 0


def empty_mask(division: Division, device: torch.device) -> torch.Tensor:
    """Return uninitialised memory for the mask of a matrix that is divided as ``division`` says."""
    shape = division.rows, division.column_blocks * (SHAPE["COLUMNS"] // 8)
    return torch.empty(shape, dtype=torch.uint8, device=device)

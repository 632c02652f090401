"""Crop, resize, mirror and normalise a batch of images of different sizes with one Triton kernel.

The result is that of ``rn50.data.pipeline.crops.cut``, normalised. With u the position of an output column
and v that of a row in the part of the image, clipped to it, a = floor(u), b = floor(v), and p(a, b) a pixel's
grey level, repeated at the edge:

    u = first + column * step,  v likewise from the row
    line(a) = p(a, b) + (v - b) * (p(a, b + 1) - p(a, b))
    grey = round(line(a) + (u - a) * (line(a + 1) - line(a))),  out = (grey - mean) / std

A negative step mirrors. Positions are in float64 and grey levels in float32, without fused multiply-add, as
NumPy computes them.

An output (S, S, C) is a matrix of S rows with C * S values; C is 3, or 4 with zeros in the last channel.
Neighbouring threads write neighbouring values. A program makes ROWS x VALUES of them. A batch of B reads at
most the parts, 3 bytes a pixel, and writes C * B * S * S values.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

ROWS, VALUES = 8, 256
"""Shape of the tile of a program: C * 224 values are C such tiles, seven eighths full."""
PLACE, AXIS = tl.constexpr(5), tl.constexpr(2)
"""Count of numbers per image in ``places``, and per axis of an image in ``windows``."""
ROUNDING = tl.constexpr(12582912.0)
"""1.5 * 2**23: float32 has no digits behind the point there, so adding it rounds, a half to the even
neighbour."""


@triton.jit
def _taps(window, index, side):
    """Return the two of ``side`` pixels between which output ``index`` lies, and its distance from the
    first."""
    at = tl.load(window) + index.to(tl.float64) * tl.load(window + 1)
    at = tl.minimum(tl.maximum(at, 0.0), (side - 1).to(tl.float64))
    low = tl.floor(at)
    first = low.to(tl.int64)
    return first, tl.minimum(first + 1, side - 1), (at - low).to(tl.float32)


@triton.jit
def _between(pixels, first, second, share):
    """Return the grey levels between two lines of pixels, at ``share`` of the way from the first to the
    second."""
    value = tl.load(pixels + first).to(tl.float32)
    return value + share * (tl.load(pixels + second).to(tl.float32) - value)


@triton.jit
def _cut(
    places,
    windows,
    mean,
    std,
    out,
    SIZE: tl.constexpr,
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    VALUES: tl.constexpr,
):
    image = tl.program_id(0)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    value = tl.program_id(2) * VALUES + tl.arange(0, VALUES)
    column, channel = value // CHANNELS, tl.minimum(value % CHANNELS, 2)
    place, window = places + image * PLACE, windows + image * 2 * AXIS
    part = tl.load(place).to(tl.pointer_type(tl.uint8))
    plane, line, width, height = (
        tl.load(place + 1),
        tl.load(place + 2),
        tl.load(place + 3),
        tl.load(place + 4),
    )
    left, right, along = _taps(window, column, width)
    top, bottom, down = _taps(window + AXIS, row, height)
    # Positions are clipped, so every address is inside the part, also of rows and columns beyond the output.
    upper, lower, down = (top * line)[:, None], (bottom * line)[:, None], down[:, None]
    planes = part + channel * plane
    first = _between((planes + left)[None, :], upper, lower, down)
    second = _between((planes + right)[None, :], upper, lower, down)
    grey = first + along[None, :] * (second - first)
    grey = (grey + ROUNDING) - ROUNDING
    made = tl.div_rn(grey - tl.load(mean + channel)[None, :], tl.load(std + channel)[None, :])
    made = tl.where((value % CHANNELS < 3)[None, :], made, 0.0)
    pointers = out + (image.to(tl.int64) * SIZE + row[:, None]) * (SIZE * CHANNELS) + value[None, :]
    tl.store(pointers, made.to(out.dtype.element_ty), mask=(row < SIZE)[:, None] & (column < SIZE)[None, :])


def cut(
    images: Sequence[torch.Tensor],
    parts: torch.Tensor,
    windows: torch.Tensor,
    mean: torch.Tensor,
    std: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Write the normalised crops of ``images``, each uint8 (3, H, W) and contiguous, to ``out`` (B, S, S, C).

    ``parts`` and ``windows`` are ``Encoded.parts`` and ``Encoded.windows``; ``mean`` and ``std`` are float32
    (3,) on the device.
    """
    x, y, width, height = parts.unbind(1)
    heights, widths = torch.tensor([image.shape[1:] for image in images]).unbind(1)
    if ((x + width > widths) | (y + height > heights)).any():
        raise ValueError("a part lies outside its image")  # the kernel would read other memory
    begins = torch.tensor([image.data_ptr() for image in images]) + y * widths + x
    places = torch.stack([begins, heights * widths, widths, width, height], 1).to(out.device)
    _, size, _, channels = out.shape
    grid = (len(images), triton.cdiv(size, ROWS), triton.cdiv(channels * size, VALUES))
    _cut[grid](
        places,
        windows.to(out.device),
        mean,
        std,
        out,
        SIZE=size,
        CHANNELS=channels,
        ROWS=ROWS,
        VALUES=VALUES,
        enable_fp_fusion=False,
    )

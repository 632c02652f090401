"""Crop, resize, mirror and normalise a batch with PyTorch's operations, two kernels an image;
``kernels.crop`` is faster."""

from collections.abc import Sequence

import torch
from torch.nn import functional


def cut(
    images: Sequence[torch.Tensor],
    parts: torch.Tensor,
    windows: torch.Tensor,
    mean: torch.Tensor,
    std: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """See ``kernels.crop.cut``. Positions are in float32 here, so exact halves may be rounded otherwise."""
    size = out.shape[1]
    maps = _affine(parts, windows, size).to(out.device)
    grids = functional.affine_grid(maps, [len(images), 3, size, size], align_corners=False)
    made = []
    for image, (x, y, w, h), grid in zip(images, parts.tolist(), grids, strict=False):
        part = image[None, :, y : y + h, x : x + w].float()
        made.append(
            functional.grid_sample(part, grid[None], padding_mode="border", align_corners=False)[0].permute(
                1, 2, 0
            )
        )
    out[..., :3].copy_(torch.stack(made).round_().sub_(mean).div_(std))
    out[..., 3:].zero_()


def _affine(parts: torch.Tensor, windows: torch.Tensor, size: int) -> torch.Tensor:
    """Return the affine maps from the square [-1, 1] to the windows, in coordinates in which a part is that
    square."""
    (first, step), sides = windows.unbind(2), parts[:, 2:]
    maps = torch.zeros(len(parts), 2, 3)
    maps[:, [0, 1], [0, 1]] = (step * size / sides).float()
    maps[:, :, 2] = ((2 * first + (size - 1) * step + 1) / sides - 1).float()
    return maps

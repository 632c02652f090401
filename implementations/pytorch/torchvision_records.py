"""Records whose images the device decodes: their bytes, and where to crop them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from implementations.pytorch.loader_batches import Records
from rn50.data import jpeg
from rn50.data.pipeline import crops
from rn50.data.pipeline.loader_records import Drawn


class Encoded(NamedTuple):
    """A batch that is not decoded yet; or one image of it, with one value per field."""

    images: Any
    """All bytes, one image after the other, uint8 (N,)."""
    sizes: Any
    """Number of bytes of each image, (B,)."""
    positions: Any
    """Positions of the records in the file, (B,)."""
    for_device: Any
    """True for an image that the device's decoder gets, (B,); Pillow gets the others."""
    parts: Any
    """``crops.Crop.part``, int64 (B, 4)."""
    windows: Any
    """``positions`` of the windows in these parts, float64 (B, 2, 2)."""


class EncodedRecords(Records):
    """Reads records and draws their crops: (Encoded, label), or a line with the fault of the record."""

    def _prepared(self, image: bytes, drawn: Drawn) -> Encoded:
        crop = self._crop(*crops.size_of(image), drawn)
        header = jpeg.read_header(image)
        # nvJPEG does not decode CMYK and PNG. Pillow gets a truncated image, so that it is refused on every
        # device.
        for_device = header.components in (1, 3) and jpeg.has_end(image, header)
        return Encoded(
            np.frombuffer(image, np.uint8),
            len(image),
            drawn.position,
            for_device,
            crop.part,
            positions(crop, self._data.image_size),
        )

    def _batch(self, images: Sequence[Encoded]) -> Encoded:
        data, *others, windows = zip(*images, strict=False)
        tensors = (
            torch.from_numpy(np.concatenate(data)),
            *map(torch.tensor, others),
            torch.from_numpy(np.array(windows)),
        )
        return Encoded._make(tensors)


def positions(crop: crops.Crop, size: int) -> list[list[float]]:
    """Return where in ``crop.part`` the first of ``size`` output columns lies and how far apart they are,
    then the same of rows.

    The columns of a mirrored crop go from right to left.
    """
    window = crop.window
    right, across, down = window.left + window.width, window.width / size, window.height / size
    columns = (
        [right - across / 2 - 0.5, -across] if crop.mirrored else [window.left + across / 2 - 0.5, across]
    )
    return [columns, [window.top + down / 2 - 0.5, down]]

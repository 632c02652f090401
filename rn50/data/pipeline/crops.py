"""Decode and crop images in NumPy: ``decode``, ``training_crop`` and ``evaluation_crop``, which the
DataLoader's processes call (``loader_records.py``).

``dali.py`` defines the same crops for DALI. Both take their numbers from ``rn50/benchmark/rules.py``.
"""

import io
import math
from typing import NamedTuple

import numpy as np

from rn50.benchmark import rules

ATTEMPTS = 100
"""Number of random windows that are drawn for an image until one fits, as in ``dali.py``."""


class Window(NamedTuple):
    """A rectangle of an image, in pixels. Outside the image, the image's edge pixels are repeated."""

    left: float
    top: float
    width: float
    height: float


def decode(image: bytes) -> np.ndarray:
    """Return the pixels of a JPEG or PNG: uint8 (H, W, 3) in RGB. For a damaged image Pillow raises errors of
    many types."""
    from PIL import Image

    with Image.open(io.BytesIO(image)) as decoder:
        return np.asarray(decoder.convert("RGB"))


def random_window(width: int, height: int, min_area: float, random: np.random.Generator) -> Window:
    """Return a random window in an image of ``width`` x ``height`` pixels. Its area is uniform between
    ``min_area``, a fraction, and the whole image; its aspect ratio is log-uniform, and its position uniform.

    A window that does not fit is drawn again. If ``ATTEMPTS`` windows did not fit, as happens for a very long
    image, the window is the largest one of an allowed aspect ratio, in the centre.
    """
    for _ in range(ATTEMPTS):
        area = random.uniform(min_area, rules.CROP_AREA[1]) * width * height
        aspect = math.exp(random.uniform(*np.log(rules.CROP_ASPECT)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = random.integers(width - w, endpoint=True), random.integers(height - h, endpoint=True)
            return Window(left, top, w, h)
    low, high = rules.CROP_ASPECT
    w, h = min(width, max(1, int(height * high))), min(height, max(1, int(width / low)))
    return Window((width - w) // 2, (height - h) // 2, w, h)


def centre_window(width: int, height: int, size: int, resize: int) -> Window:
    """Return the window of an image of ``width`` x ``height`` pixels that becomes the centre crop: ``size`` x
    ``size`` pixels in the centre, once the image is resized so that its shorter side has ``resize``
    pixels."""
    scale = min(width, height) / resize  # pixels of the image per pixel of the resized image

    def begin(side: int) -> float:
        """Return the first pixel of the window along a side of the image."""
        resized = math.floor(side / scale + 0.5)
        # DALI rounds half of an odd margin up.
        return (side - resized * scale) / 2 + (resized - size + 1) // 2 * scale

    return Window(begin(width), begin(height), size * scale, size * scale)


def resample(image: np.ndarray, window: Window, size: int) -> np.ndarray:
    """Return ``window`` of ``image``, uint8 (H, W, 3), resampled to ``size`` x ``size`` pixels: uint8 (S, S,
    3).

    Interpolation is bilinear without an antialiasing filter, rounded to whole grey levels.
    """
    top, bottom, lower_weight = _neighbours(window.top, window.height, size, image.shape[0])
    left, right, right_weight = _neighbours(window.left, window.width, size, image.shape[1])
    upper_rows, lower_rows = (image.take(rows, axis=0).astype(np.float32) for rows in (top, bottom))
    rows = upper_rows + lower_weight[:, None, None] * (lower_rows - upper_rows)
    left_pixels, right_pixels = (rows.take(columns, axis=1) for columns in (left, right))
    return np.rint(left_pixels + right_weight[None, :, None] * (right_pixels - left_pixels)).astype(np.uint8)


def _neighbours(begin: float, length: float, count: int, side: int) -> tuple[np.ndarray, ...]:
    """Return, along one side of an image, the indices of the two pixels between which each of ``count``
    sample points lies, and the distance of the point from the first of them: three arrays of shape (count,).

    The sample points are the centres of ``count`` equal parts of the window from ``begin`` to ``begin +
    length``. ``side`` is the number of pixels of this side.
    """
    position = np.clip(begin + (np.arange(count) + 0.5) * length / count - 0.5, 0, side - 1)
    first = np.floor(position).astype(np.int64)
    return first, np.minimum(first + 1, side - 1), (position - first).astype(np.float32)


def training_crop(image: np.ndarray, size: int, min_area: float, random: np.random.Generator) -> np.ndarray:
    """Return a random crop of ``image``, uint8 (H, W, 3), resized to ``size`` x ``size`` pixels and mirrored
    with the probability of the benchmark: uint8 (S, S, 3).

    Interpolation sees no pixel outside the crop: it repeats the crop's edge pixels.
    """
    height, width, _ = image.shape
    x, y, w, h = map(int, random_window(width, height, min_area, random))
    crop = resample(image[y : y + h, x : x + w], Window(0, 0, w, h), size)
    return crop[:, ::-1] if random.random() < rules.MIRROR_PROBABILITY else crop


def evaluation_crop(image: np.ndarray, size: int, resize: int) -> np.ndarray:
    """Return the centre crop of ``image``, uint8 (H, W, 3), after its shorter side is resized to ``resize``
    pixels: uint8 (S, S, 3) with S = ``size``."""
    height, width, _ = image.shape
    return resample(image, centre_window(width, height, size, resize), size)

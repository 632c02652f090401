"""Crop windows of images, and crops resampled to the network's input size: in NumPy, for pipelines without
DALI.

DALI gives the same images from the same definition (``dali.py``), whose numbers are in ``rules.py``.
"""

import io
import math
from typing import NamedTuple

import numpy as np

from rn50.benchmark import rules

ATTEMPTS = 100


class Window(NamedTuple):
    """A rectangle in pixels of an image. Where it reaches beyond the image, the image's edge is repeated."""

    left: float
    top: float
    width: float
    height: float


def decode(image: bytes) -> np.ndarray:
    """Return a JPEG or PNG as uint8 (H, W, 3) in RGB. Raises what Pillow raises for a damaged one: errors of
    many types."""
    from PIL import Image

    with Image.open(io.BytesIO(image)) as decoder:
        return np.asarray(decoder.convert("RGB"))


def random_window(width: int, height: int, min_area: float, random: np.random.Generator) -> Window:
    """Return a random window: uniform area, at least ``min_area`` of the image, log-uniform aspect ratio,
    uniform position.

    A window that does not fit is drawn again, at most ``ATTEMPTS`` times. After that, as for a very long
    image, the window is the largest centred one of an allowed aspect ratio.
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
    """Return the window of a centre crop of ``size``, taken once the image's shorter side is resized to
    ``resize``."""
    scale = min(width, height) / resize  # image pixels per input pixel

    def begin(side: int) -> float:
        resized = math.floor(side / scale + 0.5)
        return (side - resized * scale) / 2 + (resized - size) // 2 * scale

    return Window(begin(width), begin(height), size * scale, size * scale)


def resample(image: np.ndarray, window: Window, size: int) -> np.ndarray:
    """Return ``window`` of ``image``, uint8 (H, W, 3), resampled to uint8 (``size``, ``size``, 3).

    Interpolation is bilinear without an antialiasing filter, rounded to whole grey levels.
    """
    top, bottom, down = _taps(window.top, window.height, size, image.shape[0])
    left, right, along = _taps(window.left, window.width, size, image.shape[1])
    upper, lower = (image.take(rows, axis=0).astype(np.float32) for rows in (top, bottom))
    lines = upper + down[:, None, None] * (lower - upper)
    first, second = (lines.take(columns, axis=1) for columns in (left, right))
    return np.rint(first + along[None, :, None] * (second - first)).astype(np.uint8)


def _taps(begin: float, length: float, count: int, side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the two neighbours, among ``side`` pixels, of each of ``count`` pixels, and its distance from
    the first."""
    at = np.clip(begin + (np.arange(count) + 0.5) * length / count - 0.5, 0, side - 1)
    low = np.floor(at).astype(np.int64)
    return low, np.minimum(low + 1, side - 1), (at - low).astype(np.float32)


def training_crop(image: np.ndarray, size: int, min_area: float, random: np.random.Generator) -> np.ndarray:
    """Return a random crop of ``image``, uint8 (H, W, 3), mirrored or not, as an input: uint8 (``size``,
    ``size``, 3). Beyond the crop its own edge pixels are repeated."""
    height, width, _ = image.shape
    x, y, w, h = (int(value) for value in random_window(width, height, min_area, random))
    made = resample(image[y : y + h, x : x + w], Window(0, 0, w, h), size)
    return made[:, ::-1] if random.random() < rules.MIRROR_PROBABILITY else made


def evaluation_crop(image: np.ndarray, size: int, resize: int) -> np.ndarray:
    """Return the centre crop of ``image`` when its shorter side is resized to ``resize``, as an input."""
    height, width, _ = image.shape
    return resample(image, centre_window(width, height, size, resize), size)

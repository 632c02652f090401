"""The images of the demo data set: ``encode`` returns an image as a JPEG, for ``dataset.py``.

An image shows one of five textured shapes, either a coloured shape on a nearly grey background or a nearly
grey shape on a coloured background. Shape and colouring make ten classes. Colours, brightness, position,
size, rotation and shear are random. Some images have clutter behind the shape, a line across it, or blur; all
have noise and a random exposure. ``benchmarks/demo_difficulty.py`` measures that neither a linear classifier
nor a nearest-neighbour classifier solves the task.

Image i of a split depends only on the seed, the split, i, and ``scale``, by which the sides of the image are
multiplied. There are three splits, "train", "val" and "tune", each with its own stream of random numbers.
Hyperparameters are chosen on a data set with "tune" in place of "val", so that they are not chosen on the
validation images of the demo.
"""

import math

import cv2
import numpy as np

GENERATOR_VERSION = 7
"""Version of the images. It is increased with every change that alters an image, so that a data set of an
older version is not taken for one of this version."""

STREAMS = {"train": 1, "val": 2, "tune": 3}
"""Number of the random stream of each split."""

# A pair is the range of a uniform random number. A channel of a colour has a level from 0 to 255.
SHORT_SIDE = (72, 110)  # pixels of the shorter side, before ``scale``
ASPECT = (1.0, 1.2)  # longer side divided by shorter side
LANDSCAPE_PROBABILITY = 0.7
BRIGHTNESS = (40, 215)  # mean of the three channels of a colour or grey
GREY = 15  # largest deviation of a channel of a grey from the level that its channels share
VIVID = 130  # least difference between the highest and the lowest channel of a colour
CONTRAST = 100  # least Euclidean distance in RGB between the colours of shape and background
PLAIN_PROBABILITY = 0.1  # probability that the pattern drawn for a texture is replaced by no pattern
TEXTURE_AMPLITUDE = (5, 15)  # largest deviation of a texture from its base colour, in levels
CLUTTER_ITEMS = (0, 2)  # number of small things in the background; upper end excluded
SCALE = (0.65, 0.9)  # diameter of a shape divided by the short side, before all shapes get the same area
AREA = 1.6  # the area that they get, divided by the square of half that diameter
SHEAR = 0.25  # largest shear of a shape, in either direction
SQUASH = (0.8, 1.0)  # factor of a shape's height, before its rotation
OPACITY = (0.9, 1.0)  # weight of the shape against the background
OCCLUSION_PROBABILITY = 0.1  # probability of a line across the image
BLUR_PROBABILITY = 0.1
BLUR_SIGMA = (0.5, 1.3)  # pixels, before ``scale``
GAIN = (0.75, 1.2)  # factor of the exposure
OFFSET = 20  # largest summand of the exposure, of either sign, in levels
NOISE_SIGMA = (0, 6)  # standard deviation of the noise in every channel of every pixel, in levels
JPEG_QUALITY = (70, 96)  # upper end excluded

SUBPIXEL_BITS = 4
"""Polygon corners are passed to OpenCV in units of 1/16 pixel."""

Polygon = np.ndarray
"""float64 (corners, 2): x and y of each corner, in about [-1, 1]; y points downwards."""
Rng = np.random.RandomState
"""A stream of random numbers. NumPy never changes those of RandomState, unlike those of Generator."""


def _polar(angles: np.ndarray, radii: float | np.ndarray = 1.0) -> Polygon:
    """Return the points with these polar coordinates; angles are in radians."""
    return np.stack([radii * np.cos(angles), radii * np.sin(angles)], 1)


def triangle(rng: Rng) -> list[Polygon]:
    """Return a triangle with corners about a third of a turn apart."""
    return [_polar(np.array([-np.pi / 2, np.pi / 6, 5 * np.pi / 6]) + rng.uniform(-0.18, 0.18, 3))]


def rectangle(rng: Rng) -> list[Polygon]:
    """Return a rectangle whose sides have a ratio between 1:1 and 1:0.6."""
    height = 0.8 * rng.uniform(0.6, 1.0)
    return [np.array([[-0.8, -height], [0.8, -height], [0.8, height], [-0.8, height]])]


def cross(rng: Rng) -> list[Polygon]:
    """Return a plus sign with arms of random width."""
    w = rng.uniform(0.2, 0.36)
    x = [-w, w, w, 1, 1, w, w, -w, -w, -1, -1, -w]
    y = [-1, -1, -w, -w, w, w, 1, 1, w, w, -w, -w]
    return [np.stack([x, y], 1) * 0.92]


def ring(rng: Rng) -> list[Polygon]:
    """Return an ellipse with an elliptical hole: outline and hole are two polygons."""
    hole, squash = rng.uniform(0.4, 0.65), rng.uniform(0.75, 1)
    outer = _polar(np.linspace(0, 2 * np.pi, 72, endpoint=False)) * [1, squash]
    return [outer, outer * hole]


def crescent(rng: Rng) -> list[Polygon]:
    """Return a crescent moon: a part of a disc's edge, and an arc of a shifted circle through its two
    ends."""
    outer = _polar(np.linspace(0.6, 2 * np.pi - 0.6, 48))
    shift = rng.uniform(0.35, 0.55)
    # The inner arc has its centre at (shift, 0), and goes from the last point of ``outer`` to the first.
    tip_x, tip_y = outer[0]
    tip_angle, radius = math.atan2(tip_y, tip_x - shift), math.hypot(tip_x - shift, tip_y)
    inner = _polar(np.linspace(2 * np.pi - tip_angle, tip_angle, 40), radius) + [shift, 0]
    return [np.concatenate([outer, inner]) + [0.2, 0]]


SHAPES = (rectangle, triangle, cross, ring, crescent)
"""Functions that return a random shape: a list of its outline and, if it has a hole, the hole."""
CLASSES = 2 * len(SHAPES)
"""Number of classes. The label of a coloured shape is its index in ``SHAPES``; that of a grey shape is its
index plus ``len(SHAPES)``."""


def _any_colour(rng: Rng) -> tuple[float, ...]:
    """Return the three channels of any colour, for a function of OpenCV."""
    return tuple(float(channel) for channel in rng.uniform(0, 255, 3))


def _grey(rng: Rng) -> np.ndarray:
    """Return a colour that is nearly grey: float64 (3,)."""
    return rng.uniform(*BRIGHTNESS) + rng.uniform(-GREY, GREY, 3)


def _vivid(rng: Rng) -> np.ndarray:
    """Return a colour that is clearly not grey: float64 (3,)."""
    while True:
        colour = rng.uniform(0, 255, 3)
        if np.ptp(colour) > VIVID and BRIGHTNESS[0] < colour.mean() < BRIGHTNESS[1]:
            return colour


def _pattern(height: int, width: int, rng: Rng, kind: int) -> np.ndarray:
    """Return a pattern, float32 (height, width) in about [-1, 1]. ``kind`` is 0 for none, 1 for stripes, 2
    for a chequerboard, 3 for clouds, 4 for a gradient."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    if kind == 1:
        angle, frequency = rng.uniform(0, np.pi), rng.uniform(0.15, 0.7)
        return np.sin((x * np.cos(angle) + y * np.sin(angle)) * frequency + rng.uniform(0, 6))
    if kind == 2:
        side, angle = rng.uniform(5, 14), rng.uniform(0, np.pi)
        u, v = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
        return np.where((np.floor(u / side) + np.floor(v / side)) % 2 == 0, 1.0, -1.0).astype(np.float32)
    if kind == 3:
        coarse = rng.uniform(-1, 1, (rng.randint(3, 9),) * 2).astype(np.float32)
        return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    if kind == 4:
        angle = rng.uniform(0, 2 * np.pi)
        return ((x / width - 0.5) * np.cos(angle) + (y / height - 0.5) * np.sin(angle)) * 2
    return np.zeros((height, width), np.float32)


def _texture(height: int, width: int, rng: Rng, base: np.ndarray) -> np.ndarray:
    """Return a texture, float32 (height, width, 3): the colour ``base`` (3,) plus a random pattern in a
    random tint."""
    kind, amplitude = rng.randint(0, 5), rng.uniform(*TEXTURE_AMPLITUDE)
    pattern = _pattern(height, width, rng, 0 if rng.rand() < PLAIN_PROBABILITY else kind)
    tint = rng.uniform(-1, 1, 3)
    tint *= amplitude / np.abs(tint).max()
    texture = base.astype(np.float32) + pattern[:, :, None] * tint.astype(np.float32)
    return np.ascontiguousarray(texture, np.float32)


def _line(image: np.ndarray, rng: Rng, max_thickness: int) -> None:
    """Draw a line of random colour between two random points of ``image``."""
    height, width = image.shape[:2]
    ends = [(int(rng.randint(0, width)), int(rng.randint(0, height))) for _ in range(2)]
    cv2.line(image, ends[0], ends[1], _any_colour(rng), int(rng.randint(1, max_thickness + 1)), cv2.LINE_AA)


def _clutter(image: np.ndarray, rng: Rng) -> None:
    """Draw no or some small lines, dots and polygons into ``image``, as ``CLUTTER_ITEMS`` says."""
    height, width = image.shape[:2]
    short = min(height, width)
    for _ in range(rng.randint(*CLUTTER_ITEMS)):
        kind = rng.randint(0, 3)
        if kind == 0:
            _line(image, rng, max_thickness=3)
            continue
        x, y = int(rng.randint(0, width)), int(rng.randint(0, height))
        if kind == 1:
            radius = int(rng.randint(2, max(3, short // 9)))
            cv2.circle(image, (x, y), radius, _any_colour(rng), -1, cv2.LINE_AA)
        else:
            corners = [x, y] + rng.uniform(-short / 8, short / 8, (rng.randint(3, 6), 2))
            cv2.fillPoly(image, [corners.astype(np.int32)], _any_colour(rng), cv2.LINE_AA)


def _shape_mask(label: int, height: int, width: int, rng: Rng) -> np.ndarray:
    """Return a mask, float32 (height, width), that is 1 inside the shape of class ``label`` and 0 outside.

    The shape is scaled, rotated, sheared, squashed and placed at random. All shapes of a radius have the same
    area, so that a network cannot tell them apart by it.
    """
    radius = min(height, width) * rng.uniform(*SCALE) / 2
    angle = rng.uniform(0, 2 * np.pi)
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    transform = radius * rotation @ np.array([[1, rng.uniform(-SHEAR, SHEAR)], [0, rng.uniform(*SQUASH)]])
    polygons = [polygon.astype(np.float32) for polygon in SHAPES[label % len(SHAPES)](rng)]
    outline, *holes = map(cv2.contourArea, polygons)
    transform *= math.sqrt(AREA / (outline - sum(holes)))
    # The centre is at least 0.8 radii from the edges of the image: nearly all of the shape is inside.
    centre = [rng.uniform(radius * 0.8, length - radius * 0.8) for length in (width, height)]
    mask = np.zeros((height, width), np.float32)
    # Fill the outline with 1, then the hole, if there is one, with 0.
    for polygon, value in zip(polygons, (1.0, 0.0), strict=False):
        corners = (polygon @ transform.T + centre) * (1 << SUBPIXEL_BITS)
        cv2.fillPoly(mask, [corners.astype(np.int32)], value, cv2.LINE_AA, SUBPIXEL_BITS)
    return mask


def draw(label: int, rng: Rng, scale: int = 1) -> np.ndarray:
    """Return an image of class ``label``: uint8 (height, width, 3). A drawing of the usual size is enlarged
    by ``scale``. The noise is added after that, so that it differs from pixel to pixel."""
    short = rng.randint(SHORT_SIDE[0], SHORT_SIDE[1] + 1)
    long = int(short * rng.uniform(*ASPECT))
    height, width = (short, long) if rng.rand() < LANDSCAPE_PROBABILITY else (long, short)
    inside, around = (_vivid, _grey) if label < len(SHAPES) else (_grey, _vivid)
    colour, background = inside(rng), around(rng)
    while np.linalg.norm(colour - background) <= CONTRAST:
        colour, background = inside(rng), around(rng)
    image = _texture(height, width, rng, background)
    _clutter(image, rng)
    mask = _shape_mask(label, height, width, rng)[:, :, None] * np.float32(rng.uniform(*OPACITY))
    image += mask * (_texture(height, width, rng, colour) - image)
    if rng.rand() < OCCLUSION_PROBABILITY:
        _line(image, rng, max_thickness=4)
    if rng.rand() < BLUR_PROBABILITY:
        image = cv2.GaussianBlur(image, (0, 0), rng.uniform(*BLUR_SIGMA))
    if scale > 1:
        image = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
    image = image * rng.uniform(*GAIN) + rng.uniform(-OFFSET, OFFSET)
    image += rng.standard_normal(image.shape) * rng.uniform(*NOISE_SIGMA)
    return np.clip(image, 0, 255).astype(np.uint8)


def encode(seed: int, split: str, index: int, scale: int = 1) -> tuple[int, bytes]:
    """Return label and JPEG of image ``index`` of ``split``. The label is ``index`` modulo ``CLASSES``."""
    rng = Rng([seed, STREAMS[split], index])
    label = index % CLASSES
    image = draw(label, rng, scale)
    quality = int(rng.randint(*JPEG_QUALITY))
    return label, cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()

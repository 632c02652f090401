"""Image folders with the layout, the sizes and the bytes of ImageNet, made in seconds, for benchmarks and
tests.

A few pictures are generated. Each becomes many files, which differ in the number in their comment.
"""

import pathlib
import struct
from collections.abc import Sequence

import cv2
import numpy as np

SIZES = ((375, 500), (500, 375), (333, 500), (500, 500), (400, 300))
"""Height and width: the commonest of ImageNet, and a small one."""
QUALITY = 93
"""Quality of the JPEGs, at which a picture of 375x500 has about 110 KB, as those of ImageNet have."""


def pictures(sizes: Sequence[tuple[int, int]] = SIZES) -> list[bytes]:
    """Return a JPEG of smooth noise of every size."""
    rng = np.random.RandomState(0)
    made = []
    for height, width in sizes:
        coarse = rng.randint(0, 255, (height // 16, width // 16, 3)).astype(np.uint8)
        fine = rng.randint(-24, 24, (height, width, 3))
        image = np.clip(
            cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC) + fine, 0, 255
        ).astype(np.uint8)
        made.append(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes())
    return made


def numbered(jpeg: bytes, number: int) -> bytes:
    """Return the same picture as another file: with a comment segment that has a number."""
    return jpeg[:2] + b"\xff\xfe" + struct.pack(">HI", 6, number) + jpeg[2:]


def turned(jpeg: bytes, orientation: int = 6) -> bytes:
    """Return the same picture with an EXIF orientation, by which a viewer turns or mirrors it."""
    tiff = b"II*\0" + struct.pack("<IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", 8 + len(tiff)) + b"Exif\0\0" + tiff + jpeg[2:]


def make(folder: pathlib.Path, classes: int, train: int, val: int) -> None:
    """Write ``train`` and ``val`` images of each class into ``folder``."""
    originals = pictures()
    number = 0
    for split, count in (("train", train), ("val", val)):
        for label in range(classes):
            of_class = folder / split / f"n{label:08d}"
            of_class.mkdir(parents=True)
            for _ in range(count):
                (of_class / f"{number}.JPEG").write_bytes(
                    numbered(originals[number % len(originals)], number))
                number += 1

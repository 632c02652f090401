"""Checks of the images in a data set, JPEGs and PNGs: ``read_header`` reads what comes before the compressed
data, ``has_end`` looks for the end marker, and ``damage_of`` decodes the image if necessary.

Source of the JPEG format: ITU-T T.81, annex B.
"""

import contextlib
import io
import warnings
from typing import Any, NamedTuple

Bytes = bytes | memoryview

START_OF_IMAGE = b"\xff\xd8"
END_OF_IMAGE = b"\xff\xd9"
START_OF_SCAN = 0xDA
STANDALONE_MARKERS = {0x01, *range(0xD0, 0xD9)}
"""TEM, RST0-RST7 and SOI: markers that no segment length follows (ITU-T T.81, table B.1)."""
START_OF_FRAME = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""SOF0-SOF15, without DHT, JPG and DAC, whose codes lie between them (ITU-T T.81, table B.1)."""
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
"""ImageNet's training set holds one PNG under the name of a JPEG (n02105855_2933), which DALI decodes all the
same."""
PNG_END = b"IEND\xaeB`\x82"
CMYK_COMPONENTS = 4
_ORIENTATION = 0x0112
"""EXIF tag of the orientation. Source: CIPA DC-008, section 4.6.4."""


class ImageHeader(NamedTuple):
    """Facts about an image, from the bytes before its compressed data."""

    fault: str | None
    """Reason why no decoder can open the image, as a noun phrase such as "a JPEG without a size"; None: there
    is none."""
    is_png: bool = False
    components: int = 0
    """Number of colour components of a JPEG: 1 grey, 3 colour, 4 CMYK. It is 0 for a PNG."""
    scan: int | None = None
    """Position of the first scan of a JPEG, in bytes; None: the JPEG ends before it, or is a PNG."""


def read_header(image: Bytes) -> ImageHeader:
    """Return the header of an image: of a JPEG, from its segments up to the first scan. Takes a few
    microseconds and raises nothing."""
    if image[: len(PNG_SIGNATURE)] == PNG_SIGNATURE:
        return ImageHeader(None, is_png=True)
    if image[: len(START_OF_IMAGE)] != START_OF_IMAGE:
        reason = f"starts with the bytes {image[:4].hex(' ')}" if image else "is empty"
        return ImageHeader(f"no JPEG, it {reason}")
    components: int | None = None
    scan, position = None, len(START_OF_IMAGE)
    # A marker is ff and another byte. A segment follows, which begins with its length in two bytes.
    while scan is None and position + 4 <= len(image) and image[position] == 0xFF:
        marker, segment = image[position + 1], position + 2
        # A frame header: length (2 bytes), precision (1), height (2), width (2), number of components (1).
        # The height may be 0, the width may not (ITU-T T.81, table B.2).
        if marker in START_OF_FRAME and components is None:
            height_and_width = image[segment + 3 : segment + 7]
            if len(height_and_width) < 4 or not any(height_and_width[2:]):
                return ImageHeader("a JPEG without a size")
            components = int.from_bytes(image[segment + 7 : segment + 8], "big")
        if marker == START_OF_SCAN:
            scan = segment
        if marker == 0xFF:  # a fill byte
            position += 1
        elif marker in STANDALONE_MARKERS:
            position = segment
        else:
            position = segment + int.from_bytes(image[segment : segment + 2], "big")
    if components is None:
        return ImageHeader("a JPEG that is damaged or cut short before its frame header")
    return ImageHeader(None, components=components, scan=scan)


def has_end(image: bytes, header: ImageHeader) -> bool:
    """Return whether the image has an end: a JPEG the end-of-image marker behind its first scan, a PNG its
    last chunk."""
    if header.is_png:
        return PNG_END in image[-64:]
    # In compressed data the byte ff is never followed by d9, so that these two bytes are the marker.
    return header.scan is not None and image.rfind(END_OF_IMAGE) > header.scan


def orientation_of(image: bytes) -> int:
    """Return the EXIF orientation of an image: 2 to 8 if a viewer has to rotate or mirror it, else 1."""
    from PIL import Image

    # Pillow raises errors of many types for a damaged file.
    with contextlib.suppress(Exception), Image.open(io.BytesIO(image)) as decoder:
        orientation: Any = decoder.getexif().get(_ORIENTATION)
        return orientation if orientation in range(2, 9) else 1
    return 1


def damage_of(image: bytes, header: ImageHeader | None = None, decode: bool = False) -> str | None:
    """Return the fault of an image, as the predicate of a sentence such as "is empty"; None: it has none.

    Header and end are checked. If the image has no end, or with ``decode``, it is also decoded, which finds
    truncation. ``header`` is the result of ``read_header``, if the caller has it.
    """
    header = header or read_header(image)
    if header.fault:
        return f"is {header.fault}"
    if has_end(image, header) and not decode:
        return None
    from PIL import Image

    try:
        with Image.open(io.BytesIO(image)) as decoder:
            decoder.load()
    except Exception as error:  # Pillow raises OSError, SyntaxError, ValueError and more for a damaged file
        return f"does not decode ({error})"
    return None


def shrunk(image: bytes, short_side: int) -> bytes:
    """Return a JPEG of an image whose shorter side has ``short_side`` pixels. An image with so many or fewer
    is returned as it is.

    The filter is Lanczos, widened by the scale against aliasing: of Pillow's filters it keeps most detail.
    The quality is 95, the highest that Pillow advises: above it files grow much and images change little. The
    JPEG is grey or RGB. Like a run, this function ignores an EXIF orientation. Pillow raises errors of many
    types for an image that does not decode.
    """
    from PIL import Image

    output = io.BytesIO()
    # The warnings of Pillow on damaged EXIF data, which several images of ImageNet have, are not printed.
    with warnings.catch_warnings(record=True), Image.open(io.BytesIO(image)) as decoder:
        scale = short_side / min(decoder.size)
        if scale >= 1:
            return image
        width, height = (round(side * scale) for side in decoder.size)
        pixels = decoder.convert("L" if decoder.mode == "L" else "RGB")
        pixels.resize((width, height), Image.Resampling.LANCZOS).save(output, "JPEG", quality=95)
    return output.getvalue()

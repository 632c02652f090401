"""A picture of one training batch as the network sees it, with its labels (``rn50 data show``)."""

import io
import math
import pathlib
from typing import NamedTuple

import numpy as np

from rn50 import files
from rn50.benchmark import rules
from rn50.data.packing import packing_list
from rn50.data.pipeline import dali
from rn50.data.pipeline.batches import BatchFormat
from rn50.data.pipeline.record_set import RecordSet
from rn50.errors import UserError
from rn50.settings.config import Config

MOST = 64
"""Most images of a picture."""
GAP, LINE = 4, 14
"""Pixels between two images, and of the line below one."""


class ShownBatch(NamedTuple):
    """A batch that was drawn."""

    picture: pathlib.Path
    """File of the picture."""
    labels: list[int]
    """Class indices of its images, row by row."""
    lowest: float
    """Smallest value of a pixel and channel as the network sees it."""
    highest: float
    """Largest one."""

    @property
    def words(self) -> str:
        """Return what the picture shows."""
        mean, std = (", ".join(f"{value:g}" for value in values) for values in (rules.MEAN, rules.STD))
        seen = f"the network sees (x - mean) / std, {self.lowest:.2f} to {self.highest:.2f}"
        drawn = f"{seen}; drawn is x, with mean {mean} and std {std} of red, green and blue"
        return f"{self.picture}: {len(self.labels)} training images, cropped, resized and mirrored; {drawn}"


def draw(config: Config, seed: int, output: pathlib.Path) -> ShownBatch:
    """Draw the first batch that rank 0 would train on, from DALI on the CPU.

    Raises UserError if the data cannot be read or the picture cannot be written.
    """
    from PIL import Image, ImageDraw, PngImagePlugin

    if output.suffix.lower() != ".png":
        raise UserError(f"--output {output}", "the name does not end in .png", "give it such a name")
    files.refuse_to_replace(output, files.PICTURE)
    records, on_cpu = RecordSet(config, "train", config.ranks), BatchFormat(None, "HWC", False)
    dali.prepare(config, on_cpu)
    try:
        images, labels = dali.build(config, "train", 0, config.ranks, seed, on_cpu).run()
    except RuntimeError as error:
        raise dali.fault(records, error) from error
    count = min(MOST, records.counts(0, 0)[0])
    seen = np.asarray(images.as_tensor())[:count]
    pixels = np.clip(np.rint(seen * rules.STD + rules.MEAN), 0, 255).astype(np.uint8)
    indices = [int(label) for label in np.asarray(labels.as_tensor())[:count, 0]]
    names = packing_list.read_classes(pathlib.Path(config.data.folder)) or []
    columns, side = math.ceil(math.sqrt(count)), config.data.image_size
    size = columns * (side + GAP) + GAP, math.ceil(count / columns) * (side + GAP + LINE) + GAP
    picture = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(picture)
    for number, (image, label) in enumerate(zip(pixels, indices, strict=True)):
        row, column = divmod(number, columns)
        x, y = GAP + column * (side + GAP), GAP + row * (side + GAP + LINE)
        picture.paste(Image.fromarray(image), (x, y))
        pen.text((x, y + side + 1), f"{label} {names[label] if label < len(names) else ''}", fill="black")
    stream, about = io.BytesIO(), PngImagePlugin.PngInfo()
    about.add_text("Software", files.MARK)
    picture.save(stream, "png", pnginfo=about)
    files.write(output, stream.getvalue())
    return ShownBatch(output, indices, float(seen.min()), float(seen.max()))

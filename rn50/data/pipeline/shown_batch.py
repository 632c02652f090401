"""A picture of one training batch as the network sees it, with its labels (``rn50 data show``)."""

import io
import math
import pathlib
from typing import NamedTuple

import numpy as np

from rn50 import files
from rn50.benchmark import rules
from rn50.data.pipeline import dali
from rn50.data.pipeline.batches import BatchFormat
from rn50.data.pipeline.record_set import RecordSet
from rn50.errors import UserError
from rn50.settings.config import Config

MOST = 64
"""Most images of a picture."""
GAP, LINE = 4, 16
"""Pixels between two images, side by side and one below the other, where the label stands."""


class Drawn(NamedTuple):
    """A picture of a batch."""

    file: str
    """The picture."""
    labels: list[int]
    """The label of each image, row by row."""
    mean: tuple[float, ...]
    """The mean of red, green and blue that is taken off the pixels, 0 to 255, before the network."""
    std: tuple[float, ...]
    """The standard deviation by which the rest is divided."""


def draw(config: Config, seed: int, output: pathlib.Path) -> Drawn:
    """Draw the first batch of rank 0, which DALI makes on the CPU, with its normalisation undone.

    Raises UserError if the data cannot be read or the picture cannot be written.
    """
    from PIL import Image, ImageDraw, PngImagePlugin

    if output.suffix.lower() != ".png":
        raise UserError(f"--output {output}", "the name does not end in .png", "give it such a name")
    records, on_cpu = RecordSet(config, "train", config.ranks), BatchFormat(None, "HWC", False)
    dali.prepare(config, on_cpu)
    try:
        outputs = dali.build(config, "train", 0, config.ranks, seed, on_cpu).run()
    except RuntimeError as error:
        raise dali.fault(records, error) from error
    seen, labels = (np.asarray(made.as_tensor())[: min(MOST, records.counts(0, 0)[0])] for made in outputs)
    pixels = np.clip(np.rint(seen * rules.STD + rules.MEAN), 0, 255).astype(np.uint8)
    shown, columns = labels[:, 0].astype(int).tolist(), math.ceil(math.sqrt(len(labels)))
    width, height = config.data.image_size + GAP, config.data.image_size + LINE
    picture = Image.new("RGB", (columns * width, math.ceil(len(labels) / columns) * height), "white")
    for place, label in enumerate(shown):
        corner = place % columns * width, place // columns * height
        picture.paste(Image.fromarray(pixels[place]), corner)
        ImageDraw.Draw(picture).text((corner[0], corner[1] + height - LINE), str(label), fill="black")
    stream, about = io.BytesIO(), PngImagePlugin.PngInfo()
    about.add_text("Software", files.MARK)
    picture.save(stream, "png", pnginfo=about)
    files.write(output, stream.getvalue())
    return Drawn(str(output), shown, rules.MEAN, rules.STD)

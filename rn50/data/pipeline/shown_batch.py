"""``rn50 data show``: a picture of a training batch, with its labels, as the network receives it."""

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

LARGEST_NUMBER = 64
"""Largest number of images in a picture."""
GAP, LINE = 4, 16
"""Pixels to the right of an image, and pixels below it for its label."""


class Drawn(NamedTuple):
    """A picture of a batch."""

    file: str
    """The picture."""
    labels: list[int]
    """The label of each image, row by row."""
    mean: tuple[float, ...]
    """The means of red, green and blue, which are subtracted from the pixels, 0 to 255."""
    std: tuple[float, ...]
    """The standard deviations of red, green and blue, by which the differences are divided."""


def draw(config: Config, seed: int, output: pathlib.Path) -> Drawn:
    """Draw the first batch of rank 0 into the PNG file ``output``. DALI prepares the batch on the CPU; its
    normalisation is undone.

    Raises UserError if the data cannot be read or the picture cannot be written.
    """
    from PIL import Image, ImageDraw, PngImagePlugin

    if output.suffix.lower() != ".png":
        raise UserError(f"--output {output}", "the name does not end in .png", "give it such a name")
    records = RecordSet(config, "train", config.ranks)
    on_cpu = BatchFormat(None, "HWC", False)  # no GPU, channels last, float32
    dali.prepare(config, on_cpu)
    try:
        outputs = dali.build(config, "train", 0, config.ranks, seed, on_cpu).run()
    except RuntimeError as error:
        raise dali.fault(records, error) from error
    # The real images of batch 0 of rank 0; copies pad a batch that the data set cannot fill.
    number = min(LARGEST_NUMBER, records.counts(0, 0)[0])
    # Images (number, S, S, 3) and labels (number, 1).
    inputs, label_column = (np.asarray(tensors.as_tensor())[:number] for tensors in outputs)
    pixels = np.clip(np.rint(inputs * rules.STD + rules.MEAN), 0, 255).astype(np.uint8)
    labels = label_column[:, 0].astype(int).tolist()
    columns = math.ceil(math.sqrt(number))
    width, height = config.data.image_size + GAP, config.data.image_size + LINE
    picture = Image.new("RGB", (columns * width, math.ceil(number / columns) * height), "white")
    for index, label in enumerate(labels):
        left, top = index % columns * width, index // columns * height
        picture.paste(Image.fromarray(pixels[index]), (left, top))
        ImageDraw.Draw(picture).text((left, top + height - LINE), str(label), fill="black")
    stream, about = io.BytesIO(), PngImagePlugin.PngInfo()
    about.add_text("Software", files.MARK)  # ``files.write`` replaces only pictures with this mark
    picture.save(stream, "png", pnginfo=about)
    files.write(output, stream.getvalue())
    return Drawn(str(output), labels, rules.MEAN, rules.STD)

"""``rn50 data show``: a picture of a training batch, with its labels, as the network receives it."""

import io
import math
import pathlib
from collections.abc import Sequence
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
    class_names: list[str]
    """The name of the class of each image; the label if it has none."""
    mean: tuple[float, ...]
    """The means of red, green and blue, which are subtracted from the pixels, 0 to 255."""
    std: tuple[float, ...]
    """The standard deviations of red, green and blue, by which the differences are divided."""


def draw(config: Config, seed: int, output: pathlib.Path) -> Drawn:
    """Draw the first batch of rank 0 into the PNG file ``output``. DALI prepares the batch on the CPU; its
    normalisation is undone.

    Raises UserError if the data cannot be read or the picture cannot be written.
    """
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
    name_of = dict(enumerate(packing_list.class_names(pathlib.Path(config.data.folder), config.data.classes)))
    names = [name_of.get(label, str(label)) for label in labels]  # a bad record may have another label
    write(output, list(pixels), names)
    return Drawn(str(output), labels, names, rules.MEAN, rules.STD)


def write(file: pathlib.Path, images: Sequence[np.ndarray], captions: Sequence[str]) -> None:
    """Write images, uint8 (S, S, 3), as rows of one PNG picture, each with its caption below. Raises
    UserError if the file cannot be written or its name does not end in .png."""
    from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

    if file.suffix.lower() != ".png":
        raise UserError(file, "the name does not end in .png", "give it such a name")
    size = len(images[0])
    font = ImageFont.load_default()
    width = max(size, *(math.ceil(font.getlength(caption)) for caption in captions)) + GAP
    height = size + LINE
    columns = math.ceil(math.sqrt(len(images)))
    picture = Image.new("RGB", (columns * width, math.ceil(len(images) / columns) * height), "white")
    for index, (image, caption) in enumerate(zip(images, captions, strict=True)):
        left, top = index % columns * width, index // columns * height
        picture.paste(Image.fromarray(image), (left, top))
        ImageDraw.Draw(picture).text((left, top + size), caption, fill="black", font=font)
    stream, about = io.BytesIO(), PngImagePlugin.PngInfo()
    about.add_text("Software", files.MARK)  # ``files.write`` replaces only pictures with this mark
    picture.save(stream, "png", pnginfo=about)
    files.write(file, stream.getvalue())

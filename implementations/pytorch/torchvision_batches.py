"""Batches that torchvision decodes, with nvJPEG on a GPU, for machines without DALI: INPUT_LIBRARY=torchvision."""

from typing import Any, Iterator, List, NamedTuple, Sequence

import numpy as np
import torch

from implementations.pytorch import crop_operations
from implementations.pytorch.input_pipeline import device_of
from implementations.pytorch.loader_batches import Drawn, LoaderBatches, Records
from implementations.pytorch.torchvision_decoder import ASKED_BY, Decoder, Refusals
from implementations.pytorch.torchvision_package import torchvision
from rn50.data import jpeg
from rn50.data.pipeline import crops
from rn50.data.pipeline.batches import Batch, BatchFormat, Split
from rn50.errors import UserError
from rn50.settings.config import Config
from rn50.terminal import say


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
        # nvJPEG does not decode CMYK and PNG. Pillow gets a truncated image, so that it is refused on every device.
        for_device = header.components in (1, 3) and jpeg.has_end(image, header)
        return Encoded(np.frombuffer(image, np.uint8), len(image), drawn.position, for_device, crop.part,
                       positions(crop, self._data.image_size))

    def _batch(self, images: Sequence[Encoded]) -> Encoded:
        data, *others, windows = zip(*images)
        return Encoded(torch.from_numpy(np.concatenate(data)), *map(torch.tensor, others), torch.from_numpy(np.array(windows)))


def positions(crop: crops.Crop, size: int) -> List[List[float]]:
    """Return where in ``crop.part`` the first of ``size`` output columns lies and how far apart they are, then the same of rows.

    The columns of a mirrored crop go from right to left.
    """
    window = crop.window
    right, across, down = window.left + window.width, window.width / size, window.height / size
    columns = [right - across / 2 - 0.5, -across] if crop.mirrored else [window.left + across / 2 - 0.5, across]
    return [columns, [window.top + down / 2 - 0.5, down]]


def prepare(device: torch.device) -> None:
    """Start the decoder of ``device``. Raises UserError if there is none."""
    package = torchvision(ASKED_BY)
    image = package.io.encode_jpeg(torch.zeros(3, 16, 16, dtype=torch.uint8))
    try:
        package.io.decode_jpeg([image], package.io.ImageReadMode.RGB, device)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        remedy = f"install the torchvision that is made for PyTorch {torch.__version__}, or set INPUT_LIBRARY=dataloader"
        raise UserError(ASKED_BY, f"torchvision {package.__version__} does not decode on {device} ({reason})", remedy) from error


class TorchvisionBatches(LoaderBatches):
    """The batches of one split, read by processes of PyTorch's DataLoader, and decoded, cropped and resized on the device."""

    records = EncodedRecords

    def __init__(self, config: Config, split: Split, communicator: Any, seed: int, form: BatchFormat):
        torchvision(ASKED_BY)
        self._stream = None if form.device_id is None else torch.cuda.Stream(device_of(form))
        self._split, self._refused_batches, self._refused_images = split, 0, 0
        super().__init__(config, split, communicator, seed, form)
        self._decode = Decoder(self._device, self._records.undecodable)

    def epoch(self) -> Iterator[Batch]:
        """See ``LoaderBatches``. A warning after the pass counts what the decoder refused in it."""
        self._refused_batches = self._refused_images = 0
        yield from super().epoch()
        if self._refused_batches:
            self._warn(f"{self._refused_batches} of {self._set.batches} batches of this pass were decoded in parts, and "
                       f"{self._refused_images} images of them by Pillow")

    def _count(self, refused: Refusals) -> None:
        if refused.reason is None:
            return
        if not self._refused_batches:
            self._warn(f"the decoder refuses a batch ({refused.reason}); such a batch is decoded in ever smaller parts, which is "
                       "slow")
        self._refused_batches += 1
        self._refused_images += refused.images

    def _warn(self, what: str) -> None:
        say(f"warning: {ASKED_BY}: rank {self._rank}, {self._split}: {what}", err=True)

    def _images(self, loaded: Encoded) -> torch.Tensor:
        if self._stream is None:
            return self._cropped(loaded)
        # nvJPEG writes in a stream of its own, which does not wait for kernels that still read its output memory. So that memory
        # comes from this stream only, when nothing runs on it. Training runs at the same time.
        self._stream.synchronize()
        with torch.cuda.stream(self._stream):
            images = self._cropped(loaded)
        training = torch.cuda.current_stream(self._device)
        training.wait_stream(self._stream)
        images.record_stream(training)
        return images

    def _cropped(self, batch: Encoded) -> torch.Tensor:
        """Return the normalised result of ``crops.cut`` for each image, in the type of the batches."""
        images = batch.images.split(batch.sizes.tolist())
        # Before the crops, whose temporary memory nvJPEG could get while their kernels are queued.
        decoded = self._decode(images, batch.for_device.tolist(), batch.positions.tolist())
        self._count(self._decode.refusals)
        size = self._config.data.image_size
        made = torch.empty(len(decoded), size, size, 3, dtype=self._dtype, device=self._device)
        crop_operations.cut(decoded, batch.parts, batch.windows, self._mean, self._std, made)
        return made

    def _normalised(self, images: torch.Tensor) -> torch.Tensor:
        return images

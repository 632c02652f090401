"""Batches that torchvision decodes, with nvJPEG on a GPU, for machines without DALI: INPUT_LIBRARY=torchvision."""

from typing import Any, Iterator, List, NamedTuple, Sequence

import numpy as np
import torch
from torch.nn import functional

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
    """The windows in these parts in the form of ``affine_grid``, with mirroring, float32 (B, 2, 3)."""


class EncodedRecords(Records):
    """Reads records and draws their crops: (Encoded, label), or a line with the fault of the record."""

    def _prepared(self, image: bytes, drawn: Drawn) -> Encoded:
        crop = self._crop(*crops.size_of(image), drawn)
        header = jpeg.read_header(image)
        # nvJPEG does not decode CMYK and PNG. Pillow gets a truncated image, so that it is refused on every device.
        for_device = header.components in (1, 3) and jpeg.has_end(image, header)
        return Encoded(np.frombuffer(image, np.uint8), len(image), drawn.position, for_device, crop.part, _affine(crop))

    def _batch(self, images: Sequence[Encoded]) -> Encoded:
        data, *others, windows = zip(*images)
        return Encoded(torch.from_numpy(np.concatenate(data)), *map(torch.tensor, others), torch.tensor(windows))


def _affine(crop: crops.Crop) -> List[List[float]]:
    """Return the affine map from the square [-1, 1] to the window, in coordinates in which the part is that square."""
    (_, _, width, height), (left, top, w, h) = crop.part, crop.window
    across = -w / width if crop.mirrored else w / width
    return [[across, 0.0, (2 * left + w) / width - 1], [0.0, h / height, (2 * top + h) / height - 1]]


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
        """Return the result of ``crops.cut`` for each image, in float32."""
        size = self._config.data.image_size
        images = batch.images.split(batch.sizes.tolist())
        # Before the grids, whose temporary memory nvJPEG could get while their kernels are queued.
        decoded = self._decode(images, batch.for_device.tolist(), batch.positions.tolist())
        self._count(self._decode.refusals)
        grids = functional.affine_grid(batch.windows.to(self._device), [len(batch.sizes), 3, size, size], align_corners=False)
        made = []
        for image, (x, y, w, h), grid in zip(decoded, batch.parts.tolist(), grids):
            part = image[None, :, y : y + h, x : x + w].float()
            made.append(functional.grid_sample(part, grid[None], padding_mode="border", align_corners=False)[0].permute(1, 2, 0))
        return torch.stack(made).round_()

"""Batches that torchvision decodes, with nvJPEG on a GPU, for machines without DALI: INPUT_LIBRARY=torchvision."""

from typing import Any, Iterator, List, NamedTuple, Sequence

import numpy as np
import torch
from torch.nn import functional

from implementations.pytorch.input_pipeline import device_of
from implementations.pytorch.loader_batches import Drawn, LoaderBatches, Records
from implementations.pytorch.torchvision_package import torchvision
from rn50.data import jpeg
from rn50.data.pipeline import crops
from rn50.data.pipeline.batches import Batch, BatchFormat, Split
from rn50.errors import UserError
from rn50.settings.config import Config
from rn50.terminal import say

ASKED_BY = "INPUT_LIBRARY=torchvision"


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
    io = torchvision(ASKED_BY).io
    try:
        io.decode_jpeg([io.encode_jpeg(torch.zeros(3, 16, 16, dtype=torch.uint8))], io.ImageReadMode.RGB, device)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(ASKED_BY, f"torchvision {torchvision(ASKED_BY).__version__} does not decode on {device} ({reason})",
                        f"install the torchvision that is made for PyTorch {torch.__version__}") from error


class TorchvisionBatches(LoaderBatches):
    """The batches of one split, read by processes of PyTorch's DataLoader, and decoded, cropped and resized on the device."""

    records = EncodedRecords

    def __init__(self, config: Config, split: Split, communicator: Any, seed: int, form: BatchFormat):
        self._io = torchvision(ASKED_BY).io
        self._stream = None if form.device_id is None else torch.cuda.Stream(device_of(form))
        self._split, self._one_by_one, self._refused = split, 0, 0
        super().__init__(config, split, communicator, seed, form)

    def epoch(self) -> Iterator[Batch]:
        """See ``LoaderBatches``. A warning after the pass counts what the decoder refused in it."""
        self._one_by_one = self._refused = 0
        yield from super().epoch()
        if self._one_by_one:
            self._warn(f"{self._one_by_one} of {self._set.batches} batches of this pass were decoded one by one, and "
                       f"{self._refused} images of them by Pillow")

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
        decoded = self._decoded(batch)  # before the grids, whose temporary memory nvJPEG could get while their kernels are queued
        grids = functional.affine_grid(batch.windows.to(self._device), [len(batch.sizes), 3, size, size], align_corners=False)
        made = []
        for image, (x, y, w, h), grid in zip(decoded, batch.parts.tolist(), grids):
            part = image[None, :, y : y + h, x : x + w].float()
            made.append(functional.grid_sample(part, grid[None], padding_mode="border", align_corners=False)[0].permute(1, 2, 0))
        return torch.stack(made).round_()

    def _decoded(self, batch: Encoded) -> List[torch.Tensor]:
        """Return every image on the device: uint8 (3, H, W)."""
        images = list(batch.images.split(batch.sizes.tolist()))
        for_device = batch.for_device.nonzero().flatten().tolist()
        decoded = dict(zip(for_device, self._on_device([images[index] for index in for_device])))
        for index, position in enumerate(batch.positions.tolist()):
            if decoded.get(index) is None:
                decoded[index] = self._by_pillow(images[index], position)
        return [decoded[index] for index in range(len(images))]

    def _on_device(self, images: List[torch.Tensor]) -> List[Any]:
        """Decode images on the device, with None for each that its decoder refuses.

        The decoder does not report which of several it refuses, so they are then decoded one by one.
        """
        if not images:
            return []
        try:
            return self._decode(images)
        except RuntimeError as error:
            if not self._one_by_one:
                reason = next(iter(str(error).strip().splitlines()), "it does not say why")
                self._warn(f"the decoder refuses a batch ({reason}); such a batch is decoded one by one, which is slow")
            self._one_by_one += 1
            return [self._alone(image) for image in images]

    def _alone(self, image: torch.Tensor) -> Any:
        try:
            return self._decode([image])[0]
        except RuntimeError:
            self._refused += 1
            return None

    def _decode(self, images: List[torch.Tensor]) -> Any:
        return self._io.decode_jpeg(images, self._io.ImageReadMode.RGB, self._device)

    def _by_pillow(self, image: torch.Tensor, position: int) -> torch.Tensor:
        encoded = image.numpy().tobytes()
        try:
            pixels = crops.decode(encoded)
        except Exception as error:  # of many types, see Records
            raise UserError(self._records.undecodable(position, encoded, error)) from error
        return torch.tensor(pixels, device=self._device).permute(2, 0, 1)

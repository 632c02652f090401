"""Batches that torchvision decodes, with nvJPEG on a GPU, where there is no DALI: INPUT_LIBRARY=torchvision."""

from typing import Any, List, NamedTuple, Sequence

import numpy as np
import torch
from torch.nn import functional

from implementations.pytorch.loader_batches import Drawn, LoaderBatches, Records
from implementations.pytorch.torchvision_package import torchvision
from rn50.data import jpeg
from rn50.data.pipeline import crops
from rn50.errors import UserError
from rn50.settings.config import Config

ASKED_BY = "INPUT_LIBRARY=torchvision"


class Encoded(NamedTuple):
    """A batch that is not decoded yet; or, with a field for each, what is known of one of its images."""

    images: Any
    """All bytes, one image after the other, uint8 (N,)."""
    sizes: Any
    """The bytes of each, (B,)."""
    positions: Any
    """Their records in the file, (B,)."""
    for_device: Any
    """Whether the device's decoder gets an image, (B,); the others are for Pillow."""
    parts: Any
    """``crops.Crop.part``, int64 (B, 4)."""
    windows: Any
    """The windows of these parts as ``affine_grid`` takes them, mirrored where they are to be, float32 (B, 2, 3)."""


class EncodedRecords(Records):
    """Records read, and their crops drawn: (Encoded, label); or a line on what is wrong with one."""

    def _prepared(self, image: bytes, drawn: Drawn) -> Encoded:
        crop = self._crop(*crops.size_of(image), drawn)
        header = jpeg.read_header(image)
        # CMYK and PNG are beyond nvJPEG; what is cut short Pillow refuses on every device.
        for_device = header.components in (1, 3) and jpeg.has_end(image, header)
        return Encoded(np.frombuffer(image, np.uint8), len(image), drawn.position, for_device, crop.part, _affine(crop))

    def _batch(self, images: Sequence[Encoded]) -> Encoded:
        data, *others, windows = zip(*images)
        return Encoded(torch.from_numpy(np.concatenate(data)), *map(torch.tensor, others), torch.tensor(windows))


def _affine(crop: crops.Crop) -> List[List[float]]:
    """The window in coordinates in which its part reaches from -1 to 1, as a map of the same square."""
    (_, _, width, height), (left, top, w, h) = crop.part, crop.window
    across = -w / width if crop.mirrored else w / width
    return [[across, 0.0, (2 * left + w) / width - 1], [0.0, h / height, (2 * top + h) / height - 1]]


def prepare(device: torch.device) -> None:
    """Starts the decoder of ``device``. Raises UserError where there is none."""
    io = torchvision(ASKED_BY).io
    try:
        io.decode_jpeg([io.encode_jpeg(torch.zeros(3, 16, 16, dtype=torch.uint8))], io.ImageReadMode.RGB, device)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(ASKED_BY, f"torchvision {torchvision(ASKED_BY).__version__} does not decode on {device} ({reason})",
                        f"install the torchvision that is made for PyTorch {torch.__version__}") from error


class TorchvisionBatches(LoaderBatches):
    """One of the two sets, read by processes of PyTorch's DataLoader, decoded, cropped and resized on the device."""

    records = EncodedRecords

    def __init__(self, config: Config, training: bool, communicator: Any, seed: int, device: torch.device, precision: str):
        self._io = torchvision(ASKED_BY).io
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        super().__init__(config, training, communicator, seed, device, precision)

    def _images(self, loaded: Encoded) -> torch.Tensor:
        if self._stream is None:
            return self._cropped(loaded)
        # nvJPEG writes in a stream of its own, which does not wait for kernels that still read the memory it is given: so it is
        # given that of this stream alone, when nothing runs there. Training goes on beside it.
        self._stream.synchronize()
        with torch.cuda.stream(self._stream):
            images = self._cropped(loaded)
        training = torch.cuda.current_stream(self._device)
        training.wait_stream(self._stream)
        images.record_stream(training)
        return images

    def _cropped(self, batch: Encoded) -> torch.Tensor:
        """What ``crops.cut`` makes of each image, in float32."""
        size = self._config.data.image_size
        grids = functional.affine_grid(batch.windows.to(self._device), [len(batch.sizes), 3, size, size], align_corners=False)
        made = []
        for image, (x, y, w, h), grid in zip(self._decoded(batch), batch.parts.tolist(), grids):
            part = image[None, :, y : y + h, x : x + w].float()
            made.append(functional.grid_sample(part, grid[None], padding_mode="border", align_corners=False)[0].permute(1, 2, 0))
        return torch.stack(made).round_()

    def _decoded(self, batch: Encoded) -> List[torch.Tensor]:
        """Every image on the device: uint8 (3, H, W)."""
        images = list(batch.images.split(batch.sizes.tolist()))
        for_device = batch.for_device.nonzero().flatten().tolist()
        decoded = dict(zip(for_device, self._on_device([images[index] for index in for_device])))
        for index, position in enumerate(batch.positions.tolist()):
            if decoded.get(index) is None:
                decoded[index] = self._by_pillow(images[index], position)
        return [decoded[index] for index in range(len(images))]

    def _on_device(self, images: List[torch.Tensor]) -> List[Any]:
        """None in place of what the device's decoder refuses. It says not which of several that is."""
        if not images:
            return []
        try:
            return self._io.decode_jpeg(images, self._io.ImageReadMode.RGB, self._device)
        except RuntimeError:
            return [None] if len(images) == 1 else [self._on_device([image])[0] for image in images]

    def _by_pillow(self, image: torch.Tensor, position: int) -> torch.Tensor:
        encoded = image.numpy().tobytes()
        try:
            pixels = crops.decode(encoded)
        except Exception as error:  # of many types, see there
            raise UserError(self._records.undecodable(position, encoded, error)) from error
        return torch.tensor(pixels, device=self._device).permute(2, 0, 1)

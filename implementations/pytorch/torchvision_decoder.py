"""Decode batches of JPEGs on a device with torchvision, and with Pillow what its decoder refuses.

On a GPU torchvision (read in 0.26 to 0.28: decode_jpegs_cuda.cpp) asks nvJPEG for the hardware decoder. It
takes the GPU's cores where there is none, as in a container without the driver capability "video", and for
each image that the hardware does not support, such as a progressive one. It offers no choice between the two,
and does not say which image of a batch it refuses.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from implementations.pytorch.torchvision_package import torchvision
from rn50.data.pipeline import crops
from rn50.errors import UserError

ASKED_BY = "INPUT_LIBRARY=torchvision"


class Refusals(NamedTuple):
    """Refusals of the device's decoder in one batch."""

    reason: str | None = None
    """Reason why it refused the whole batch; None: it did not."""
    images: int = 0
    """Images that it also refused on their own."""


class Decoder:
    """Decodes batches on one device."""

    def __init__(self, device: torch.device, undecodable: Callable[[int, bytes, Exception], str]):
        """``undecodable`` returns the error line for a record, given its position, its image and Pillow's
        error."""
        self._io = torchvision(ASKED_BY).io
        self._device, self._undecodable = device, undecodable
        self.refusals = Refusals()
        """Refusals in the latest batch."""

    def __call__(
        self, images: Sequence[torch.Tensor], for_device: Sequence[bool], positions: Sequence[int]
    ) -> list[torch.Tensor]:
        """Return every image on the device: uint8 (3, H, W), on a GPU contiguous.

        Pillow decodes those that are not ``for_device``. ``positions`` are the records' positions in their
        file. Raises UserError, which names the record, for an image that Pillow does not decode either.
        """
        self.refusals = Refusals()
        chosen = [index for index, given in enumerate(for_device) if given]
        decoded = dict(zip(chosen, self._on_device([images[index] for index in chosen]), strict=False))
        for index, position in enumerate(positions):
            if decoded.get(index) is None:
                decoded[index] = self._by_pillow(images[index], position)
        return [decoded[index] for index in range(len(images))]

    def decode(self, images: list[torch.Tensor]) -> Any:
        """Decode all images on the device. Raises RuntimeError if the decoder refuses any of them; it does
        not say which."""
        return self._io.decode_jpeg(images, self._io.ImageReadMode.RGB, self._device) if images else []

    def _on_device(self, images: list[torch.Tensor]) -> list[Any]:
        """Decode images on the device. Return None for each that the decoder refuses, found by halving."""
        try:
            return list(self.decode(images))
        except RuntimeError as error:
            reason = next(iter(str(error).strip().splitlines()), "it does not say why")
        self.refusals = Refusals(self.refusals.reason or reason, self.refusals.images + (len(images) == 1))
        half = len(images) // 2
        return [*self._on_device(images[:half]), *self._on_device(images[half:])] if half else [None]

    def _by_pillow(self, image: torch.Tensor, position: int) -> torch.Tensor:
        encoded = image.numpy().tobytes()
        try:
            pixels = crops.decode(encoded)
        except Exception as error:  # of many types, see Records
            raise UserError(self._undecodable(position, encoded, error)) from error
        return torch.tensor(pixels).permute(2, 0, 1).contiguous().to(self._device)

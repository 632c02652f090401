"""Batches from PyTorch's DataLoader, for INPUT_LIBRARY=dataloader, which machines without DALI use. The base
class decodes and counts samples; this file copies each batch to the rank's device."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader

from implementations.pytorch.device import device_of
from rn50.benchmark import rules
from rn50.data.pipeline import loader_batches
from rn50.data.pipeline.batches import BatchFormat, Split
from rn50.settings.config import Config


class LoaderBatches(loader_batches.LoaderBatches):
    """Batches of images (B, channels, S, S), channels-last in memory, and labels (B,) int64."""

    def __init__(
        self,
        config: Config,
        split: Split,
        communicator: Any,
        seed: int,
        batch_format: BatchFormat,
        epoch: int,
    ):
        # Set first what ``_load`` uses, which the base class calls.
        self._channels, self._device = batch_format.channels, device_of(batch_format)
        self._dtype = getattr(torch, batch_format.dtype)
        super().__init__(config, split, communicator, seed, batch_format, epoch)
        self._mean = torch.tensor(rules.MEAN, device=self._device)
        self._std = torch.tensor(rules.STD, device=self._device)

    def _load(self, **options: Any) -> Iterator[Any]:
        collate, pinned = self._records.collate, self._device.type == "cuda"

        def tensors(samples: list[Any]) -> list[torch.Tensor]:
            """Return images and labels of a batch as tensors, which a worker passes on in shared memory."""
            return list(map(torch.from_numpy, collate(samples)))

        return iter(DataLoader(collate_fn=tensors, pin_memory=pinned, **options))

    def _placed(self, prepared: list[torch.Tensor], index: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = prepared
        classes = labels.long().to(self._device, non_blocking=True)
        pixels = images.to(self._device, non_blocking=True).float()
        pixels = pixels.sub_(self._mean).div_(self._std).to(self._dtype)
        # Kernels of tensor cores take pixels with a fourth channel, of zeros.
        if self._channels > 3:
            pixels = functional.pad(pixels, (0, self._channels - 3))
        return pixels.permute(0, 3, 1, 2), classes

"""Batches from PyTorch's DataLoader, for INPUT_LIBRARY=dataloader, which machines without DALI use. The base
class decodes and counts samples; this file copies each batch to the rank's device."""

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader

from implementations.pytorch.device import device_of
from rn50.benchmark import rules
from rn50.data.pipeline import loader_batches


class LoaderBatches(loader_batches.LoaderBatches):
    """Batches of images (B, channels, S, S), channels-last in memory, and labels (B,) int64."""

    @functools.cached_property
    def _mean_and_std(self) -> list[torch.Tensor]:
        """Mean and standard deviation of the channels, on the rank's device."""
        device = device_of(self._batch_format)
        return [torch.tensor(values, device=device) for values in (rules.MEAN, rules.STD)]

    def _load(self, **options: Any) -> Iterator[Any]:
        collate, pinned = self._records.collate, device_of(self._batch_format).type == "cuda"

        def tensors(samples: list[Any]) -> list[torch.Tensor]:
            """Return images and labels of a batch as tensors, which a worker passes on in shared memory."""
            return list(map(torch.from_numpy, collate(samples)))

        return iter(DataLoader(collate_fn=tensors, pin_memory=pinned, **options))

    def _placed(self, prepared: list[torch.Tensor], index: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = prepared
        mean, std = self._mean_and_std
        classes = labels.long().to(mean.device, non_blocking=True)
        pixels = images.to(mean.device, non_blocking=True).float()
        pixels = pixels.sub_(mean).div_(std).to(getattr(torch, self._batch_format.dtype))
        # Kernels of tensor cores take pixels with a fourth channel, of zeros.
        if self._batch_format.channels > 3:
            pixels = functional.pad(pixels, (0, self._batch_format.channels - 3))
        return pixels.permute(0, 3, 1, 2), classes

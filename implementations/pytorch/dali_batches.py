"""Batches from DALI in PyTorch's tensors, for INPUT_LIBRARY=dali. The base class runs DALI's pipeline and
counts samples; this file copies each batch to the rank's device."""

from typing import Any

import torch
from nvidia.dali.plugin.pytorch import feed_ndarray

from implementations.pytorch.device import device_of
from implementations.pytorch.look_back import LookBack
from rn50.data.pipeline import dali_batches
from rn50.data.pipeline.batches import BatchFormat


class DaliBatches(dali_batches.DaliBatches):
    """Batches of images (B, channels, S, S), channels-last in memory, and labels (B,) int64."""

    def _allocate(self, batch_format: BatchFormat, shape: tuple[int, ...]) -> Any:
        """Return the buffers into which ``_copied`` copies a batch: images of ``shape``, (B, S, S, channels),
        and labels (B, 1), float32. The base class calls it once for each size of images."""
        device = device_of(batch_format)
        self._stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        self._look_back = LookBack(device)
        self._wrong = torch.zeros((), device=device, dtype=torch.int64)
        # One buffer is enough. On a GPU a copy and the step before it are in one stream, so that the copy
        # begins when the step has read the previous batch.
        images = torch.empty(shape, dtype=getattr(torch, batch_format.dtype), device=device)
        return images, torch.empty(shape[0], 1, device=device)

    def _copied(self, outputs: Any, arrays: Any, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Copy DALI's ``outputs``, images and labels, to the device, and return them as a batch."""
        for output, tensor in zip(outputs, arrays, strict=False):
            feed_ndarray(output.as_tensor(), tensor, cuda_stream=self._stream)
        images, labels = arrays[0], arrays[1].view(-1)
        # A label that is not a class index would stop a GPU. It is clamped and counted here, and
        # ``check_labels`` reports it after the epoch.
        classes = labels.nan_to_num(-1).clamp(0, self._classes - 1).long()
        self._wrong += (labels != classes).sum()
        self._look_back.mark()
        # A view (B, channels, S, S) of the buffer (B, S, S, channels).
        return images.permute(0, 3, 1, 2), classes

    def _wrong_labels(self) -> int:
        """Return the number of labels so far that are not a class index."""
        with self._look_back.reading():  # does not wait for the step on the latest batch
            return int(self._wrong)

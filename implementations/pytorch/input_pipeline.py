"""Batches for the training loop: from DALI, PyTorch's DataLoader or torchvision, or synthetic ones held in memory."""

from typing import Iterator, NamedTuple

import torch

from rn50.data.pipeline.batches import BatchFormat
from rn50.settings.config import Config


class Batch(NamedTuple):
    """Images (B, 3, S, S), channels-last in memory, labels (B,) int64, and the number of samples that count."""

    images: torch.Tensor
    labels: torch.Tensor
    samples: int
    global_samples: int
    """Samples of this step over all ranks."""


def batch_format(device: torch.device, precision: str) -> BatchFormat:
    """Return the form of the images that DALI has to make."""
    return BatchFormat(device.index if device.type == "cuda" else None, "HWC", precision == "float16")


class SyntheticBatches:
    """One full random batch, held on the device and repeated."""

    wait_seconds = 0.0
    waiting = False

    def __init__(self, config: Config, ranks: int, device: torch.device, precision: str):
        size, batch_size = config.data.image_size, config.hyperparameters.batch_size
        random = torch.Generator().manual_seed(0)
        images = torch.randn(batch_size, size, size, 3, generator=random)
        labels = torch.randint(config.data.classes, (batch_size,), generator=random)
        dtype = torch.float16 if precision == "float16" else torch.float32
        self._batch = Batch(images.to(device, dtype).permute(0, 3, 1, 2), labels.to(device), batch_size, batch_size * ranks)

    def epoch(self) -> Iterator[Batch]:
        """Yield the one batch without end."""
        while True:
            yield self._batch

    def drain(self) -> None:
        """Do nothing: no batch is prepared ahead."""

    def check_labels(self) -> None:
        """Do nothing: the labels are valid."""

"""A synthetic batch held in memory, and the device on which any batches are made."""

import torch

from rn50.data.pipeline.batches import Batch, Batches, BatchFormat, RepeatedBatch
from rn50.settings.config import Config


def device_of(form: BatchFormat) -> torch.device:
    """Return the device of batches of a form."""
    return torch.device("cpu") if form.device_id is None else torch.device("cuda", form.device_id)


def synthetic(config: Config, ranks: int, form: BatchFormat) -> Batches:
    """Return a full random batch, held on the device and repeated: images (B, channels, S, S),
    channels-last in memory."""
    batch_size, random = config.hyperparameters.batch_size, torch.Generator().manual_seed(0)
    images = torch.randn(form.shape(batch_size, config.data.image_size), generator=random)
    labels = torch.randint(config.data.classes, (batch_size,), generator=random)
    device, dtype = device_of(form), getattr(torch, form.dtype)
    return RepeatedBatch(
        Batch(images.to(device, dtype).permute(0, 3, 1, 2), labels.to(device), batch_size, batch_size * ranks)
    )

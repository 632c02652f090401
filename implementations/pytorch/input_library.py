"""Batches through the library that INPUT_LIBRARY names; nothing of the others is imported."""

from typing import Any

import torch

from implementations.pytorch.input_pipeline import batch_format
from rn50.data.pipeline import dali
from rn50.settings.config import Config


def prepare(config: Config, device: torch.device, precision: str) -> None:
    """Compile or start what the batches of ``open_batches`` need."""
    if config.input_pipeline.library == "dali":
        dali.prepare(config, batch_format(device, precision))
    elif config.input_pipeline.library == "torchvision":
        from implementations.pytorch import torchvision_batches

        torchvision_batches.prepare(device)


def open_batches(config: Config, training: bool, communicator: Any, seed: int, device: torch.device, precision: str) -> Any:
    """Return the batches of a split."""
    if config.input_pipeline.library == "dali":
        from implementations.pytorch.dali_batches import DaliBatches as Batches
    elif config.input_pipeline.library == "torchvision":
        from implementations.pytorch.torchvision_batches import TorchvisionBatches as Batches
    else:
        from implementations.pytorch.loader_batches import LoaderBatches as Batches
    return Batches(config, training, communicator, seed, device, precision)

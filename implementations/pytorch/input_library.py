"""Batches through the library that INPUT_LIBRARY names; nothing of the others is imported."""

from typing import Any

from implementations.pytorch.input_pipeline import device_of
from rn50.data.pipeline import dali
from rn50.data.pipeline.batches import Batches, BatchFormat, Split
from rn50.settings.config import Config


def prepare(config: Config, form: BatchFormat) -> None:
    """Compile or start what the batches of ``open_batches`` need."""
    if config.input_pipeline.library == "dali":
        dali.prepare(config, form)
    elif config.input_pipeline.library == "torchvision":
        from implementations.pytorch import torchvision_batches

        torchvision_batches.prepare(device_of(form))


def open_batches(config: Config, split: Split, communicator: Any, seed: int, form: BatchFormat) -> Batches:
    """Return the batches of a split."""
    if config.input_pipeline.library == "dali":
        from implementations.pytorch.dali_batches import DaliBatches

        return DaliBatches(config, split, communicator, seed, form)
    if config.input_pipeline.library == "torchvision":
        from implementations.pytorch.torchvision_batches import TorchvisionBatches

        return TorchvisionBatches(config, split, communicator, seed, form)
    from implementations.pytorch.loader_batches import LoaderBatches

    return LoaderBatches(config, split, communicator, seed, form)

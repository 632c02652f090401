"""Batches through the library that INPUT_LIBRARY names or, with "auto", one that is installed. The other is
not imported."""

from typing import Any

from rn50.data.pipeline import dali
from rn50.data.pipeline.batches import Batches, BatchFormat, Split
from rn50.run import training
from rn50.settings.config import Config


def prepare(config: Config, form: BatchFormat) -> None:
    """Import, compile or start what the batches of ``open_batches`` need. Raises UserError if it is
    missing."""
    if training.input_library(config) == "dali":
        _dali_batches(config)
        dali.prepare(config, form)


def open_batches(config: Config, split: Split, communicator: Any, seed: int, form: BatchFormat) -> Batches:
    """Return the batches of a split."""
    if training.input_library(config) == "dali":
        batches: Batches = _dali_batches(config)(config, split, communicator, seed, form)
        return batches
    from implementations.paddle.loader_batches import LoaderBatches

    return LoaderBatches(config, split, communicator, seed, form)


def _dali_batches(config: Config) -> Any:
    try:
        from implementations.paddle.dali_batches import DaliBatches
    except ImportError as error:
        raise training.without_dali(config, error) from error
    return DaliBatches

"""The library that reads and decodes images for a run, and the batches that a framework makes of them."""

from typing import Any

from rn50 import frameworks
from rn50.data.pipeline import dali
from rn50.data.pipeline.batches import Batches, BatchFormat, Split
from rn50.errors import UserError
from rn50.settings.config import Config


def chosen(config: Config) -> str:
    """Return the library that reads and decodes images: INPUT_LIBRARY, or for "auto" DALI if it can be
    imported."""
    if config.input_pipeline.library != "auto":
        return config.input_pipeline.library
    framework = config.run.framework
    # The implementation first: it prepares what the plugin cannot import by itself.
    modules = (f"implementations.{framework}", f"nvidia.dali.plugin.{framework}")
    if all(map(frameworks.is_importable, modules)):
        return "dali"
    return frameworks.traits(framework).input_libraries[-1]


def prepare(config: Config, batch_format: BatchFormat) -> None:
    """Import, compile or start what the batches of ``open_batches`` need. Raises UserError if it is
    missing."""
    _batches(config)
    if chosen(config) == "dali":
        dali.prepare(config, batch_format)


def open_batches(
    config: Config, split: Split, communicator: Any, seed: int, batch_format: BatchFormat
) -> Batches:
    """Return the batches of a split, from ``dali_batches.py`` or ``loader_batches.py`` of the framework."""
    batches: Batches = _batches(config)(config, split, communicator, seed, batch_format)
    return batches


def _batches(config: Config) -> Any:
    """Return the class of the batches. What reads for the other library is not imported."""
    framework = config.run.framework
    if chosen(config) != "dali":
        return frameworks.module(framework, "loader_batches").LoaderBatches
    try:
        return frameworks.module(framework, "dali_batches").DaliBatches
    except UserError as error:
        remedy = f"{frameworks.traits(framework).install(config.run.device)}, or set INPUT_LIBRARY=auto"
        raise UserError("INPUT_LIBRARY=dali", error.__cause__, remedy) from error

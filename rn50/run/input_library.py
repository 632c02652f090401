"""The library that reads and decodes images for a run, INPUT_LIBRARY: which one it is, and its batches.

``loop.py`` calls ``prepare`` in the warm-up, and ``open_batches`` for each split once the clock runs.
"""

from typing import Any

from rn50 import frameworks
from rn50.data.pipeline import dali
from rn50.data.pipeline.batches import Batches, BatchFormat, Split
from rn50.errors import UserError
from rn50.settings.config import Config


def chosen(config: Config) -> str:
    """Return the library that reads and decodes images: INPUT_LIBRARY. For "auto" return "dali" if DALI can
    be imported, else the last library of the framework's traits."""
    if config.input_pipeline.library != "auto":
        return config.input_pipeline.library
    framework = config.run.framework
    # Import the implementation first: DALI's plugin may need a fix that its ``__init__.py`` makes.
    modules = (f"implementations.{framework}", f"nvidia.dali.plugin.{framework}")
    if all(map(frameworks.is_importable, modules)):
        return "dali"
    return frameworks.traits(framework).input_libraries[-1]


def prepare(config: Config, batch_format: BatchFormat) -> None:
    """Import, compile and start what ``open_batches`` needs, without opening the data set. Raises UserError
    if a package is missing."""
    _batches(config)  # imports the class that ``open_batches`` uses
    if chosen(config) == "dali":
        dali.prepare(config, batch_format)


def open_batches(
    config: Config, split: Split, communicator: Any, seed: int, batch_format: BatchFormat, epoch: int
) -> Batches:
    """Open a split of the data set, for training or validation, and return its batches for this rank.
    ``seed`` is the seed of order, crops and mirroring. ``epoch`` is that of the first pass, which decides the
    size of its images."""
    return _batches(config)(config, split, communicator, seed, batch_format, epoch)


def _batches(config: Config) -> Any:
    """Return the subclass of ``Batches`` for the chosen library, from ``dali_batches.py`` or
    ``loader_batches.py`` of the framework. The other of the two files is not imported."""
    framework = config.run.framework
    if chosen(config) != "dali":
        return frameworks.module(framework, "loader_batches").LoaderBatches
    try:
        return frameworks.module(framework, "dali_batches").DaliBatches
    except UserError as error:
        remedy = f"{frameworks.traits(framework).install(config.run.device)}, or set INPUT_LIBRARY=auto"
        # The cause is the ImportError, which says what is missing.
        raise UserError("INPUT_LIBRARY=dali", error.__cause__, remedy) from error

"""Checks that the GPUs of this machine can make a run, and the error for a GPU whose memory is used up.

``device.py`` of each framework calls ``require_gpus`` and ``require_code``; a timed run is made inside
``full_memory_named``.
"""

import contextlib
from collections.abc import Iterator

from rn50 import frameworks
from rn50.errors import UserError
from rn50.process import OUT_OF_DEVICE_MEMORY
from rn50.run import precision
from rn50.settings.config import Config
from rn50.terminal import counted


def require_gpus(config: Config, gpus: int, remedy: str) -> None:
    """Raise UserError, ending in ``remedy``, unless the framework sees a GPU for each rank of this machine.
    ``gpus`` is the number of GPUs that it sees. Call it before the ranks connect, because connecting takes
    their GPUs."""
    ranks = config.run.ranks_per_node
    if gpus < ranks:
        name = frameworks.traits(config.run.framework).name
        problem = f"{name} sees {counted(gpus, 'GPU')}, DGXNGPU={ranks} asks for more"
        raise UserError("DEVICE=gpu", problem, f"set DEVICE=cpu, or {remedy}")


def require_code(config: Config, capability: tuple[int, int], build: frameworks.Traits | None = None) -> None:
    """Raise UserError unless the framework has code for a GPU of this compute ``capability``, (major, minor),
    and computes on it in PRECISION. ``build`` describes the installed build if its compute capabilities
    differ from those of the framework's traits."""
    traits = build or frameworks.traits(config.run.framework)
    actual = "{}.{}".format(*capability)
    if not traits.runs_on(capability):
        problem = f"{traits.name} has code for compute capability {traits.code}, this GPU has {actual}"
        raise UserError("DEVICE=gpu", problem, "take another FRAMEWORK, see docs/gpus.md")
    name = precision.before_warm_up(config).name
    # A precision without an entry needs no more than this GPU has.
    required = traits.least_capabilities.get(name, capability)
    if capability < required:
        needed = "{}.{}".format(*required)
        problem = f"in {name} {traits.name} needs compute capability {needed}, this GPU has {actual}"
        raise UserError(f"PRECISION={config.run.precision}", problem, "set another PRECISION")


@contextlib.contextmanager
def full_memory_named(config: Config) -> Iterator[None]:
    """In this context, replace an error for lack of GPU memory by a UserError that says to lower
    BATCHSIZE."""
    try:
        yield
    except Exception as error:
        is_used_up = config.run.device == "gpu" and OUT_OF_DEVICE_MEMORY.search(str(error))
        if isinstance(error, UserError) or not is_used_up:
            raise
        images = config.hyperparameters.batch_size
        fewer = max(1, images * 3 // 4 // 8 * 8)  # three quarters, rounded down to a multiple of 8
        problem = f"a GPU's memory is used up ({str(error).strip().splitlines()[0]})"
        recipe = f"a recipe for that (rn50 borrow --suggest --gbs {fewer * config.ranks})"
        remedy = f"lower it, to {fewer} say, with {recipe}, or see in nvidia-smi who else uses the GPU"
        raise UserError(f"BATCHSIZE={images}", problem, remedy) from error

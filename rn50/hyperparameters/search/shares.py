"""Cores of this machine, divided among the workers of a search."""

from rn50.errors import UserError
from rn50.machine import binding, hardware


def of(workers: int, device: str) -> list[tuple[int, ...]]:
    """Return the cores of each worker. Raises UserError if there are too few, or workers would share GPUs."""
    here = hardware.read()
    if workers > here.usable_cpus:
        raise UserError(
            f"--workers {workers}",
            f"this machine gives {here.usable_cpus} cores",
            "give no more workers than that",
        )
    if workers > 1 and device == "gpu":
        raise UserError(
            f"--workers {workers}",
            "several runs would share the GPUs",
            "give every call of the command its own by CUDA_VISIBLE_DEVICES, on this machine or others, "
            "with the same --output",
        )
    return [share.cpus for share in binding.plan(here, workers, near_gpus=False)]

"""The batches that a framework wants of its input pipeline."""

from typing import NamedTuple, Optional


class BatchFormat(NamedTuple):
    """Device, layout and precision of the images."""

    device_id: Optional[int]
    """The GPU that makes the batches; None: the CPU alone makes them."""
    layout: str
    """"CHW" or "HWC"."""
    half_precision: bool

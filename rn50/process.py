"""The process itself: the environment that it was started with, and the memory that it may take."""

import os
import resource
from typing import Mapping

from rn50.errors import UserError

LEAST_MEMORY_MIB = 512
"""With less, the libraries cannot be loaded: they end in a fault, or try again without end."""


def environment() -> Mapping[str, str]:
    """Return the environment of this process; nothing else looks it up."""
    return os.environ


def refuse_little_memory() -> None:
    """Raise UserError where the shell allows this process less than ``LEAST_MEMORY_MIB``."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_MEMORY_MIB << 20:
        raise UserError(f"ulimit -v {limit >> 10}: rn50 needs {LEAST_MEMORY_MIB} MiB of memory at least; raise it, as with "
                        "ulimit -v unlimited")

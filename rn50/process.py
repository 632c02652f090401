"""This process: its environment, its memory limit, and children that end with it."""

import ctypes
import os
import resource
import signal
from typing import Callable, Mapping

from rn50.errors import UserError

PR_SET_PDEATHSIG = 1
"""The name in linux/prctl.h."""
LEAST_MEMORY_MIB = 512
"""With less, the libraries cannot be loaded: they end in a fault, or try again without end."""


def environment() -> Mapping[str, str]:
    """Return the environment of this process; nothing else looks it up."""
    return os.environ


def refuse_little_memory() -> None:
    """Raise UserError where the shell allows this process less than ``LEAST_MEMORY_MIB``."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_MEMORY_MIB << 20:
        raise UserError(f"ulimit -v {limit >> 10}", f"rn50 needs {LEAST_MEMORY_MIB} MiB of memory at least",
                        "raise it, as with ulimit -v unlimited")


def ask_to_end_with_parent(then: Callable[[], object] = lambda: None) -> Callable[[], None]:
    """Return a ``preexec_fn`` with which the kernel sends the child SIGTERM when the calling thread ends, whatever ends it.

    ``then`` is called in the child before it runs its program.
    """
    libc, parent = ctypes.CDLL(None), os.getpid()

    def before_it_runs() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it has gone before the kernel was told
            os._exit(1)
        then()

    return before_it_runs

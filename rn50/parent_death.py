"""Processes that end with the one that started them."""

import ctypes
import os
import signal
from typing import Callable

PR_SET_PDEATHSIG = 1
"""The name in linux/prctl.h."""


def ask_to_end_with_parent(then: Callable[[], object] = lambda: None) -> Callable[[], None]:
    """A ``preexec_fn`` with which the kernel sends the new process SIGTERM when the calling thread ends, whatever ends it.

    ``then`` is called in the new process before it runs its program.
    """
    libc, parent = ctypes.CDLL(None), os.getpid()

    def before_it_runs() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it has gone before the kernel was told
            os._exit(1)
        then()

    return before_it_runs

"""This process and its children: environment variables, memory limit, signals, commands that start Python,
and children that end when this process ends."""

import contextlib
import ctypes
import multiprocessing.util
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rn50.errors import UserError

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""Options of the system call prctl (linux/prctl.h)."""
RANK, SOCKETS, MEMORY = "RN50_RANK", "RN50_RANK_SOCKETS", "RN50_RANK_MEMORY"
"""Environment variables that ``local_launcher`` sets for a rank. RANK is the number of the rank. SOCKETS has
the descriptors of its sockets to ranks 0, 1, ..., separated by commas; its own place is empty. MEMORY is the
descriptor of the shared memory."""
OUT_OF_MEMORY = re.compile(
    "cannot allocate memory|failed to map segment|can't start new thread|bad_alloc", re.IGNORECASE
)
"""Messages of Python, C++ and the dynamic loader for too little memory, in errors other than MemoryError."""
OUT_OF_DEVICE_MEMORY = re.compile("out of memory|ALLOC_FAILED|ResourceExhausted", re.IGNORECASE)
"""Words in errors of PyTorch, MXNet, Paddle, cuDNN and cuBLAS when a GPU's memory is used up."""
LEAST_MEMORY_MIB = 800
"""Least memory that ``ulimit -v`` has to allow. With less, libraries crash while they load, or retry for
ever."""


def environment() -> Mapping[str, str]:
    """Return the environment of this process. No other module of rn50 uses ``os.environ``."""
    return os.environ


def set_default(name: str, value: str) -> None:
    """Set an environment variable of a library if it is unset. Call it before the library is imported."""
    os.environ.setdefault(name, value)


def set_variables(values: Mapping[str, str]) -> None:
    """Set environment variables of a library. Call it before the library reads them."""
    os.environ.update(values)


def python(kind: str, what: str, *arguments: str) -> list[str]:
    """Return the command that runs ``what`` in a new process of this Python: a module (``kind`` "-m") or code
    ("-c").

    The new process does not have the working folder on its path. Otherwise a ``json.py`` in a stranger's
    submission would run in place of Python's own.
    """
    # -P is new in Python 3.11. An older one has the working folder as the first of its path.
    if sys.version_info >= (3, 11):
        return [sys.executable, "-P", kind, what, *arguments]
    run_module = f"import runpy; runpy.run_module({what!r}, run_name='__main__', alter_sys=True)"
    code = f"import sys; del sys.path[0]\n{what if kind == '-c' else run_module}"
    return [sys.executable, "-c", code, *arguments]


def keep_working_folder_off_paths() -> None:
    """Set variables so that no Python process below this one has the working folder on its path, even if a
    library starts it. Each such process finds rn50, even if it is a checkout that is not installed."""
    os.environ["PYTHONSAFEPATH"] = "1"
    paths = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(pathlib.Path(__file__).parents[1])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    # multiprocessing starts its processes with these options: -I leaves the working folder off their paths.
    if sys.version_info < (3, 11):  # which does not know PYTHONSAFEPATH
        multiprocessing.util._args_from_interpreter_flags = lambda: ["-I"]  # type: ignore[attr-defined]


def run(command: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[Any]":
    """Run a command with the options of ``subprocess.run``. The command ends if this process ends."""
    return subprocess.run(command, preexec_fn=ask_to_end_with_parent(), **options)


def memory_limit_kib() -> int | None:
    """Return the limit of this process's memory in KiB, which ``ulimit -v`` sets; None: unlimited."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit >> 10


def refuse_little_memory() -> None:
    """Raise UserError if the shell allows this process less than ``LEAST_MEMORY_MIB``."""
    limit = memory_limit_kib()
    if limit is not None and limit < LEAST_MEMORY_MIB << 10:
        problem = f"rn50 needs {LEAST_MEMORY_MIB} MiB of memory at least"
        raise UserError(f"ulimit -v {limit}", problem, "raise it, as with ulimit -v unlimited")


@contextlib.contextmanager
def handling(handlers: Mapping[signal.Signals, Callable[[int, Any], object]]) -> Iterator[None]:
    """In this context, handle signals by these functions; restore the former handlers at its end."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def not_ignored(*numbers: signal.Signals) -> list[signal.Signals]:
    """Return those of the signals that this process does not ignore. A signal that was ignored when the
    process started, as SIGHUP under nohup, should stay ignored."""
    return [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]


def end_with_parent() -> None:
    """Make the kernel send SIGTERM to this process when the thread that started it ends, for any reason."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def adopt_orphans() -> None:
    """Make processes below this one its children when their parents end, so that it can wait for them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def ask_to_end_with_parent(then: Callable[[], object] = lambda: None) -> Callable[[], None]:
    """Return a ``preexec_fn`` for ``subprocess``. It makes the kernel send SIGTERM to the child when the
    thread that called this function ends, for any reason.

    It also unblocks SIGTERM in the child, and calls ``then`` there before the child's program runs.
    """
    libc, parent = ctypes.CDLL(None), os.getpid()

    def before_it_runs() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent ended before prctl took effect
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        then()

    return before_it_runs

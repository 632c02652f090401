"""Environment and memory limit of this process; how its children start, and end with it."""

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
"""Options of prctl, as in linux/prctl.h."""
RANK, SOCKETS, MEMORY = "RN50_RANK", "RN50_RANK_SOCKETS", "RN50_RANK_MEMORY"
"""Environment variables that ``local_launcher`` gives a rank: its number; the descriptors of its sockets by
rank, empty at its own place; the descriptor of the memory."""
OUT_OF_MEMORY = re.compile(
    "cannot allocate memory|failed to map segment|can't start new thread|bad_alloc", re.IGNORECASE
)
"""Messages other than MemoryError for too little memory, from Python, C++ and the dynamic loader."""
OUT_OF_DEVICE_MEMORY = re.compile("out of memory|ALLOC_FAILED|ResourceExhausted", re.IGNORECASE)
"""Words in errors of PyTorch, MXNet, Paddle, cuDNN and cuBLAS when a GPU's memory is used up."""
LEAST_MEMORY_MIB = 800
"""Least memory (``ulimit -v``); with less, the libraries crash while they load, or retry for ever."""


def environment() -> Mapping[str, str]:
    """Return the environment of this process. No other module of rn50 uses ``os.environ``."""
    return os.environ


def set_default(name: str, value: str) -> None:
    """Set a library's environment variable if it is unset, before the library is imported."""
    os.environ.setdefault(name, value)


def set_variables(values: Mapping[str, str]) -> None:
    """Set environment variables of a library, before it reads them."""
    os.environ.update(values)


def python(kind: str, what: str, *arguments: str) -> list[str]:
    """Return the command that runs a module (``-m``) or code (``-c``) in a new process of this Python.

    The working folder, by default on the path, is left out: a ``json.py`` of a stranger's submission would
    run in place of Python's own.
    """
    if sys.version_info >= (3, 11):
        return [sys.executable, "-P", kind, what, *arguments]
    run = f"import runpy; runpy.run_module({what!r}, run_name='__main__', alter_sys=True)"
    code = f"import sys; del sys.path[0]\n{what if kind == '-c' else run}"
    return [sys.executable, "-c", code, *arguments]


def keep_working_folder_off_paths() -> None:
    """Make every Python descendant, also one that a library starts, leave the working folder off its path,
    and find rn50 even in a checkout that is not installed."""
    os.environ["PYTHONSAFEPATH"] = "1"
    paths = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(pathlib.Path(__file__).parents[1])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    if sys.version_info < (3, 11):  # which does not know PYTHONSAFEPATH
        multiprocessing.util._args_from_interpreter_flags = lambda: ["-I"]  # type: ignore[attr-defined]


def run(command: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[Any]":
    """Run a command that ends with this process, with the options of ``subprocess.run``."""
    return subprocess.run(command, preexec_fn=ask_to_end_with_parent(), **options)


def memory_limit_kib() -> int | None:
    """Return what ``ulimit -v`` prints in the shell that started this process; None: unlimited."""
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
    """Handle signals so in this context, and as before behind it."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def not_ignored(*numbers: signal.Signals) -> list[signal.Signals]:
    """Return the signals that this process does not ignore: what was ignored when it started, as SIGHUP under
    nohup, stays so."""
    return [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]


def end_with_parent() -> None:
    """Have the kernel send this process SIGTERM when the thread that started it ends, whatever ends it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def adopt_orphans() -> None:
    """Have descendants of this process become its children when their own parent ends, so that it can wait
    for them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def ask_to_end_with_parent(then: Callable[[], object] = lambda: None) -> Callable[[], None]:
    """Return a ``preexec_fn`` that has the kernel send the child SIGTERM when the calling thread ends,
    whatever ends it.

    SIGTERM is unblocked in the child. ``then`` is called there before the child runs its program.
    """
    libc, parent = ctypes.CDLL(None), os.getpid()

    def before_it_runs() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent ended before prctl took effect
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        then()

    return before_it_runs

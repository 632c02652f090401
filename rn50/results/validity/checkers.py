"""Run official checkers, each call in a process of its own: ``run``. A checker is a module of
``mlperf_logging``, or a text of Python code that uses such a module.

The checkers keep state in their modules, configure the root logger and end their process, so that two calls
cannot share a process. Most of their time goes to imports, scipy above all. Therefore this module, run as a
program, is a server (``_serve``): it imports the checkers once and forks for every call.
"""

import contextlib
import importlib
import json
import os
import pathlib
import runpy
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from resource import RLIMIT_CPU, setrlimit
from typing import Any

from rn50.process import ask_to_end_with_parent, end_with_parent, environment, python

LIMIT_S = 60
"""Seconds of processor time that a call may take; a published log takes one. Processor time does not depend
on how busy the machine is."""
_MODULES = {"compliance_checker": "mlp_compliance"}
"""Package of a checker -> its main module, if that has another name."""
_END = "\0"
"""Separator between the output of a checker and its exit status."""
_started: socket.socket | None = None
"""Connection to the server; None if it does not run."""


@contextlib.contextmanager
def started() -> Iterator[socket.socket]:
    """Context in which the server runs, for calls of ``run``. Yields the connection to it. If the server runs
    already, nothing is started."""
    global _started
    if _started:
        yield _started
        return
    # Messages, not a stream: each call is one of them.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    silent = subprocess.DEVNULL
    options: dict[str, Any] = {"stdin": theirs, "stdout": silent, "stderr": silent}
    options["env"] = {**environment(), "PYTHONUTF8": "1"}  # whatever the locale
    with subprocess.Popen(python("-m", __name__), preexec_fn=ask_to_end_with_parent(), **options), ours:
        theirs.close()
        _started = ours
        try:
            yield ours
        finally:
            _started = None


@contextlib.contextmanager
def at_once() -> Iterator[Executor]:
    """Yield a pool of threads for calls of ``run``, one thread per processor. Ctrl-C ends the checkers that
    are running."""
    with started() as connection, ThreadPoolExecutor(os.cpu_count()) as threads:
        try:
            yield threads
        except KeyboardInterrupt:
            connection.shutdown(socket.SHUT_RDWR)
            raise


def run(checker: str, *arguments: str, cwd: pathlib.Path | None = None) -> tuple[int, str]:
    """Run an official checker with ``arguments`` in the folder ``cwd``. Return its exit status and standard
    error; the error says so if the checker was killed or took more than ``LIMIT_S``. Several threads may call
    this function in a context of ``started``."""
    reader, writer = os.pipe()
    with started() as connection, open(reader, encoding="utf-8", errors="replace") as printed:
        job = json.dumps([checker, arguments, str(cwd or pathlib.Path.cwd()), LIMIT_S]).encode()
        with contextlib.suppress(OSError):  # the server was killed
            socket.send_fds(connection, [job], [writer])
        os.close(writer)  # now only the forked process can write, so ``read`` returns when it has ended
        text, separator, status = printed.read().rpartition(_END)
    too_long = f"it was killed, or took more than {LIMIT_S} s of processor time"
    return (int(status), text) if separator and status.isdigit() else (1, too_long)


def _serve(connection: socket.socket) -> None:
    """Serve until the connection is closed: for each call that arrives, import the checker and fork a process
    that runs it. A call is a message of JSON with the descriptor of the pipe for the output."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets children that ended
    while (received := socket.recv_fds(connection, 1 << 16, 1))[0]:
        message, [output], *_ = received
        checker, arguments, folder, limit = json.loads(message)
        if checker.isidentifier():  # the name of a module, not code
            with contextlib.suppress(ImportError):  # the forked process reports it
                importlib.import_module(f"mlperf_logging.{checker}.{_MODULES.get(checker, checker)}")
        if not os.fork():
            end_with_parent()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            setrlimit(RLIMIT_CPU, (limit, limit + 1))
            os.chdir(folder)
            os.dup2(output, sys.stderr.fileno())
            print(end=f"{_END}{_status(checker, arguments)}", file=sys.stderr, flush=True)
            os._exit(0)
        os.close(output)


def _status(checker: str, arguments: list[str]) -> int:
    """Run a checker, a module of ``mlperf_logging`` or Python code, in this process. Return its exit
    status."""
    sys.argv[1:] = arguments
    try:
        if checker.isidentifier():  # the name of a module, not code
            # Without this option the module writes a log into the current folder.
            sys.argv[1:] = ["--log_output", os.devnull, *arguments]
            runpy.run_module(f"mlperf_logging.{checker}", run_name="__main__", alter_sys=True)
        else:
            exec(checker, {"__name__": "__main__"})
        return 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    _serve(socket.socket(fileno=sys.stdin.fileno()))

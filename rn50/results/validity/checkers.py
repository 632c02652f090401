"""Run official checkers, modules of ``mlperf_logging`` or code, each in a process of its own.

They keep state in their modules, configure the root logger and end their process. Most of their time goes to
imports, scipy above all: one process imports them, and forks for each check.
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
import tempfile
import traceback
from collections.abc import Iterator
from resource import RLIMIT_CPU, setrlimit

from rn50.process import ask_to_end_with_parent, end_with_parent, environment, python

LIMIT_S = 60
"""Seconds of processor time that an official checker may take, however busy the machine is; a published log
takes one."""
_FILES = {"compliance_checker": "mlp_compliance"}
"""Submodules that a checker's ``__main__`` imports, where they have another name than the checker."""
_started: socket.socket | None = None
"""Connection to the process that forks."""


@contextlib.contextmanager
def started() -> Iterator[None]:
    """Keep the process that forks for every ``run`` in this context; where it runs already, use it."""
    global _started
    if _started:
        yield
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            process = subprocess.Popen(
                python("-m", __name__, str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                env={**environment(), "PYTHONUTF8": "1"},  # whatever the locale
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=ask_to_end_with_parent(),
            )
        _started = ours
        try:
            yield
        finally:
            _started = None
            ours.shutdown(socket.SHUT_RDWR)
            process.wait()


def run(checker: str, *arguments: str, cwd: pathlib.Path | None = None) -> tuple[int, str]:
    """Run an official checker. Return its exit status and standard error, or that it took more than
    ``LIMIT_S``. Several threads may call it in a context of ``started``."""
    with started(), tempfile.TemporaryFile() as printed:
        assert _started
        reader, writer = os.pipe()
        job = json.dumps([checker, arguments, str(cwd or pathlib.Path.cwd()), LIMIT_S]).encode()
        with contextlib.suppress(OSError):  # the process that forks was killed
            socket.send_fds(_started, [job], [printed.fileno(), writer])
        os.close(writer)
        with open(reader, encoding="ascii") as ended:
            status = ended.read()  # empty: a signal ended it
        printed.seek(0)
        text = printed.read().decode(errors="replace")
    too_long = f"it was killed, or took more than {LIMIT_S} s of processor time"
    return (int(status), text) if status else (1, too_long)


def _serve(connection: socket.socket) -> None:
    """Import and fork for every job that arrives, until the other side closes the connection."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets children that ended
    while True:
        job, descriptors, *_ = socket.recv_fds(connection, 1 << 16, 2)
        if not job:
            return
        checker, arguments, folder, limit = json.loads(job)
        if checker.isidentifier():
            importlib.import_module(f"mlperf_logging.{checker}.{_FILES.get(checker, checker)}")
        if not os.fork():
            end_with_parent()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            setrlimit(RLIMIT_CPU, (limit, limit + 1))
            os.chdir(folder)
            os.dup2(descriptors[0], sys.stderr.fileno())
            status = _status(checker, arguments)
            sys.stderr.flush()
            os.write(descriptors[1], b"%d" % status)
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def _status(checker: str, arguments: list[str]) -> int:
    """Run a checker in this process, which ends with it. Return its exit status."""
    sys.argv[1:] = arguments
    try:
        if checker.isidentifier():
            sys.argv[1:1] = ["--log_output", os.devnull]  # else it leaves a log in the current folder
            runpy.run_module(f"mlperf_logging.{checker}", run_name="__main__", alter_sys=True)
        else:
            exec(checker, {"__name__": "__main__"})
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))

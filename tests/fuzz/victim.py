"""``rn50`` as a fork of this process: faults, hangs and eaten memory are the fork's, and starting it costs
milliseconds."""

import contextlib
import json
import os
import pathlib
import resource
import signal
import sys
import tempfile
import time
from typing import NamedTuple

import jinja2  # noqa: F401 (loaded once, here, and not in every fork)
import matplotlib.figure  # noqa: F401
import scipy.stats  # noqa: F401
import yaml  # noqa: F401

from rn50 import cli
from rn50.hyperparameters.plan import display as plan_display  # noqa: F401
from rn50.results.report import report  # noqa: F401
from rn50.submission import package  # noqa: F401

LIMIT_S = 60
MEMORY = 2 << 30
"""Bytes that a fork may take beside what this process has."""
FAULTS = ("RN50_DEBUG=1", "Traceback", "Segmentation", "Exception ignored")


class End(NamedTuple):
    """How it ended, and what it printed."""

    status: int
    out: str
    err: str
    seconds: float


def rn50(*arguments, cwd=".", **environ):
    """Runs the command line to its end; fails the test where that takes longer than ``LIMIT_S``."""
    with tempfile.TemporaryDirectory() as name:
        streams = [pathlib.Path(name) / "out", pathlib.Path(name) / "err"]
        begin = time.monotonic()
        child = os.fork()
        if child == 0:
            _be(arguments, streams, cwd, environ)
        status = _wait(child, begin)
        out, err = (each.read_text(encoding="utf-8", errors="replace") for each in streams)
        return End(status, out, err, time.monotonic() - begin)


def _be(arguments, streams, cwd, environ):
    """Never returns."""
    status = 70
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for number, stream in enumerate(streams, 1):
            os.dup2(os.open(stream, os.O_WRONLY | os.O_CREAT, 0o600), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
        taken = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
        os.chdir(cwd)
        for variable in ("CONFIG_FILE", "DGXSYSTEM", "RN50_DEBUG"):
            os.environ.pop(variable, None)
        os.environ.update(environ)
        try:
            cli.main([str(each) for each in arguments], prog_name="rn50")
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1 if end.code else 0
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as error:  # the fork must not go on as a second pytest
        with contextlib.suppress(BaseException):
            sys.stderr.write(f"Traceback that nobody caught: {error!r}\n")
            sys.stderr.flush()
    finally:
        os._exit(status)


def _wait(child, begin):
    while time.monotonic() - begin < LIMIT_S:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError(f"it had not ended after {LIMIT_S} s")


def assert_answers(end, as_json):
    """Demand an exit status of 0 to 3, no fault, and with --json valid JSON or a line of error."""
    said = end.out[-2000:] + end.err[-2000:]
    assert 0 <= end.status <= 3, (end.status, said)
    assert not any(fault in end.out or fault in end.err for fault in FAULTS), said
    if as_json and (end.out or end.status != 2):
        json.loads(end.out, parse_constant=_refuse)
    if end.status == 2:
        assert end.err.strip() or end.out.strip(), "no reason given"
    for line in (end.out + end.err).splitlines():
        assert "\x1b" not in line and "\x00" not in line, line


def _refuse(constant):
    raise AssertionError(f"{constant} is no JSON")

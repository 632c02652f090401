"""Whatever a test starts ends with it, however the test ends; and Ctrl-C reaches what tests start.

A process that has lost its parent becomes a child of the process that runs the tests, and so is seen. A test
that leaves one running fails. Those of fixtures of a file, or of all files, end with their fixture.
"""

import contextlib
import functools
import os
import re
import signal

import psutil
import pytest

from rn50 import process

GRACE_S = 5
"""Longest wait for processes that were told to end."""
OF_LIBRARIES = re.compile(r"multiprocessing\.(resource_tracker|forkserver)|torch[./]_inductor|catatonit")
"""Command lines of processes that a library keeps for as long as the one that loaded it."""
_OF_A_TEST = "PYTEST_XDIST_WORKER"
"""Variable that everything has which a worker of pytest-xdist starts."""
_KEPT = {}
"""Processes that are no test's own, by their fixture; None: those before the first test."""


def _children():
    with contextlib.suppress(ChildProcessError):  # in most tests there is none, which one call tells
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return set(psutil.Process().children())
    return set()


def _command(each):
    with contextlib.suppress(psutil.Error):
        return " ".join(each.cmdline())
    return ""


def _end(left):
    """Ends processes and their descendants; returns the command lines of those that did not by themselves."""
    alive = psutil.wait_procs([each for each in left if not OF_LIBRARIES.search(_command(each))], GRACE_S)[1]
    commands = [f"{each.pid}: {_command(each)}" for each in alive]
    while alive:
        for each in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                for descendant in [*each.children(recursive=True), each]:
                    descendant.kill()
        psutil.wait_procs(alive)
        alive = [each for each in _children() - set().union(*_KEPT.values()) if each not in left]
        alive = [each for each in alive if not OF_LIBRARIES.search(_command(each))]
    return commands


def _interrupt(owner, number, _):
    if os.getpid() != owner:  # a fork of it, which ends as by default
        os._exit(128 + number)
    raise KeyboardInterrupt


def pytest_configure(config):
    """Take Ctrl-C back: where it is ignored, as under nohup or in a background job of a script, it would be
    in all that tests start and stop by it. So would SIGHUP, which nohup still keeps from the tests
    themselves: a handler ends with exec. Let SIGTERM end the tests as Ctrl-C does."""
    process.adopt_orphans()
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
    if not hasattr(config, "workerinput"):
        signal.signal(signal.SIGTERM, functools.partial(_interrupt, os.getpid()))


def pytest_collection_finish():
    """Keep what was there before the first test."""
    _KEPT[None] = _children()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    """Keep what a fixture of several tests starts."""
    if fixturedef.scope == "function":
        return (yield)
    before = _children()
    try:
        return (yield)
    finally:
        _KEPT[fixturedef] = _children() - before


def pytest_fixture_post_finalizer(fixturedef):
    """Keep nothing of a fixture that has ended."""
    _KEPT.pop(fixturedef, None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown():
    """Fail a test that leaves a process running, and end that."""
    try:
        return (yield)
    finally:
        left = _end(_children() - set().union(*_KEPT.values()))
        if left:
            pytest.fail("left running: " + "; ".join(left), pytrace=False)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown():
    """End what a worker of pytest-xdist leaves that was itself ended, as by a time limit."""
    for each in _children():
        with contextlib.suppress(psutil.Error):
            if _OF_A_TEST in each.environ():
                _end({each})


def pytest_unconfigure():
    """End what is left where the tests were interrupted."""
    _KEPT.clear()
    _end(_children())

"""What tests start ends with them, and Ctrl-C reaches it: also where a shell has SIGINT ignored.

Processes: processes are left on purpose.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from rn50.files import ROOT
from tests.support.ended import is_alive

MARK = "RN50_LEFT_RUNNING"
TESTS = """
import signal, subprocess, time

import pytest

def busy(seconds):
    return ["sh", "-c", f"sleep {seconds} & sleep {seconds}"]

def test_fails():
    subprocess.Popen(busy(601), start_new_session=True)
    raise AssertionError("on purpose")

def test_leaves_an_orphan():
    subprocess.run(["sh", "-c", "sleep 602 &"])

@pytest.mark.timeout(1, method="signal")
def test_is_timed_out():
    subprocess.Popen(busy(603))
    time.sleep(600)

@pytest.mark.timeout(1, method="thread")
def test_ends_its_worker():
    subprocess.Popen(busy(604))
    time.sleep(600)

@pytest.fixture(scope="module")
def daemon():
    started = subprocess.Popen(["sleep", "605"])
    yield started
    started.kill()

@pytest.mark.parametrize("number", range(2))
def test_shares_a_daemon(daemon, number):
    assert daemon.poll() is None

def test_ctrl_c_reaches_what_it_starts():
    child = subprocess.Popen(["sleep", "606"])
    child.send_signal(signal.SIGINT)
    assert child.wait(10) == -signal.SIGINT

def test_waits():
    subprocess.Popen(busy(607))
    time.sleep(600)
"""


def processes(mark):
    """Everything of a session that is alive."""
    found = []
    for each in psutil.process_iter():
        try:
            if each.environ().get(MARK) == mark:
                found.append(each.pid)
        except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            pass  # ended, or not ours
    return found


def name(pid):
    """The name of a process."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).name()


@pytest.fixture
def session(tmp_path):
    """Starts tests of ``TESTS`` where SIGINT is ignored."""

    def started(chosen, *options):
        (tmp_path / "test_it.py").write_text(TESTS)
        (tmp_path / "conftest.py").write_text(
            "from tests.support import left_running\nleft_running.GRACE_S = 0.2\n")
        command = [
            sys.executable, "-m", "pytest", "-v", "-p", "tests.support.left_running", "-p",
            "no:cacheprovider"]
        command += ["--rootdir", str(tmp_path), "-c", os.devnull, str(tmp_path), "-k", chosen, *options]
        return subprocess.Popen(
            ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command], cwd=ROOT,
            env={**os.environ, MARK: str(tmp_path)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True)

    return started


def test_nothing_outlives_its_test(session, tmp_path):
    shown, _ = session("not ends_its_worker and not waits").communicate(timeout=120)
    assert processes(str(tmp_path)) == []
    errors = re.findall(
        r"^_+ ERROR at teardown of (\w+) _+\nleft running: .*(sleep \d+)$", shown, re.MULTILINE)
    assert sorted(errors) == [
        ("test_fails", "sleep 601"), ("test_is_timed_out", "sleep 603"),
        ("test_leaves_an_orphan", "sleep 602")], shown
    assert "2 failed, 4 passed" in shown, shown


@pytest.mark.slow  # pytest-xdist gives a worker ten seconds to end
@pytest.mark.parametrize("options", [(), ("-n", "2")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_outlives_a_session_that_is_stopped(session, tmp_path, options, number):
    stopped = session("waits", *options)
    while "sleep" not in map(name, processes(str(tmp_path))):
        assert stopped.poll() is None
        time.sleep(0.05)
    stopped.send_signal(number)
    shown, _ = stopped.communicate(timeout=120)
    assert not any(map(is_alive, processes(str(tmp_path)))), shown


@pytest.mark.slow  # the same
def test_nothing_outlives_its_worker(session, tmp_path):
    shown, _ = session("ends_its_worker or shares", "-n", "2").communicate(timeout=120)
    assert "crashed while running" in shown and processes(str(tmp_path)) == [], shown

"""A run as a user starts it: real processes, watched until the last one has ended."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
import uuid

import psutil
import pytest

from rn50.process import python
from tests.support.pace import slowness

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RN50 = (sys.executable, "-m", "rn50")
LAUNCH = (*RN50, "launch")
LIMIT_S = 60
"""In this time a run that cannot go on has to be over, on every rank; a machine that is slow just then has
longer."""
BUSY_S = 300
"""So long may a run take that can go on, on a machine whose cores run other tests too."""
POLL_S = 0.05

RANK_NAMES = ("RN50_RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "RANK")
ANOTHER_RANK = "rn50: another rank of the run has stopped"


class Job:
    """``rn50 launch``, or a script around it, in a session of its own, as a terminal would start it."""

    def __init__(self, environment, command=LAUNCH, cwd=ROOT):
        self._marker = (
            uuid.uuid4().hex
        )  # the environment is inherited, so every process of the job carries it
        python = str(pathlib.Path(sys.executable).parent)
        self._process = subprocess.Popen(
            command, cwd=str(cwd),
            env={
                **os.environ, "PATH": f"{python}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", **environment,
                "RN50_TEST_JOB": self._marker},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True)
        self.out = self.err = ""

    def processes(self):
        """Everything of the job that is alive."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("RN50_TEST_JOB") == self._marker:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
                pass  # ended, or not ours
        return found

    def commands(self):
        """Everything of the job that is alive, with its command line."""
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since
                found.append((process, process.cmdline()))
        return found

    def ranks(self):
        """The processes that train, by rank."""
        found = {}
        for process, command in self.commands():
            if command[1:] in (["-m", "rn50", "train"], python("-m", "rn50", "train")[1:]):
                with contextlib.suppress(psutil.NoSuchProcess):
                    environment = process.environ()
                    found[int(next((environment[name] for name in RANK_NAMES if name in environment), 0))] = (
                        process)
        return found

    def until(self, condition):
        """Returns as soon as ``condition()`` holds; fails the test where the job ends before, or too much
        time passes."""
        deadline = time.monotonic() + BUSY_S
        while not condition():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.end()
                pytest.fail(f"waited for it in vain\n{self.out}\n{self.err}")
            time.sleep(POLL_S)

    def until_logged(self, result_file, key):
        """Returns as soon as an event of name ``key`` is in the growing log."""
        partial = pathlib.Path(f"{result_file}.partial")
        self.until(lambda: partial.exists() and key in keys(partial))

    def signal(self, number):
        """To the launcher alone, as ``kill`` does."""
        self._process.send_signal(number)

    def signal_group(self, number):
        """To the foreground process group, as a terminal does on Ctrl-C."""
        os.killpg(self._process.pid, number)

    def wait(self, limit_s=LIMIT_S):
        """The exit status. Fails the test where any process of the job is left after the limit."""
        deadline = time.monotonic() + limit_s
        try:
            try:
                self.out, self.err = self._process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                more_s = limit_s * (slowness() - 1)
                deadline = time.monotonic() + more_s
                self.out, self.err = self._process.communicate(timeout=more_s)
            while self.processes() and time.monotonic() < deadline:
                time.sleep(POLL_S)
            left = [" ".join(command) for _, command in self.commands()]
            assert not left
        finally:
            self.end()
        return self._process.returncode

    def end(self):
        """Ends by force whatever is left of the job."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if not self._process.stdout.closed:
            self.out, self.err = self._process.communicate()

    @property
    def complaints(self):
        """The lines that say what was wrong; no run may show a traceback beside them."""
        assert "Traceback" not in self.out + self.err, self.out + self.err
        return [line for line in self.err.splitlines() if line.startswith(("rn50: ", "run_"))]

    @property
    def complaint(self):
        """The one line that says what was wrong, besides that of ranks that were left behind."""
        own = [line for line in self.complaints if line != ANOTHER_RANK]
        assert len(own) == 1 and len(self.complaints) <= 2, self.err
        return own[0]


def configuration_file(path, environment):
    """A configuration file as anybody might have one."""
    path.write_text("".join(f"export {name}='{value}'\n" for name, value in environment.items()))
    return path


def events(log):
    """The MLPerf events of a log that are whole lines."""
    return [
        json.loads(line.split(":::MLLOG ")[1]) for line in log.read_text().splitlines(True)
        if line.endswith("\n")]


def keys(log):
    """Names of the events of a log."""
    return [event["key"] for event in events(log)]


def assert_aborted(result_file, clock_ran=True):
    """The run has no result, and its log ends with ``run_stop`` "aborted" where the clock was running."""
    assert not result_file.exists()
    partial = pathlib.Path(f"{result_file}.partial")
    logged = events(partial) if partial.exists() else []
    stops = [event["metadata"]["status"] for event in logged if event["key"] == "run_stop"]
    if clock_ran:
        assert "run_start" in [event["key"] for event in logged]
        assert stops == ["aborted"] and logged[-1]["key"] == "run_stop"
    else:
        assert "run_start" not in [event["key"] for event in logged]
        assert stops == []

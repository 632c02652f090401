"""Run of a search: ``rn50 launch`` in its own process on some of the cores; its log is read as it grows."""

import contextlib
import math
import os
import re
import time
from collections.abc import Sequence
from subprocess import DEVNULL, STDOUT, Popen
from typing import Any

from rn50.errors import UserError
from rn50.hyperparameters.search.trial_scheduler import Task
from rn50.process import ask_to_end_with_parent, python
from rn50.results.parse import Evaluation, partial_name, read_log
from rn50.settings.document import CONFIGS

BY_FORCE_S = 30
"""Seconds after which a run that was asked to stop is killed; its own launcher gives the ranks a third of
them."""
COMMAND = python("-m", "rn50", "launch")


class Training:
    """Started run. Its process inherits ``lock``, that of the search's folder, so that no other search begins
    there while it is alive."""

    epochs = 0
    """Evaluations at the last look."""
    reason = ""
    """Why it is being stopped, or empty."""

    def __init__(self, task: Task, cpus: Sequence[int], lock: int):
        self.task = task
        self.output = task.result_file.with_suffix(".out")
        self.begun = time.monotonic()
        self._kill_at = math.inf
        self._read: tuple[int, Sequence[Evaluation]] = (-1, ())
        before_it_runs = ask_to_end_with_parent(then=lambda: os.sched_setaffinity(0, cpus))
        how: dict[str, Any] = {"cwd": str(CONFIGS.parent), "env": task.config.environ()}
        how |= {"start_new_session": True, "pass_fds": (lock,), "preexec_fn": before_it_runs}
        with self.output.open("wb") as output:
            streams: dict[str, Any] = {"stdin": DEVNULL, "stdout": output, "stderr": STDOUT}
            self._process = Popen(COMMAND, **streams, **how)

    def poll(self) -> int | None:
        """Return the exit status, None while it runs; kill it if it does not stop in time."""
        status = self._process.poll()
        if status is None and time.monotonic() > self._kill_at:
            self._process.kill()
        return status

    def stop(self) -> None:
        """Ask it to stop; ``poll`` reports when it has."""
        if self._kill_at == math.inf:
            self._kill_at = time.monotonic() + BY_FORCE_S
            self._process.terminate()

    @property
    def finished(self) -> bool:
        """Return whether its log is complete."""
        return self.task.result_file.exists()

    def evaluations(self) -> Sequence[Evaluation]:
        """Return the evaluations so far."""
        file = self.task.result_file if self.finished else partial_name(self.task.result_file)
        with contextlib.suppress(OSError, UserError):  # it has not begun, or just got its final name
            size = file.stat().st_size
            if size != self._read[0]:
                self._read = size, read_log(file).evaluations
        return self._read[1]

    @property
    def complaint(self) -> str:
        """Return the first error that it printed, else its exit status."""
        printed = self.output.read_text(encoding="utf-8", errors="replace")
        error = re.search("^rn50: (.*)$", printed, re.MULTILINE)
        return error[1] if error else f"exit status {self._process.returncode}, see {self.output}"


def was_killed(status: int) -> bool:
    """Return whether an exit status of ``rn50 launch`` means that a signal ended it."""
    return status < 0 or status > 128

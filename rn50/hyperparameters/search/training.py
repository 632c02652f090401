"""``Training``, a run of a search: ``rn50 launch`` in a process of its own on some of the cores, whose log is
read while it grows."""

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
"""Seconds after which a run that was asked to stop is killed: three times as many as its launcher gives the
ranks to stop."""
COMMAND = python("-m", "rn50", "launch")


class Training:
    """A run that has been started. Its process inherits ``lock``, the locked file of the search's folder, so
    that no other search begins in the folder while the run is alive."""

    epochs = 0
    """Number of evaluations, one after each epoch, when ``Search`` last looked."""
    reason = ""
    """Why the search stops the run; empty: it does not."""

    def __init__(self, task: Task, cpus: Sequence[int], lock: int):
        """Start the run on the cores ``cpus``."""
        self.task = task
        self.output = task.result_file.with_suffix(".out")
        """File of what the run prints."""
        self.begun = time.monotonic()
        self._kill_at = math.inf
        """Time, by ``time.monotonic``, at which the run is killed; infinity until it is asked to stop."""
        self._read: tuple[int, Sequence[Evaluation]] = (-1, ())
        """Size of the log when it was last read, and its evaluations."""
        bind = ask_to_end_with_parent(then=lambda: os.sched_setaffinity(0, cpus))
        options: dict[str, Any] = {"cwd": str(CONFIGS.parent), "env": task.config.environ()}
        options |= {"start_new_session": True, "pass_fds": (lock,), "preexec_fn": bind}
        with self.output.open("wb") as output:
            self._process = Popen(COMMAND, stdin=DEVNULL, stdout=output, stderr=STDOUT, **options)

    def poll(self) -> int | None:
        """Return the exit status; None: the run is alive. Kill a run that has not stopped in time."""
        status = self._process.poll()
        if status is None and time.monotonic() > self._kill_at:
            self._process.kill()
        return status

    def stop(self) -> None:
        """Ask the run to stop. ``poll`` tells when it has stopped."""
        if self._kill_at == math.inf:
            self._kill_at = time.monotonic() + BY_FORCE_S
            self._process.terminate()

    @property
    def finished(self) -> bool:
        """True if the log of the run has its final name, which it gets when it is complete."""
        return self.task.result_file.exists()

    def evaluations(self) -> Sequence[Evaluation]:
        """Return the evaluations of the run so far."""
        file = self.task.result_file if self.finished else partial_name(self.task.result_file)
        with contextlib.suppress(OSError, UserError):  # the log may not exist yet, or be renamed just now
            size = file.stat().st_size
            if size != self._read[0]:
                self._read = size, read_log(file).evaluations
        return self._read[1]

    @property
    def complaint(self) -> str:
        """The first error that the run printed, else its exit status."""
        printed = self.output.read_text(encoding="utf-8", errors="replace")
        error = re.search("^rn50: (.*)$", printed, re.MULTILINE)
        return error[1] if error else f"exit status {self._process.returncode}, see {self.output}"


def was_killed(status: int) -> bool:
    """Return True if the exit status of ``rn50 launch`` means that a signal ended it."""
    return status < 0 or status > 128

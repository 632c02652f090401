"""A run of a search: ``rn50 launch`` in a process of its own, on some of the cores, with an eye on its growing log."""

import os
import pathlib
import subprocess
import sys
import time
from typing import IO, Any, List, Mapping, Optional, Sequence, Tuple

from rn50.errors import Status, UserError
from rn50.process import ask_to_end_with_parent
from rn50.results.parse import Evaluation, read_log
from rn50.settings.config_file import CONFIGS

BY_FORCE_S = 30
"""After this a run that was asked to stop is killed; its own launcher gives the ranks a third of it."""
COMMAND = (sys.executable, "-m", "rn50", "launch")


class Training:
    """A run from its start on; ``held`` is the lock that says it is alive, and is its own from then on too."""

    def __init__(self, environ: Mapping[str, str], result_file: pathlib.Path, cpus: Sequence[int], held: IO[Any]):
        self.result_file = result_file
        self.output = result_file.with_suffix(".out")
        self.begun = time.monotonic()
        self.asked_to_stop = False
        self._stop_at = 0.0
        self._held = held
        self._read: Tuple[int, List[Evaluation]] = (-1, [])
        before_it_runs = ask_to_end_with_parent(lambda: os.sched_setaffinity(0, cpus))
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                COMMAND, cwd=str(CONFIGS.parent), env=dict(environ), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True, pass_fds=(held.fileno(),), preexec_fn=before_it_runs,
            )  # fmt: skip

    def poll(self) -> Optional[int]:
        """The exit status, None while it runs."""
        status = self._process.poll()
        if status is None and self.asked_to_stop and time.monotonic() > self._stop_at:
            self._process.kill()
        return status

    def release(self) -> None:
        """Gives its lock back, once what became of it is written down: from then on another worker may take it for abandoned."""
        self._held.close()

    def stop(self) -> None:
        """Asks it to stop; ``poll`` tells when it has."""
        if not self.asked_to_stop:
            self.asked_to_stop, self._stop_at = True, time.monotonic() + BY_FORCE_S
            self._process.terminate()

    @property
    def partial(self) -> pathlib.Path:
        """Its log while that grows."""
        return self.result_file.with_name(self.result_file.name + ".partial")

    @property
    def finished(self) -> bool:
        """Whether its log came to its end."""
        return self.result_file.exists()

    @property
    def seconds(self) -> float:
        """Since its start."""
        return time.monotonic() - self.begun

    def evaluations(self) -> List[Evaluation]:
        """Those so far."""
        file = self.result_file if self.finished else self.partial
        try:
            size = file.stat().st_size
            if size != self._read[0]:
                self._read = size, evaluations(file)
        except (OSError, UserError):  # it has not begun, or just got its final name
            pass
        return self._read[1]

    @property
    def complaint(self) -> str:
        """The first line in which it says what was wrong."""
        lines = self.output.read_text(encoding="utf-8", errors="replace").splitlines()
        said = [line[len("rn50: "):] for line in lines if line.startswith("rn50: ")]
        return said[0] if said else f"exit status {self._process.returncode}, see {self.output}"

    @property
    def diverged(self) -> bool:
        """Whether its loss became no number."""
        return self._process.returncode == Status.DIVERGED


def evaluations(file: pathlib.Path) -> List[Evaluation]:
    """Those of a log, whole or growing. Raises UserError where there is no log yet."""
    return list(read_log(file).evaluations)


def was_killed(status: int) -> bool:
    """Whether an exit status of ``rn50 launch`` says that a signal ended it."""
    return status < 0 or status > 128

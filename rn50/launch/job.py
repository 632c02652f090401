"""The processes of a run: started, and an eye on them until the last one has ended."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

import psutil

from rn50.data import preflight
from rn50.errors import Status
from rn50.launch import launchers
from rn50.machine import cgroup
from rn50.machine.sources import Sources
from rn50.process import ask_to_end_with_parent
from rn50.run import log_file
from rn50.settings.config import Config
from rn50.terminal import say

GRACE_SECONDS = 10
"""What the processes get between a request to stop and their end by force."""
USUAL_CAUSE = {
    signal.SIGBUS: "a file of DATADIR was cut short or its storage is gone, or /dev/shm is full",
    signal.SIGILL: "this processor lacks an instruction that a package was built for",
}
"""What a signal that the kernel sends usually means here."""


def rank_environment(config: Config, environ: Mapping[str, str]) -> Dict[str, str]:
    """``environ`` with the defaults that every rank wants and the user did not give.

    OpenMP threads wait for each other some hundred times a step, and one that has to wait for its core holds up all: with as many
    threads as cores, anything else that runs makes training several times slower. So each rank gets its share of the cores that
    this process may use, and of the time on them that it may take, less one on a CPU, where the input pipeline needs it.
    """
    quota = cgroup.read(Sources()).quota
    cores = min(len(os.sched_getaffinity(0)), int(quota or sys.maxsize)) // launchers.sharing(config, environ)[1]
    defaults = {
        "OMP_NUM_THREADS": str(max(1, cores - 1 if config.run.device == "cpu" else cores)),
        "HOROVOD_LOG_LEVEL": "fatal",  # a lost rank is reported once, by us
        "PYTHONUNBUFFERED": "1",
    }
    return {**environ, **{name: environ.get(name) or value for name, value in defaults.items()}}


def launch(config: Config, environ: Mapping[str, str]) -> int:
    """Runs the configured system once and returns its exit status.

    Raises UserError before anything starts where data or result file are not as they have to be. Only the presence of the data
    is looked at: no file of it may be opened before the clock runs.
    """
    preflight.preflight(pathlib.Path(config.data.folder))
    result_file: Optional[pathlib.Path] = pathlib.Path(config.run.result_file) if config.run.result_file else None
    if result_file is not None:
        log_file.refuse_existing(result_file)
    return run_ranks(config, environ, ("train",), result_file)


def run_ranks(
    config: Config, environ: Mapping[str, str], verb: Sequence[str], result_file: Optional[pathlib.Path] = None
) -> int:
    """Runs ``rn50 <verb>`` as every rank of the configured system and returns the exit status."""
    environ = rank_environment(config, environ)
    start = launchers.start(config, environ, ("-m", "rn50", *verb))
    starts_all = start.rank is None
    if starts_all and config.run.nodes > 1 and config.run.cache_cleared:
        _say("CACHE_CLEARED=0 for this run: the caches of the other machines were not dropped")
        environ["CACHE_CLEARED"] = "0"
    oom_kills = cgroup.oom_kills()
    stop = _StopOnSignal()
    process = subprocess.Popen(
        start.argv,
        env={**start.environ, **environ},
        start_new_session=True,
        stdout=subprocess.PIPE if starts_all else None,
        stderr=subprocess.STDOUT if starts_all else None,
        preexec_fn=ask_to_end_with_parent(),
    )
    stop.watch(process)
    one = "the training process" if start.launcher == "python" else f"rank {start.rank}"
    who, status = _relay(process, start.launcher, stop) if starts_all else (one, process.wait())
    if result_file is not None and not start.rank:  # of several ranks that Slurm started, the first one owns the log
        log_file.stop_abandoned(result_file)
    if stop.asked is not None:
        _say(f"stopped by {stop.asked.name}; the same command starts the run again")
        return 128 + stop.asked
    number = -status if status < 0 else status - 128
    if number in set(signal.Signals):
        cause = _cause(number, oom_kills)
        _say(f"{who} was killed by {signal.Signals(number).name}{cause}; start the run again")
        return 128 + number
    return status


def _cause(number: int, oom_kills_before: int) -> str:
    """Return `` (cause)`` to stand after "killed by <signal>", or nothing where none is known."""
    if number == signal.SIGKILL and cgroup.oom_kills() > oom_kills_before:
        return " (out of memory: give the job more, or lower BATCHSIZE or DALI_PREFETCH_QUEUE)"
    return f" ({USUAL_CAUSE[signal.Signals(number)]})" if number in USUAL_CAUSE else ""


def _say(line: str) -> None:
    say(f"rn50: {line}", err=True)


def _relay(process: "subprocess.Popen[bytes]", launcher: str, stop: "_StopOnSignal") -> Tuple[str, int]:
    """Passes on what the ranks print, without the prefixes and own words of their launcher, a line that several ranks print once.

    Returns who ended the job, and with which exit status: horovodrun says both in words only, and mpirun who.
    """
    ended: Dict[str, int] = {}
    first = ""
    complaints: Set[str] = set()
    words: List[str] = []
    assert process.stdout is not None
    for raw in process.stdout:
        line = raw.decode(errors="replace").rstrip()
        rank_line = re.search(r"\[(?:\d+,)?\d+\]<(stdout|stderr)>:(.*)", line)
        # Its words may stand before those of a rank in one line: it writes the end of its own lines separately.
        own_words = line[: rank_line.start()] if rank_line else line
        for rank, status in re.findall(r"Process (\d+) exit with status code (-?\d+)", own_words):
            ended[f"rank {rank}"] = int(status)
        of_mpirun = re.search(r"Process name: \[\[\d+,\d+\],(\d+)\]|that process rank (\d+) ", own_words)
        if of_mpirun and not first:
            first = f"rank {of_mpirun[1] or of_mpirun[2]}"
        words += filter(None, [own_words.strip(" -")])
        if rank_line is None:
            continue
        stream, text = rank_line[1], rank_line[2]
        if text.startswith("rn50: "):
            if text in complaints:
                continue
            complaints.add(text)
        elif stream == "stderr" and (complaints or ended or text in ("", "Terminated", "Killed")):
            continue  # the noise of ranks that were left behind
        say(text, err=stream == "stderr")
    job_status = process.wait()
    if ended:
        # The first of those that were not just left behind (1) or ended by horovodrun (143); with a remedy above all.
        with_remedy, left_behind = (Status.USER_ERROR, Status.DIVERGED), (Status.FAULT, 128 + signal.SIGTERM)
        return min(ended.items(), key=lambda item: (item[1] not in with_remedy, item[1] in left_behind))
    if first:
        return first, job_status
    if job_status > 0 and stop.asked is None:
        # mpirun explains what it has said at first, horovodrun ends a traceback with it.
        reason = words[0 if launcher == "mpirun" else -1] if words else "it does not say why"
        _say(f"{launcher} ended with status {job_status}: {reason}")
    return launcher, job_status


class _StopOnSignal:
    """Asks the job to end on SIGINT, SIGTERM or SIGHUP, and ends it by force where that takes longer than ``GRACE_SECONDS``.

    Ranks live in a session of their own and are asked by SIGTERM, whatever the signal: each is told once, and we say why.
    """

    def __init__(self) -> None:
        self.asked: Optional[signal.Signals] = None
        self._process: Optional[subprocess.Popen[bytes]] = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores it for us
                signal.signal(number, self._handle)

    def watch(self, process: "subprocess.Popen[bytes]") -> None:
        """From now on it is ``process`` that is asked, at once where a signal came while it was being started."""
        self._process = process
        if self.asked is not None:
            self._end(process)

    def _handle(self, number: int, _: object) -> None:
        first = self.asked is None
        if first or number == signal.SIGINT:  # Ctrl-C is what a person did; a script that got it too passes on SIGTERM
            self.asked = signal.Signals(number)
        if first and self._process is not None:
            self._end(self._process)

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        process.terminate()
        threading.Thread(target=_end_by_force, args=(process,), daemon=True).start()


def _end_by_force(process: "subprocess.Popen[bytes]") -> None:
    """Kills what is left of the job, whatever process groups its launcher has put it into."""
    time.sleep(GRACE_SECONDS)
    if process.poll() is None:
        for each in psutil.Process(process.pid).children(recursive=True):
            each.kill()
        process.kill()

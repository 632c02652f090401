"""Start the processes of a run, and supervise them until the last one has ended.

``rn50 launch`` calls ``launch`` for a timed run; verbs that measure call ``run_ranks``. ``launchers.py`` says
which command to start. This file runs it, prints what the ranks print, and says why a run ended.
"""

import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import IO

import psutil

from rn50.data import preflight
from rn50.errors import Status
from rn50.launch import launchers, power_sampler
from rn50.launch.local_launcher import kill, later
from rn50.machine import cgroup
from rn50.machine.sources import Sources
from rn50.process import adopt_orphans, ask_to_end_with_parent, memory_limit_kib, not_ignored
from rn50.run import beginning, checkpoint, log_file, provenance, saved_weights, watchdog
from rn50.settings.config import Config
from rn50.terminal import say

GRACE_SECONDS = 10
"""Time between the request to end and the kill, for the ranks and for what they leave behind."""
USUAL_CAUSE = {
    signal.SIGBUS: "a file of DATADIR was cut short or its storage is gone, or /dev/shm is full",
    signal.SIGILL: "this processor lacks an instruction that a package was built for",
}
"""Signal that the kernel sends -> why it usually ends a rank."""
_PREFIX = re.compile(rb"\[(?:\d+,)?(\d+)\]<(stdout|stderr)>:")
"""Prefix of what a rank prints, with its number and stream: ``[3]<stdout>:`` from horovodrun,
``[1,3]<stdout>:`` from mpirun, where the first number is that of the job."""


def rank_environment(config: Config) -> dict[str, str]:
    """Return the environment of a configuration, with defaults for variables of a rank that the user did not
    set.

    OMP_NUM_THREADS: the cores that this process may use, limited by the quota of CPU time, are divided by the
    ranks. On a CPU a rank takes one core less, for the input pipeline. OpenMP threads wait for each other
    some hundred times a step, and a thread that waits for its core delays all of them. With as many threads
    as cores, any other process makes training several times slower.

    DALI_THREADS: 0 becomes the cores of a rank less one.

    CUDA_DEVICE_MAX_CONNECTIONS: a GPU serves streams through 8 hardware queues by default, 32 at most. DALI
    alone has more than 8 streams. A stream that shares a queue with a captured step waits for the whole step:
    on one H200 training on real images ran at 6,383 images/s with 8 queues and at 8,270 with 32 (synthetic
    batch: 8,498).
    """
    usable_cores = min(len(os.sched_getaffinity(0)), int(cgroup.read(Sources()).quota or sys.maxsize))
    _, ranks = launchers.sharing(config)  # ranks that share these cores
    cores = usable_cores // ranks
    defaults = {
        "OMP_NUM_THREADS": str(max(1, cores - 1 if config.run.device == "cpu" else cores)),
        "HOROVOD_LOG_LEVEL": "fatal",  # every rank would report a lost rank; this file reports it once
        "PYTHONUNBUFFERED": "1",
    }
    if config.run.device == "gpu":
        defaults["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
    environ = dict(config.environ())
    environ.update({name: value for name, value in defaults.items() if not environ.get(name)})
    if not config.input_pipeline.threads:
        environ["DALI_THREADS"] = str(max(1, cores - 1))
    return environ


def launch(config: Config) -> int:
    """Make one timed run of the configured system, and return its exit status.

    Raises UserError before anything starts if data are missing, or if a variable or the result file cannot be
    used. Of the data set it only checks that the files exist, because none may be opened before the clock
    runs.
    """
    preflight.check(config)
    preflight.refuse_resized(config)
    result_file = pathlib.Path(config.run.result_file) if config.run.result_file else None
    if result_file is not None:
        log_file.refuse_existing(result_file)
    saved_weights.refuse_impossible(config)
    checkpoint.refuse_impossible(config)
    # The ranks read these two again. Here only their errors count, before anything starts.
    beginning.initial_weights(config)
    watchdog.limits(config.environment)
    with power_sampler.running(config, result_file):
        return run_ranks(config, ("train",), result_file)


def run_ranks(config: Config, verb: Sequence[str], result_file: pathlib.Path | None = None) -> int:
    """Run ``rn50 VERB`` as every rank of the configured system, and return the exit status of the job: that
    of a rank, or 128 + n if signal n ended it. ``result_file`` is the log of the run; if it is
    left without an end, this function writes the end."""
    environ = rank_environment(config)
    start = launchers.start(dataclasses.replace(config, environment=environ), verb)
    # Without a launcher there is one rank in all, or Slurm has started a process like this for each rank.
    starts_all = start.rank is None
    if starts_all and config.run.nodes > 1 and config.run.cache_cleared:
        _say("CACHE_CLEARED=0 for this run: the caches of the other machines were not dropped")
        environ["CACHE_CLEARED"] = "0"
    # Start the launcher, or the one rank.
    oom_kills = cgroup.oom_kills(Sources())
    adopt_orphans()
    older_descendants = _descendants()
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
    # Wait for its end, and for that of all that it has started.
    if starts_all:
        culprit, status = _relay(process, start.launcher, stop)
    else:
        culprit = "the training process" if start.launcher == "python" else f"rank {start.rank}"
        status = process.wait()
    _wait_for_rest(older_descendants)
    if result_file is not None and not start.rank:  # a rank but 0 that Slurm started must not touch the log
        log_file.stop_abandoned(result_file)
    # Say why the job ended, unless a rank has said so itself.
    if stop.signal is not None:
        if not environ.get(provenance.RUNS):  # else the script of the campaign says it
            _say(f"stopped by {stop.signal.name}; {_remains(result_file)}")
        return 128 + stop.signal
    # Number of the signal that ended the rank, if one did: its status is then -number, or 128 + number.
    number = -status if status < 0 else status - 128
    if number in set(signal.Signals):
        name, cause = signal.Signals(number).name, _cause(number, oom_kills)
        _say(f"{culprit} was killed by {name}{cause}; start the run again")
        return 128 + number
    return status


def _descendants() -> set[psutil.Process]:
    """Return all processes below this one."""
    return set(psutil.Process().children(recursive=True))


def _wait_for_rest(older_descendants: set[psutil.Process]) -> None:
    """Wait until all descendants but the older ones have ended. Kill those that take longer than
    ``GRACE_SECONDS``.

    A launcher that was killed may end before its ranks, and a rank that is being killed still locks the log.
    """
    deadline = time.monotonic() + GRACE_SECONDS
    # Look again in every turn: a process whose parent ends becomes a child of this one, to be waited for.
    while rest := _descendants() - older_descendants:
        if time.monotonic() > deadline:
            kill(rest)
        psutil.wait_procs(rest, timeout=0.1)


def _remains(result_file: pathlib.Path | None) -> str:
    """Return a text that says what is left of a run that was stopped, or how to start it again."""
    # A log has its own name only once it is finished; until then it is called ``log_file.partial_name``.
    if result_file is not None and result_file.exists():
        return f"the run had ended, and {result_file} is whole; weights that it was to save may be missing"
    return "the same command starts the run again"


def _cause(number: int, oom_kills_before: int) -> str:
    """Return `` (CAUSE)`` of a kill by signal ``number``; "" if the cause is unknown. ``oom_kills_before`` is
    the kernel's count of processes killed for memory, read before the run."""
    if number == signal.SIGKILL and cgroup.oom_kills(Sources()) > oom_kills_before:
        return " (out of memory: give the job more, or lower BATCHSIZE or DALI_PREFETCH_QUEUE)"
    if number == signal.SIGABRT and memory_limit_kib():
        return f" (ulimit -v {memory_limit_kib()} may be too little)"
    return f" ({USUAL_CAUSE[signal.Signals(number)]})" if number in USUAL_CAUSE else ""


def _say(line: str) -> None:
    """Print a line of this process on standard error."""
    say(f"rn50: {line}", err=True)


def _lines(output: IO[bytes]) -> Iterator[tuple[str, str]]:
    """Yield (text, stream) for each line of a launcher's ``output``. For a line of a rank, ``stream`` is
    "stdout" or "stderr" and the text has no prefix. For a line of the launcher itself, ``stream`` is "".

    The launcher writes the ends of its lines separately, so text of a rank may follow its text in the same
    line. mpirun passes on the beginning of a line that a rank writes in pieces, and then prefixes the rest
    again.
    """
    unfinished: dict[tuple[bytes, bytes], bytes] = {}  # (rank, stream) -> the beginning of a line
    for line in output:
        launcher_text, *pieces = _PREFIX.split(line)
        yield launcher_text.decode(errors="replace").rstrip(), ""
        for rank, stream, piece in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
            text = unfinished.pop((rank, stream), b"") + piece
            if text.endswith(b"\n"):
                yield text.decode(errors="replace").rstrip(), stream.decode()
            else:
                unfinished[rank, stream] = text
    for (_, stream), text in unfinished.items():  # the rank was killed before the end of its line
        yield text.decode(errors="replace").rstrip(), stream.decode()


def _relay(process: "subprocess.Popen[bytes]", launcher: str, stop: "_StopOnSignal") -> tuple[str, int]:
    """Print the output of the ranks until the launcher ends, without prefixes and without the launcher's own
    messages. Print an error line that several ranks print only once.

    Returns (who ended the job, exit status): a rank or the launcher. horovodrun says both only in its
    messages; mpirun exits with the status and says the rank in its messages.
    """
    ended: dict[str, int] = {}  # rank -> its exit status, from horovodrun's messages
    first_rank = ""  # the first rank that ended, from mpirun's messages
    complaints: set[str] = set()  # error lines of ranks, which begin with "rn50: "
    messages: list[str] = []  # lines of the launcher itself; empty ones and lines of dashes become ""
    assert process.stdout is not None
    for text, stream in _lines(process.stdout):
        if not stream:
            for rank, status in re.findall(r"Process (\d+) exit with status code (-?\d+)", text):
                ended[f"rank {rank}"] = int(status)
            of_mpirun = re.search(r"Process name: \[\[\d+,\d+\],(\d+)\]|that process rank (\d+) ", text)
            if of_mpirun and not first_rank:
                first_rank = f"rank {of_mpirun[1] or of_mpirun[2]}"
            messages.append(text.strip(" -"))
            continue
        # After a signal to this process, ranks complain of those that have ended before them. After the first
        # complaint, or the end of a rank, other text on stderr comes from ranks that end because of that
        # rank. A shell prints "Terminated" or "Killed" about a rank that a signal ended.
        if text in complaints or (stop.signal is not None and stream == "stderr"):
            continue
        if text.startswith("rn50: "):
            complaints.add(text)
        elif stream == "stderr" and (complaints or ended or text in ("", "Terminated", "Killed")):
            continue
        say(text, err=stream == "stderr")
    job_status = process.wait()
    if ended and job_status >= 0:  # else a signal killed the launcher, and its ranks ended because of that
        # A rank whose error has a remedy comes first. Ranks that lost another rank (status 1) or got
        # horovodrun's SIGTERM (143) come last, because another rank is the cause. All others have place 1.
        places = {Status.USER_ERROR: 0, Status.DIVERGED: 0, Status.FAULT: 2, 128 + signal.SIGTERM: 2}
        # An item is (rank, status). Of equals ``min`` returns the first: the rank that ended first.
        return min(ended.items(), key=lambda item: places.get(item[1], 1))
    if first_rank:
        return first_rank, job_status
    if job_status > 0 and stop.signal is None:
        texts = [message for message in messages if message] or ["it does not say why"]
        # mpirun says the reason first and explains it afterwards; horovodrun says it at the end of a
        # traceback.
        reason = texts[0] if launcher == "mpirun" else texts[-1]
        _say(f"{launcher} ended with status {job_status}: {reason}")
    return launcher, job_status


class _StopOnSignal:
    """Handler of SIGINT, SIGTERM and SIGHUP. It asks the job to end, and kills it if that takes longer than
    ``GRACE_SECONDS``.

    The ranks run in a session of their own, so Ctrl-C does not reach them. They get SIGTERM, whatever signal
    this process got. So each rank gets one signal, and this process reports the reason.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """The signal that is the reason for the end; None: none came."""
        self._process: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGINT, signal.SIGTERM, *not_ignored(signal.SIGHUP)):
            signal.signal(number, self._handle)

    def watch(self, process: "subprocess.Popen[bytes]") -> None:
        """Ask ``process`` to end when a signal comes. If a signal came while the process was being started,
        ask it at once."""
        self._process = process
        if self.signal is not None:
            self._end(process)

    def _handle(self, number: int, _: object) -> None:
        """Handle signal ``number``."""
        is_first = self.signal is None
        # Ctrl-C is the reason, even if a script that also got it sent SIGTERM before.
        if is_first or number == signal.SIGINT:
            self.signal = signal.Signals(number)
        if is_first and self._process is not None:
            self._end(self._process)

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        """Ask ``process`` to end, and kill what is left of the job after ``GRACE_SECONDS``."""
        process.terminate()
        later(GRACE_SECONDS, lambda: _end_by_force(process))


def _end_by_force(process: "subprocess.Popen[bytes]") -> None:
    """Kill the launcher and its descendants, whatever their process group, unless the launcher has ended."""
    if process.poll() is None:
        launcher = psutil.Process(process.pid)
        kill([*launcher.children(recursive=True), launcher])

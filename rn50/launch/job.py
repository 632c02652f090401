"""Start the processes of a run, and supervise them until the last one has ended."""

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
from rn50.run import beginning, checkpoint, log_file, saved_weights, watchdog
from rn50.settings.config import Config
from rn50.terminal import say

GRACE_SECONDS = 10
"""Time between the request to stop and the kill."""
USUAL_CAUSE = {
    signal.SIGBUS: "a file of DATADIR was cut short or its storage is gone, or /dev/shm is full",
    signal.SIGILL: "this processor lacks an instruction that a package was built for",
}
"""Signal that the kernel sends -> its usual cause here."""
_PREFIX = re.compile(rb"\[(?:\d+,)?(\d+)\]<(stdout|stderr)>:")


def rank_environment(config: Config) -> dict[str, str]:
    """Return the environment of a configuration with the defaults of a rank that the user did not set.

    OpenMP threads wait for each other some hundred times a step, and one that waits for its core delays all
    of them. With as many threads as cores, any other process makes training several times slower. So each
    rank gets its share of the cores that this process may use, limited by the quota of CPU time; on a CPU one
    less, because the input pipeline needs it. DALI_THREADS=0 becomes that share less one.

    A GPU serves streams through 8 hardware queues by default, 32 at most. DALI alone has more streams than 8.
    One that shares a queue with a captured step waits for the whole step: on one H200 training on real images
    ran at 6,383 images/s with 8 queues and at 8,270 with 32 (synthetic batch: 8,498).
    """
    usable = min(len(os.sched_getaffinity(0)), int(cgroup.read(Sources()).quota or sys.maxsize))
    cores = usable // launchers.sharing(config)[1]
    defaults = {
        "OMP_NUM_THREADS": str(max(1, cores - 1 if config.run.device == "cpu" else cores)),
        "HOROVOD_LOG_LEVEL": "fatal",  # a lost rank is reported once, by us
        "PYTHONUNBUFFERED": "1",
        **({"CUDA_DEVICE_MAX_CONNECTIONS": "32"} if config.run.device == "gpu" else {}),
    }
    environ = config.environ()
    ready = {**environ, **{name: environ.get(name) or value for name, value in defaults.items()}}
    return ready if config.input_pipeline.threads else {**ready, "DALI_THREADS": str(max(1, cores - 1))}


def launch(config: Config) -> int:
    """Run the configured system once and return its exit status.

    Raises UserError before anything starts if data are missing, or a variable or the result file cannot be
    used. It checks only that the data exist, because no file of them may be opened before the clock runs.
    """
    preflight.check(config)
    result_file = pathlib.Path(config.run.result_file) if config.run.result_file else None
    if result_file is not None:
        log_file.refuse_existing(result_file)
    saved_weights.refuse_impossible(config)
    checkpoint.refuse_impossible(config)
    beginning.initial_weights(config)
    watchdog.limits(config.environment)
    with power_sampler.running(config, result_file):
        return run_ranks(config, ("train",), result_file)


def run_ranks(config: Config, verb: Sequence[str], result_file: pathlib.Path | None = None) -> int:
    """Run ``rn50 <verb>`` as every rank of the configured system and return the exit status."""
    environ = rank_environment(config)
    start = launchers.start(dataclasses.replace(config, environment=environ), verb)
    starts_all = start.rank is None
    if starts_all and config.run.nodes > 1 and config.run.cache_cleared:
        _say("CACHE_CLEARED=0 for this run: the caches of the other machines were not dropped")
        environ["CACHE_CLEARED"] = "0"
    oom_kills = cgroup.oom_kills(Sources())
    adopt_orphans()
    others = _descendants()
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
    only = "the training process" if start.launcher == "python" else f"rank {start.rank}"
    who, status = _relay(process, start.launcher, stop) if starts_all else (only, process.wait())
    _wait_for_rest(others)
    if result_file is not None and not start.rank:  # of several ranks that Slurm started, rank 0 owns the log
        log_file.stop_abandoned(result_file)
    if stop.signal is not None:
        _say(f"stopped by {stop.signal.name}; {_remains(result_file)}")
        return 128 + stop.signal
    number = -status if status < 0 else status - 128
    if number in set(signal.Signals):
        name, cause = signal.Signals(number).name, _cause(number, oom_kills)
        _say(f"{who} was killed by {name}{cause}; start the run again")
        return 128 + number
    return status


def _descendants() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def _wait_for_rest(others: set[psutil.Process]) -> None:
    """Wait for the descendants besides ``others``, and kill those that take longer than ``GRACE_SECONDS``.

    A launcher that was killed may end before its ranks, and a rank that is being killed still locks the log.
    """
    deadline = time.monotonic() + GRACE_SECONDS
    while rest := _descendants() - others:  # one that has lost its parent since can only now be waited for
        if time.monotonic() > deadline:
            kill(rest)
        psutil.wait_procs(rest, timeout=0.1)


def _remains(result_file: pathlib.Path | None) -> str:
    """Return what is left to do after a run was stopped."""
    if result_file is not None and result_file.exists():
        return f"the run had ended, and {result_file} is whole; weights that it was to save may be missing"
    return "the same command starts the run again"


def _cause(number: int, oom_kills_before: int) -> str:
    """Return `` (cause)``, to follow "killed by <signal>", or "" if no cause is known."""
    if number == signal.SIGKILL and cgroup.oom_kills(Sources()) > oom_kills_before:
        return " (out of memory: give the job more, or lower BATCHSIZE or DALI_PREFETCH_QUEUE)"
    if number == signal.SIGABRT and memory_limit_kib():
        return f" (ulimit -v {memory_limit_kib()} may be too little)"
    return f" ({USUAL_CAUSE[signal.Signals(number)]})" if number in USUAL_CAUSE else ""


def _say(line: str) -> None:
    say(f"rn50: {line}", err=True)


def _lines(output: IO[bytes]) -> Iterator[tuple[str, str]]:
    """Yield the lines of ``output``: (text, "stdout" or "stderr") of a rank without the prefix, (text, "") of
    the launcher.

    A message of the launcher may precede a rank's in one line, because it writes its own line ends
    separately. mpirun passes on what a rank has written so far, and prefixes the rest of the line again.
    """
    begun: dict[tuple[bytes, bytes], bytes] = {}
    for line in output:
        own_words, *pieces = _PREFIX.split(line)
        yield own_words.decode(errors="replace").rstrip(), ""
        for rank, stream, piece in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
            text = begun.pop((rank, stream), b"") + piece
            if text.endswith(b"\n"):
                yield text.decode(errors="replace").rstrip(), stream.decode()
            else:
                begun[rank, stream] = text
    for (_, stream), text in begun.items():  # of ranks that were killed
        yield text.decode(errors="replace").rstrip(), stream.decode()


def _relay(process: "subprocess.Popen[bytes]", launcher: str, stop: "_StopOnSignal") -> tuple[str, int]:
    """Print the output of the ranks without the launcher's prefixes and messages. Print an error line of
    several ranks only once.

    Returns who ended the job and the exit status. horovodrun reports both only in its messages; mpirun
    reports the rank there.
    """
    ended: dict[str, int] = {}
    first = ""
    complaints: set[str] = set()
    words: list[str] = []
    assert process.stdout is not None
    for text, stream in _lines(process.stdout):
        if not stream:
            for rank, status in re.findall(r"Process (\d+) exit with status code (-?\d+)", text):
                ended[f"rank {rank}"] = int(status)
            of_mpirun = re.search(r"Process name: \[\[\d+,\d+\],(\d+)\]|that process rank (\d+) ", text)
            if of_mpirun and not first:
                first = f"rank {of_mpirun[1] or of_mpirun[2]}"
            words += filter(None, [text.strip(" -")])
            continue
        if text.startswith("rn50: "):
            if text in complaints:
                continue
            complaints.add(text)
        elif stream == "stderr" and (complaints or ended or text in ("", "Terminated", "Killed")):
            continue  # messages of ranks that ended because another one did
        say(text, err=stream == "stderr")
    job_status = process.wait()
    if ended and job_status >= 0:  # a launcher that was killed is the reason why its ranks ended
        # Prefer an error with a remedy, then the first rank that neither lost another one (1) nor got
        # horovodrun's SIGTERM (143).
        with_remedy, left_behind = (Status.USER_ERROR, Status.DIVERGED), (Status.FAULT, 128 + signal.SIGTERM)
        return min(ended.items(), key=lambda item: (item[1] not in with_remedy, item[1] in left_behind))
    if first:
        return first, job_status
    if job_status > 0 and stop.signal is None:
        # mpirun gives the reason first and explains it afterwards; horovodrun gives it at the end of a
        # traceback.
        words = words or ["it does not say why"]
        _say(f"{launcher} ended with status {job_status}: {words[0 if launcher == 'mpirun' else -1]}")
    return launcher, job_status


class _StopOnSignal:
    """Asks the job to end on SIGINT, SIGTERM or SIGHUP, and kills it if that takes longer than
    ``GRACE_SECONDS``.

    Ranks run in a session of their own and get SIGTERM, whatever the signal was. So each gets one signal, and
    this process reports the reason.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._process: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGINT, signal.SIGTERM, *not_ignored(signal.SIGHUP)):
            signal.signal(number, self._handle)

    def watch(self, process: "subprocess.Popen[bytes]") -> None:
        """Ask ``process`` to end on a signal from now on, and at once if a signal came while it was being
        started."""
        self._process = process
        if self.signal is not None:
            self._end(process)

    def _handle(self, number: int, _: object) -> None:
        first = self.signal is None
        # Ctrl-C is the reason, even if a script's SIGTERM came before it.
        if first or number == signal.SIGINT:
            self.signal = signal.Signals(number)
        if first and self._process is not None:
            self._end(self._process)

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        process.terminate()
        later(GRACE_SECONDS, lambda: _end_by_force(process))


def _end_by_force(process: "subprocess.Popen[bytes]") -> None:
    """Kill the rest of the job: the launcher and its descendants, in any process group."""
    if process.poll() is None:
        launcher = psutil.Process(process.pid)
        kill([*launcher.children(recursive=True), launcher])

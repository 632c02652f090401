"""From one configured system to its processes: argv, environment, and an eye on them until the last one has ended."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Dict, List, Mapping, Optional, Set

import psutil

from rn50 import mlperf_log
from rn50.config import Config
from rn50.data import verify
from rn50.errors import UserError

GRACE_SECONDS = 30
"""What the processes get between a request to stop and their end by force."""


def command(config: Config) -> List[str]:
    """argv that starts every rank of the run on this machine. Raises UserError for what cannot be started yet."""
    train = [sys.executable, "-m", "rn50", "train"]
    if config.run.nodes > 1:
        raise UserError(f"DGXNNODES={config.run.nodes}: runs over several machines are not supported yet; set DGXNNODES=1")
    if config.ranks == 1:
        return train
    ranks = str(config.ranks)
    return [sys.executable, "-m", "horovod.runner.launch", "--gloo", "-np", ranks, "-H", f"localhost:{ranks}"] + train


def rank_environment(config: Config, environ: Mapping[str, str]) -> Dict[str, str]:
    """``environ`` with the defaults that every rank wants and the user did not give.

    More OpenMP threads than free cores spin against each other and cost far more than a factor (up to 17, measured), so each rank
    gets its share of the cores that this process may use.
    """
    cores = len(os.sched_getaffinity(0))
    defaults = {
        "OMP_NUM_THREADS": str(max(1, cores // config.run.ranks_per_node)),
        "HOROVOD_LOG_LEVEL": "fatal",  # a lost rank is reported once, by us
        "PYTHONUNBUFFERED": "1",
    }
    return {**defaults, **environ}


def launch(config: Config, environ: Mapping[str, str]) -> int:
    """Runs the configured system once and returns its exit status.

    Raises UserError before anything starts where data or result file are not as they have to be. Only the presence of the data
    is looked at: no file of it may be opened before the clock runs.
    """
    verify.preflight(pathlib.Path(config.data.folder))
    result_file: Optional[pathlib.Path] = pathlib.Path(config.run.result_file) if config.run.result_file else None
    if result_file is not None and result_file.exists():
        raise UserError(f"{result_file}: a result of this name exists; move it away or set another RESULT_FILE")
    argv = command(config)
    several = config.ranks > 1
    process = subprocess.Popen(
        argv,
        env=rank_environment(config, environ),
        start_new_session=True,
        stdout=subprocess.PIPE if several else None,
        stderr=subprocess.STDOUT if several else None,
    )
    asked_to_stop: List[int] = []

    def stop(number: int, _: object) -> None:
        if not asked_to_stop:
            asked_to_stop.append(number)
            process.send_signal(number)
            threading.Thread(target=_end_by_force, args=(process,), daemon=True).start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    rank_status = _relay(process) if several else None
    status = process.wait()
    if result_file is not None:
        mlperf_log.stop_abandoned(result_file)
    if asked_to_stop:
        return 128 + asked_to_stop[0]
    if status != 0 and rank_status is not None:
        status = rank_status
    if status < 0:
        print(f"rn50: the training process was killed by {signal.Signals(-status).name}; start the run again", file=sys.stderr)
        return 128 - status
    return status


def _relay(process: "subprocess.Popen[bytes]") -> Optional[int]:
    """Passes on what the ranks print, without horovodrun's prefixes and its own words, a line that several ranks print once.

    Returns the exit status of the rank that ended the job, which horovodrun says in words only.
    """
    status: Optional[int] = None
    seen: Set[str] = set()
    assert process.stdout is not None
    for raw in process.stdout:
        line = raw.decode(errors="replace").rstrip()
        rank_line = re.match(r"\[(\d+)\]<(stdout|stderr)>:(.*)", line)
        if rank_line is None:
            ended = re.match(r"Process (\d+) exit with status code (-?\d+)", line)
            if ended and status is None:
                status = int(ended[2])
                if status < 0 or status > 128:
                    number = -status if status < 0 else status - 128
                    print(f"rn50: rank {ended[1]} was killed by {signal.Signals(number).name}; start the run again",
                          file=sys.stderr, flush=True)
            continue
        text = rank_line[3]
        if not text or text in ("Terminated", "Killed") or (text.startswith("rn50: ") and text in seen):
            continue
        seen.add(text)
        print(text, file=sys.stdout if rank_line[2] == "stdout" else sys.stderr, flush=True)
    return status


def _end_by_force(process: "subprocess.Popen[bytes]") -> None:
    """Kills what is left of the job, whatever process groups its launcher has put it into."""
    time.sleep(GRACE_SECONDS)
    if process.poll() is None:
        for each in psutil.Process(process.pid).children(recursive=True):
            each.kill()
        process.kill()

"""From one configured system to its processes: argv, environment, and an eye on them until the last one has ended."""

import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Dict, List, Mapping, Optional

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
    defaults = {"OMP_NUM_THREADS": str(max(1, cores // config.run.ranks_per_node)), "PYTHONUNBUFFERED": "1"}
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
    process = subprocess.Popen(command(config), env=rank_environment(config, environ), start_new_session=True)
    asked_to_stop: List[int] = []

    def stop(number: int, _: object) -> None:
        if not asked_to_stop:
            asked_to_stop.append(number)
            process.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    status = _wait(process, asked_to_stop)
    if result_file is not None:
        mlperf_log.stop_abandoned(result_file)
    return 128 + asked_to_stop[0] if asked_to_stop else status if status >= 0 else 128 - status


def _wait(process: "subprocess.Popen[bytes]", asked_to_stop: List[int]) -> int:
    deadline: Optional[float] = None
    while True:
        try:
            return process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            if asked_to_stop and deadline is None:
                deadline = time.monotonic() + GRACE_SECONDS
            if deadline is not None and time.monotonic() > deadline:
                os.killpg(process.pid, signal.SIGKILL)

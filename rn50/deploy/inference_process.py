"""A subject of ``rn50 bench inference`` in a process of its own, so that engines share neither threads nor
memory."""

import contextlib
import functools
import multiprocessing
import os
import pathlib
import signal
import sys
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from rn50.deploy import inference_engines
from rn50.deploy.outcomes import LIMIT_S, ModelOnEngine, Run
from rn50.errors import UserError
from rn50.process import set_default

LEAST_REQUESTS = 3
"""Fewest requests that are timed in a round, however short the time."""
LEAD_IN_REQUESTS = 2
"""Untimed requests at the start of a round. They restore caches and threads after other subjects have run."""
GRACE_SECONDS = 5
"""Time between the request to end and the kill."""
MOST_OF_SECONDS = 3
"""A subject that cannot keep up with the arrivals stops after this many times its seconds."""


class Load(NamedTuple):
    """Requests of one round."""

    batch_size: int
    seconds: float
    rate: float | None
    """Requests per second that arrive; None: the next request arrives when the one before is answered."""


class Round(NamedTuple):
    """Latencies in seconds, and the time from the first arrival to the last answer, or to the next
    arrival."""

    latencies: list[float]
    seconds: float


def serve(run: Run, images: np.ndarray, load: Load) -> Round:
    """Send requests: each when the one before is answered, or at regular times. Then a latency includes the
    wait for earlier requests."""
    longest, most = load.seconds, sys.maxsize
    if load.rate is not None:
        longest, most = MOST_OF_SECONDS * load.seconds, max(LEAST_REQUESTS, round(load.seconds * load.rate))
    latencies: list[float] = []
    start = now = end = time.perf_counter()
    while len(latencies) < most and (now - start < longest or len(latencies) < LEAST_REQUESTS):
        due = now if load.rate is None else start + len(latencies) / load.rate
        if due > now:
            time.sleep(due - now)
        run(images)
        now = time.perf_counter()
        latencies.append(now - due)
    if load.rate is not None:
        end = start + len(latencies) / load.rate
    return Round(latencies, max(now, end) - start)


class Process:
    """A subject to be measured. It waits, without using a core, while others are measured."""

    def __init__(self, subject: ModelOnEngine, threads: int, log: pathlib.Path):
        """Start the process, which loads the model."""
        self.subject, self._log = subject, log
        log.touch()
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, subject, threads, str(log)), daemon=True)
        self._process.start()
        theirs.close()

    def measure(self, load: Load) -> Round:
        """Return one round of a load, when the model is loaded. Raises UserError if the engine fails."""
        with contextlib.suppress(BrokenPipeError):  # _answer says why
            self._pipe.send(load)
        return self._answer(MOST_OF_SECONDS * load.seconds)

    def close(self) -> None:
        """Ask the process to end, so that its framework can clean up, and kill it if it does not."""
        self._pipe.close()
        self._process.join(GRACE_SECONDS)
        self._process.kill()
        self._process.join()

    def _answer(self, seconds: float) -> Any:
        limit = seconds + LIMIT_S
        try:
            if not self._pipe.poll(limit):
                self._process.kill()
                raise UserError(self.subject.name, f"no answer within {limit:.0f} s", "leave it out")
            answer = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            lines = [line for line in self._log.read_text("utf-8", "replace").splitlines() if line.strip()]
            reason = lines[-1][:300] if lines else f"exit status {self._process.exitcode}"
            remedy = "leave the engine out, or give smaller --batch-sizes"
            raise UserError(self.subject.name, f"its process has ended ({reason})", remedy) from None
        if isinstance(answer, UserError):
            raise answer
        return answer


def _serve(pipe: Connection, subject: ModelOnEngine, threads: int, log: str) -> None:
    """Load a model and answer loads until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends this process
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    set_default("OMP_NUM_THREADS", str(threads))
    set_default("NVIDIA_TF32_OVERRIDE", "0")  # else a GPU's float32 has 10 bits of 23 in convolutions
    try:
        run, make = inference_engines.create(subject, threads)
        images_of = functools.cache(make)
        with contextlib.suppress(EOFError):
            while True:
                load: Load = pipe.recv()
                images = images_of(load.batch_size)
                for _ in range(LEAD_IN_REQUESTS):
                    run(images)
                pipe.send(serve(run, images, load))
    except UserError as error:
        pipe.send(error)

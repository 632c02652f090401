"""Run a subject of ``rn50 bench inference``, a model on an engine, in a process of its own, so that engines
share neither threads nor memory.

``inference.py`` creates a ``Process`` for each subject and sends it a ``Load`` for each round. The process
answers with a ``Round``.
"""

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
"""Smallest number of requests of a round, even if they take longer than its seconds."""
LEAD_IN_REQUESTS = 2
"""Untimed requests before a round. They fill caches and wake threads after other subjects have run."""
GRACE_SECONDS = 5
"""Time that a process has to end itself, before it is killed."""
LONGEST_ROUND = 3
"""A subject that does not keep up with the arrivals stops after this many times the seconds of its round."""


class Load(NamedTuple):
    """The requests of one round."""

    batch_size: int
    """Images of a request."""
    seconds: float
    """Time during which requests arrive."""
    rate: float | None
    """Requests per second that arrive; None: the next request arrives when the one before is answered."""


class Round(NamedTuple):
    """The measurement of one round."""

    latencies: list[float]
    """Seconds of every request, from its arrival to its answer."""
    seconds: float
    """Time from the first arrival to the last answer; at a fixed rate, to the time at which the next request
    would arrive if that is later."""


def serve(run: Run, images: np.ndarray, load: Load) -> Round:
    """Measure a round: call ``run`` for every request of the load. At a fixed rate the latency of a request
    includes the time that it waits for earlier requests."""
    # Without a rate the time ends the round. With a rate the number of requests does, or the time if the
    # answers are very late.
    time_limit = load.seconds
    request_limit = sys.maxsize
    if load.rate is not None:
        time_limit = LONGEST_ROUND * load.seconds
        request_limit = max(LEAST_REQUESTS, round(load.seconds * load.rate))
    latencies: list[float] = []
    start = now = time.perf_counter()
    while len(latencies) < LEAST_REQUESTS or (len(latencies) < request_limit and now - start < time_limit):
        due = now if load.rate is None else start + len(latencies) / load.rate
        if due > now:
            time.sleep(due - now)
        run(images)
        now = time.perf_counter()
        latencies.append(now - due)
    # At a fixed rate a round ends when the next request would arrive, or with a late answer after that.
    end = now if load.rate is None else max(now, start + len(latencies) / load.rate)
    return Round(latencies, end - start)


class Process:
    """The process of a subject. Between its rounds it waits, without using a core."""

    def __init__(self, subject: ModelOnEngine, threads: int, log: pathlib.Path):
        """Start the process, which loads the model and writes its output to ``log``."""
        self.subject, self._log = subject, log
        log.touch()  # ``_answer`` reads it even if the process ends before it writes
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, subject, threads, str(log)), daemon=True)
        self._process.start()
        theirs.close()  # so that the pipe ends when the process does

    def measure(self, load: Load) -> Round:
        """Measure one round, after the model is loaded. Raises UserError if the engine fails."""
        with contextlib.suppress(BrokenPipeError):  # the process has ended; _answer reports the reason
            self._pipe.send(load)
        return self._answer(LONGEST_ROUND * load.seconds)

    def close(self) -> None:
        """End the process: close its pipe, so that it ends itself and its framework can clean up, and kill it
        after ``GRACE_SECONDS``."""
        self._pipe.close()
        self._process.join(GRACE_SECONDS)
        self._process.kill()
        self._process.join()

    def _answer(self, seconds: float) -> Any:
        """Return the answer of the process to a load that may take ``seconds``. Raises UserError if the
        process has ended, gives no answer in time, or answers with an error."""
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
    """Load the model of a subject, then answer every load from the pipe with a round, until the parent closes
    its end of the pipe. If the engine fails, answer with the error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends this process
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):  # standard output and standard error
        os.dup2(descriptor, stream)
    set_default("OMP_NUM_THREADS", str(threads))
    # Without this, convolutions in float32 on a GPU use 10 of the 23 bits of a mantissa (TF32).
    set_default("NVIDIA_TF32_OVERRIDE", "0")
    try:
        run, random_images = inference_engines.create(subject, threads)
        images_of = functools.cache(random_images)  # one array for each batch size
        with contextlib.suppress(EOFError):
            while True:
                load: Load = pipe.recv()
                images = images_of(load.batch_size)
                for _ in range(LEAD_IN_REQUESTS):
                    run(images)
                pipe.send(serve(run, images, load))
    except UserError as error:
        pipe.send(error)

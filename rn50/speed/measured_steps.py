"""Training steps of a rank that measure and leave the weights as they are (``train``), and measurements
beside them: the input without steps (``take``), a loss (``loss_after``), the framework's profiler
(``profile``).

``Meter`` and ``cell.py`` call these functions on every rank at the same time.
"""

import dataclasses
import itertools
import time
from pathlib import Path
from typing import NamedTuple

from rn50 import frameworks
from rn50.data.pipeline.batches import Batches
from rn50.run.loop import EpochResult, LearningRates, Rank
from rn50.settings.fields import InputPipeline


class Operator(NamedTuple):
    """Calls and time of an operator of the framework, or of a kernel of a GPU, in all profiled steps."""

    name: str
    calls: int
    seconds: float
    """Time on the device, without the time of the operators that it called."""


def open_input(rank: Rank, settings: InputPipeline | None) -> Batches:
    """Return batches for ``train``: the training set through a pipeline of these settings; with None the same
    random batch again and again, held on the device.

    The rank must be warmed up (``Rank.warm_up``). Several inputs may be open at the same time. A pipeline
    delivers its first batch before this function returns, so that too little memory or missing data is an
    error here.
    """
    if settings is None:
        return rank.synthetic()
    batches = rank.open(dataclasses.replace(rank.config, input_pipeline=settings), "train")
    batches.drain()
    return batches


def train(rank: Rank, batches: Batches, lead_in: int, steps: int) -> EpochResult:
    """Run ``steps`` training steps at a learning rate of 0, which leaves the weights as they are. All ranks
    call it.

    The steps have to take the time that they take in the middle of a long run. So the batches in the queue,
    which were prepared in idle time, are discarded, and ``lead_in`` steps run before the steps that are timed
    and counted.
    """
    batches.drain()
    rank.train(batches, lead_in, lambda: 0.0)
    return rank.train(batches, steps, lambda: 0.0)


def take(batches: Batches, lead_in: int, steps: int) -> EpochResult:
    """Take as many batches as ``train`` does, but run no step. The result is that of the last ``steps``
    batches."""
    batches.drain()
    for _ in itertools.islice(batches.epoch(), lead_in):
        pass
    begin, waited = time.perf_counter(), batches.wait_seconds
    samples = sum(batch.samples for batch in itertools.islice(batches.epoch(), steps))
    return EpochResult(samples, time.perf_counter() - begin, batches.wait_seconds - waited)


def loss_after(rank: Rank, batches: Batches, steps: int) -> float:
    """Train for ``steps`` steps at the learning rates of the configuration. Return the mean loss of this
    rank's samples in the last of these steps.

    ``batches`` must have no end. The steps change the weights, so this is the last measurement of a rank.
    """
    losses: list[float] = []
    rank.train(batches, steps, LearningRates(rank.config).next, lambda _, loss: losses.append(loss))
    return losses[-1]


def profile(rank: Rank, batches: Batches, steps: int, trace: Path) -> tuple[EpochResult, list[Operator]]:
    """Run ``train`` under the framework's own profiler, which slows it down. Write the timeline to ``trace``
    in Chrome's tracing format. Return the result of ``train``, and every operator."""
    run = rank.config.run
    measure = frameworks.module(run.framework, "measure")
    return measure.profile(lambda: train(rank, batches, 0, steps), trace, run.device == "gpu")

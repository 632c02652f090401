"""Steps that only measure: on any batches, at a learning rate of 0, or under the framework's profiler."""

import dataclasses
import itertools
import pathlib
import time
from typing import NamedTuple

from rn50 import frameworks
from rn50.data.pipeline.batches import Batches
from rn50.run.loop import EpochResult, LearningRates, Rank
from rn50.settings.fields import InputPipeline


class Operator(NamedTuple):
    """Calls and time of one operator of the framework, or kernel of a GPU, in the profiled steps."""

    name: str
    calls: int
    seconds: float
    """Time on the device, without that of the operators it called."""


def open_input(rank: Rank, settings: InputPipeline | None) -> Batches:
    """Return batches for ``train``: the training set through a pipeline of these settings, or with None one
    random batch held on the device. ``warm_up`` comes first. Several inputs may be open at a time.

    A pipeline delivers its first batch before this returns, so too little memory or missing data is an error
    here.
    """
    if settings is None:
        return rank.synthetic()
    batches = rank.open(dataclasses.replace(rank.config, input_pipeline=settings), "train")
    batches.drain()
    return batches


def train(rank: Rank, batches: Batches, lead_in: int, steps: int) -> EpochResult:
    """Run ``steps`` training steps at a learning rate of 0, which leave the weights as they are. All ranks
    call it.

    They have to cost what they cost in the middle of a long run. So batches that were prepared ahead in idle
    time are discarded, and ``lead_in`` steps run before those that are timed and counted.
    """
    batches.drain()
    rank.train(batches, lead_in, lambda: 0.0)
    return rank.train(batches, steps, lambda: 0.0)


def take(batches: Batches, lead_in: int, steps: int) -> EpochResult:
    """Take as many batches as ``train``, without a step."""
    batches.drain()
    for count in (lead_in, steps):
        begin, waited = time.perf_counter(), batches.wait_seconds  # again for those that count
        samples = sum(batch.samples for batch in itertools.islice(batches.epoch(), count))
    return EpochResult(samples, time.perf_counter() - begin, batches.wait_seconds - waited)


def loss_after(rank: Rank, batches: Batches, steps: int) -> float:
    """Return the mean loss of this rank's samples in the last of the first ``steps`` of a run.

    ``batches`` have no end. It changes the weights, so it comes last.
    """
    losses: list[float] = []
    rank.train(batches, steps, LearningRates(rank.config).next, lambda _, loss: losses.append(loss))
    return losses[-1]


def profile(
    rank: Rank, batches: Batches, steps: int, trace: pathlib.Path
) -> tuple[EpochResult, list[Operator]]:
    """Run ``train`` under the framework's own profiler, which slows it, and write the timeline to ``trace``
    in Chrome's tracing format. Return also the seconds of every operator."""
    run = rank.config.run
    measure = frameworks.module(run.framework, "measure")
    return measure.profile(lambda: train(rank, batches, 0, steps), trace, run.device == "gpu")

"""The contract between measurements and a framework: training steps on any batches, its profiler, and its
model zoo."""

import contextlib
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np

from rn50 import frameworks
from rn50.data.pipeline.batches import Batches, BatchFormat
from rn50.run.implementation import EpochResult, Rank
from rn50.run.training import Pace
from rn50.settings.config import Config
from rn50.settings.fields import InputPipeline


class Operator(NamedTuple):
    """Calls and time of one operator of the framework, or kernel of a GPU, in the profiled steps."""

    name: str
    """Operator."""
    calls: int
    seconds: float
    """Time on the device, without that of the operators it called."""


class Measurable(Rank, Protocol):
    """One rank of a measurement, built by ``create(config)`` of ``implementations.<framework>.measure``.

    ``create(config, model)`` builds one with a model of the framework's own zoo in place of ours. Its
    precision is then the one in which our network's step is faster.
    """

    batch_format: BatchFormat
    """The form of the batches that the input pipeline makes, and where it makes them."""

    def open_input(self, settings: InputPipeline | None) -> Batches:
        """Return batches for ``train_steps``: the training set through a pipeline of these settings, or with
        None one random batch held on the device. ``warm_up`` comes first. Several inputs may be open at a
        time.

        A pipeline delivers its first batch before this returns, so too little memory or missing data is an
        error here.
        """

    def train_steps(self, batches: Batches, lead_in: int, steps: int, training: bool = True) -> EpochResult:
        """Run ``steps`` training steps at a learning rate of 0 on ``batches`` of ``open_input``; without
        ``training`` only take as many batches.

        The steps have to cost what they cost in the middle of a long run. So batches that were prepared ahead
        in idle time are discarded, and ``lead_in`` steps run before those that are timed and counted. All
        ranks call it.
        """

    def loss_after(self, batches: Batches, learning_rates: Sequence[float]) -> float:
        """Return the mean loss of this rank's samples in the last of as many steps as there are learning
        rates. It changes the weights, so it comes last."""

    def profile(
        self, batches: Batches, steps: int, trace: pathlib.Path
    ) -> tuple[EpochResult, list[Operator]]:
        """Run ``train_steps`` under the framework's own profiler, which slows it, and write the timeline to
        ``trace`` in Chrome's tracing format."""


class TrainingSteps:
    """Mixin with ``open_input`` and ``train_steps``. The implementation is the base before it, and has the
    members below."""

    config: Config
    _lost_rank_named: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    _array: Callable[[Any], np.ndarray]
    """Returns a copy of a tensor."""
    _synthetic: Callable[[], Batches]
    """Returns a random batch, held on the device and repeated."""
    _open: Callable[[Config, Any], Batches]
    """Returns the batches of a split."""
    _train_step: Callable[..., Any]
    """Runs forward pass, backward pass, all-reduce and update."""
    _wait: Callable[[], None]
    """Waits until the device has finished its work."""

    def open_input(self, settings: InputPipeline | None) -> Batches:
        """See ``Measurable``."""
        if settings is None:
            return self._synthetic()
        batches = self._open(dataclasses.replace(self.config, input_pipeline=settings), "train")
        batches.drain()
        return batches

    def train_steps(self, batches: Batches, lead_in: int, steps: int, training: bool = True) -> EpochResult:
        """See ``Measurable``."""
        pace = Pace()
        with self._lost_rank_named():
            batches.drain()
            for count in (lead_in, steps):
                pace.begin(batches)  # again for those that count
                for batch in itertools.islice(batches.epoch(), count):
                    if training:
                        self._train_step(batch, learning_rate=0.0)
                    pace.add(batch.samples)
                self._wait()
            return pace.result()

    def loss_after(self, batches: Batches, learning_rates: Sequence[float]) -> float:
        """See ``Measurable``."""
        every = itertools.chain.from_iterable(batches.epoch() for _ in itertools.count())
        with self._lost_rank_named():
            for batch, learning_rate in zip(every, learning_rates, strict=False):
                loss = self._train_step(batch, learning_rate)
            return float(self._array(loss).astype(np.float64).mean())


def load(framework: str, model: str | None = None) -> Callable[[Config], Measurable]:
    """Return ``create`` of ``implementations.<framework>.measure``, bound to a model of its ``zoo`` if one is
    named.

    Raises UserError if there is no such implementation or a package that it needs is missing.
    """
    create: Callable[..., Measurable] = frameworks.module(framework, "measure").create
    return create if model is None else functools.partial(create, model=model)


def zoo(framework: str) -> dict[str, int]:
    """Return the models of the framework's own zoo: name -> side of the input in pixels.

    Raises UserError as ``load`` does, and if the zoo is not installed.
    """
    return frameworks.module(framework, "zoo").models()

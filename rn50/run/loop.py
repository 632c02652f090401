"""One rank of a run or of a measurement: the loops over batches, around an engine.

No other code trains or evaluates on batches. Clock, log and stop rule are in ``timed_run.py``; what is
computed in a step is in ``implementations/<framework>/engine.py``.
"""

import contextlib
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, get_args

import numpy as np

from rn50 import frameworks
from rn50.benchmark import schedule
from rn50.data.pipeline import record_set
from rn50.data.pipeline.batches import Batch, Batches, RepeatedBatch, Split
from rn50.run import input_library, precision
from rn50.run.communicators import SingleProcess, connect
from rn50.run.engine import Communicator, Engine, Tensor
from rn50.settings.config import Config

OnProgress = Callable[[int, float], None]
"""Called with (samples seen by this rank in this epoch, mean training loss of a step): after the second step
of the run, now and then during an epoch, and at its end."""
PROGRESS_SECONDS = 1.0
"""Least time between two reports of an epoch's progress."""
WARM_UP_STEPS = 3


class EpochResult(NamedTuple):
    """The result of one rank's pass over its part of the training set."""

    samples: int
    seconds: float
    data_wait_seconds: float
    """The part of ``seconds`` in which the training loop waited for its next batch."""
    sample_order: int | None = None
    """See ``Batches.sample_order``."""


class Rank:
    """This process's rank. Raises UserError if the framework or its device is missing.

    With ``model`` it times a model of the framework's own zoo, in the precision that is chosen for our
    network.
    """

    def __init__(self, config: Config, model: str | None = None):
        self.config = config
        self.communicator = connect(config)
        self.engine = self._engine(self.communicator, model)
        self.precision = precision.before_warm_up(config)
        """Precision of the matrix products, the same on all ranks; final after ``warm_up``."""
        self.forward_seconds = math.inf
        """Seconds of a forward pass of this rank alone, known after ``warm_up``. It shows which rank is
        slow."""
        self.steps = 0
        """Batches of any kind begun so far; the watchdog's thread reads it."""
        self._rates = LearningRates(config)
        self._last_report = 0.0  # the first one is due at once
        self._data: dict[Split, Batches] = {}

    def warm_up(self, seed: int) -> list[str]:
        """Build and compile everything on a synthetic batch, then go back to the weights of ``seed``; touch
        no file of the data set. Return the names of the trainable tensors.

        Libraries compile kernels and choose algorithms for each shape, which must not happen after the clock
        has started. So there is a step of each batch size with which a pass over the training set ends.
        """
        config, engine, self._seed = self.config, self.engine, seed
        with self.communicator.lost_rank_named():
            input_library.prepare(config, engine.batch_format)  # before a network takes the GPU's memory
            self.precision = precision.choose(config, self.communicator, self._trial)
            names = engine.build(seed, self.precision.name)
            initial, batch, seconds = self.weights(), engine.synthetic(), []
            for _ in range(WARM_UP_STEPS):
                self._dry_step(engine, batch)
                begin = time.perf_counter()
                engine.correct(batch)
                engine.wait()
                seconds.append(time.perf_counter() - begin)
            data, batch_size = config.data, config.hyperparameters.batch_size
            for samples in record_set.ragged_sizes(data.train_samples, config.ranks, batch_size):
                self._dry_step(engine, batch._replace(samples=samples))
            self.assign(initial)
            self.assign_momentum({name: np.zeros_like(array) for name, array in self.momentum().items()})
            engine.wait()
        self.forward_seconds = min(seconds)
        return names

    def open_data(self) -> None:
        """Open the data set. Before this call no file of it may be opened, its index included."""
        self._data = {split: self.open(self.config, split) for split in get_args(Split)}

    def begin_after(self, epoch: int, seed: int) -> None:
        """Go on as after ``epoch`` epochs: count their steps, and reopen the training set, read with
        ``seed``. Call it after ``open_data``."""
        self._rates.go_on_after(epoch)
        self._seed = seed
        del self._data["train"]  # ends its threads before others start
        self._data["train"] = self.open(self.config, "train")

    def train_epoch(self, progress: OnProgress) -> EpochResult:
        """Train one epoch: every sample exactly once across the ranks."""
        return self.train(self._data["train"], self.config.run.benchmark_steps, self._rates.next, progress)

    def train(
        self,
        batches: Batches,
        steps: int | None,
        rate: Callable[[], float],
        progress: OnProgress = lambda samples, loss: None,
    ) -> EpochResult:
        """Train on one pass over ``batches``, at most ``steps`` of them; ``rate`` returns the learning rate
        of the next step."""
        engine, samples, previous = self.engine, 0, None
        begin, waited_before = time.perf_counter(), batches.wait_seconds
        with self.communicator.lost_rank_named():
            for batch in itertools.islice(batches.epoch(), steps):
                self.steps += 1
                # Forward pass, backward pass, all-reduce and update.
                loss = engine.step(batch, rate())
                samples += batch.samples
                # Once a second report the loss of the step before: reading the latest would drain the device.
                if previous is not None and time.perf_counter() - self._last_report > PROGRESS_SECONDS:
                    self._last_report = time.perf_counter()
                    progress(samples, engine.mean(previous))
                    batches.check_labels()
                previous = loss
            batches.check_labels()
            engine.wait()
            seconds = time.perf_counter() - begin
            if previous is not None:
                progress(samples, engine.mean(previous))
        return EpochResult(samples, seconds, batches.wait_seconds - waited_before, batches.sample_order)

    def evaluate(self) -> tuple[int, int]:
        """Return (correct, total) of this rank's part of the validation set."""
        correct: Tensor = 0
        batches, total = self._data["val"], 0
        with self.communicator.lost_rank_named():
            for batch in batches.epoch():
                self.steps += 1
                if batch.samples:
                    correct = correct + self.engine.correct(batch)
                    total += batch.samples
            batches.check_labels()
            return int(self.engine.array(correct).item()) if total else 0, total

    def predictions(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield float32 logits (n, classes) and labels (n,) of the batches that ``evaluate`` counts.

        Call it after ``warm_up``. It opens the validation set itself, because an evaluation alone needs no
        training set.
        """
        batches, array = self.open(self.config, "val"), self.engine.array
        for images, labels, samples, _ in batches.epoch():
            self.steps += 1
            yield array(self.engine.logits(images))[:samples], array(labels)[:samples]
        batches.check_labels()

    @property
    def waits_for_data(self) -> bool:
        """True while a requested batch is not ready."""
        return any(batches.waiting for batches in list(self._data.values()))

    def weights(self) -> dict[str, np.ndarray]:
        """Return float32 copies of all tensors, by the names and in the shapes of
        ``rn50.benchmark.network.shapes``."""
        return {name: self.engine.array(tensor) for name, tensor in self.engine.tensors().items()}

    def assign(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Give tensors these values, by the names of ``weights``. Momentum is unchanged."""
        self._set(self.engine.tensors(), arrays)

    def momentum(self) -> dict[str, np.ndarray]:
        """Return float32 copies of the momentum, by the names of the trainable tensors."""
        return {name: self.engine.array(tensor) for name, tensor in self.engine.momentum().items()}

    def assign_momentum(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Give the momentum these values."""
        self._set(self.engine.momentum(), arrays)

    def open(self, config: Config, split: Split) -> Batches:
        """Return the batches of a split; ``config`` may differ in its input pipeline, to measure it."""
        batch_format = self.engine.batch_format
        return input_library.open_batches(config, split, self.communicator, self._seed, batch_format)

    def synthetic(self) -> Batches:
        """Return one random batch, held on the device and repeated without end."""
        return RepeatedBatch(self.engine.synthetic())

    def close(self) -> None:
        """End the input threads and leave the job. It may be called after a fault, and before
        ``open_data``."""
        self._data = {}
        self.communicator.close()

    def _engine(self, communicator: Communicator, model: str | None = None) -> Engine:
        module = frameworks.module(self.config.run.framework, "zoo" if model else "engine")
        engine: Engine = module.create(self.config, communicator, *([model] if model else []))
        return engine

    def _set(self, tensors: Mapping[str, Tensor], arrays: Mapping[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            self.engine.set(tensors[name], array)

    def _dry_step(self, engine: Engine, batch: Batch) -> None:
        """Run a step at a learning rate of 0 to its end. It changes running statistics and momentum."""
        self.steps += 1
        engine.step(batch, 0.0)
        engine.wait()

    def _trial(self, name: str) -> Callable[[], None]:
        """Return a step of our network in a precision, by an engine of one rank: ranks make different numbers
        of these steps."""
        engine = self._engine(SingleProcess(self.communicator.local_rank))
        engine.build(self._seed, name)
        return functools.partial(self._dry_step, engine, engine.synthetic())


@contextlib.contextmanager
def opened(config: Config, model: str | None = None) -> Iterator[Rank]:
    """Yield this process's rank. At the end it waits for the others, and it is closed whatever happens."""
    rank = Rank(config, model)
    try:
        yield rank
        rank.communicator.barrier()
    finally:
        rank.close()


class LearningRates:
    """Counts the steps of a run and gives the learning rate of each (``rn50.benchmark.schedule``)."""

    def __init__(self, config: Config):
        h = config.hyperparameters
        steps = schedule.steps_per_epoch(config.data.train_samples, config.ranks, h.batch_size)
        batches = record_set.batches(config.data.train_samples, config.ranks, h.batch_size)
        self._steps_per_epoch = min(batches, config.run.benchmark_steps or batches)
        self.of = functools.partial(schedule.learning_rate, recipe=config.recipe, steps_per_epoch=steps)
        """Function that returns the learning rate of a step, counted from 1."""
        self._step = 0

    def go_on_after(self, epoch: int) -> None:
        """Go on as after ``epoch`` epochs."""
        self._step = epoch * self._steps_per_epoch

    def next(self) -> float:
        """Begin the next step and return its learning rate."""
        self._step += 1
        return self.of(self._step)

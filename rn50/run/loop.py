"""One rank of a run or of a measurement: the loops over batches, around the engine of a framework.

``timed_run.py`` calls ``Rank`` for training runs, the modules of ``rn50/speed`` call it for measurements. No
other code trains or evaluates on batches. Clock, log and stop rule are in ``timed_run.py``. The computation
of a step is in ``implementations/<framework>/engine.py``.
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
"""Function called with (samples that this rank has trained on in this epoch, mean training loss of a step):
after the second step of the run, then every ``PROGRESS_SECONDS``, and at the end of an epoch."""
PROGRESS_SECONDS = 1.0
"""Least time between two reports of an epoch's progress."""
WARM_UP_STEPS = 3
"""Training steps and forward passes of a full batch in the warm-up. The first step compiles; the fastest of
the forward passes is ``Rank.forward_seconds``."""
AVERAGE_PERIOD = 10
"""Steps between two updates of the averages of EMA_HALF_LIFE, so that they cost little time."""


class EpochResult(NamedTuple):
    """The result of one rank's pass over its part of the training set."""

    samples: int
    seconds: float
    data_wait_seconds: float
    """The part of ``seconds`` in which the training loop waited for its next batch."""
    sample_order: int | None = None
    """This rank's part of the hash of the order of the samples: ``Batches.sample_order``. None: unknown."""


class Rank:
    """The rank that this process is: its engine, its communicator, and the loops that train and evaluate.

    With ``model``, the engine trains that model of the framework's own zoo in place of ResNet-50, in the
    precision that is chosen for ResNet-50. Raises UserError if the framework or its device is missing.
    """

    def __init__(self, config: Config, model: str | None = None):
        self.config = config
        self.communicator = connect(config)
        self.engine = self._engine(self.communicator, model)
        self.precision = precision.before_warm_up(config)
        """Precision of the matrix products, the same on all ranks. ``warm_up`` may change it, and nothing
        after that."""
        self.forward_seconds = math.inf
        """Seconds of the fastest forward pass of the warm-up. No other rank takes part in a forward pass, so
        they show which rank is slow."""
        self.steps = 0
        """Batches begun so far, in warm-up, training or evaluation. By it the watchdog, another thread of
        this process, knows that the rank makes progress."""
        self._rates = LearningRates(config)
        self._last_report = 0.0  # time of the last call of OnProgress; 0 makes the first one due at once
        self._data: dict[Split, Batches] = {}

    def warm_up(self, seed: int) -> list[str]:
        """Build the network and compile everything on a synthetic batch, then set the initial weights of
        ``seed`` again. Touch no file of the data set, and keep ``seed`` for the random order and crops of the
        data that are opened later. Return the names of the trainable tensors.

        Libraries compile kernels and choose algorithms for each shape, which must not happen after the clock
        has started. The last batch of an epoch may be smaller than the others, so the warm-up makes a step of
        each size that a last batch has, and all these steps with each size of images that IMAGE_SIZES has.
        """
        config, engine = self.config, self.engine
        self._seed = seed
        with self.communicator.lost_rank_named():
            input_library.prepare(config, engine.batch_format)  # before a network takes the GPU's memory
            self.precision = precision.choose(config, self.communicator, self._trial)
            names = engine.build(seed, self.precision.name)
            initial_weights = self.weights()
            samples, batch_size = config.data.train_samples, config.hyperparameters.batch_size
            ragged = record_set.ragged_sizes(samples, config.ranks, batch_size)
            for image_size in config.image_sizes:
                batch = engine.synthetic(image_size)
                for _ in range(WARM_UP_STEPS):
                    self._dry_step(engine, batch)
                for samples in ragged:
                    self._dry_step(engine, batch._replace(samples=samples))
            batch = engine.synthetic(config.data.image_size)
            for _ in range(WARM_UP_STEPS):
                begin = time.perf_counter()
                engine.correct(batch)  # a forward pass
                engine.wait()
                self.forward_seconds = min(self.forward_seconds, time.perf_counter() - begin)
            self.assign_state({name: np.zeros_like(array) for name, array in self.state().items()})
            self.assign(initial_weights)
            engine.wait()
        return names

    def open_data(self) -> None:
        """Open the data set. Before this call no file of it may be opened, its index included."""
        self._data = {split: self.open(self.config, split) for split in get_args(Split)}  # train and val

    def begin_after(self, epoch: int, seed: int) -> None:
        """Continue as if this rank had trained ``epoch`` epochs: learning rates go on from their last step,
        and the training set is opened again, its random order and crops drawn from ``seed``. Call it after
        ``open_data``."""
        self._rates.go_on_after(epoch)
        self._seed = seed
        del self._data["train"]  # ends the threads of the old batches before those of the new ones start
        self._data["train"] = self.open(self.config, "train", epoch + 1)

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
        """Train on one pass over ``batches``, at most ``steps`` of them (None: all). ``rate`` returns the
        learning rate of the next step."""
        samples = 0
        previous_loss = None
        wait_seconds_before = batches.wait_seconds
        begin = time.perf_counter()
        with self.communicator.lost_rank_named():
            for batch in itertools.islice(batches.epoch(), steps):
                self.steps += 1
                # Forward pass, backward pass, all-reduce and update.
                loss = self.engine.step(batch, rate(), self._rates.average_share)
                samples += batch.samples
                # Once a second report the loss of the step before this one. Reading the loss of this step
                # would wait for the device, which then has nothing to do until the next step is launched.
                if previous_loss is not None and time.perf_counter() - self._last_report > PROGRESS_SECONDS:
                    self._last_report = time.perf_counter()
                    progress(samples, self.engine.mean(previous_loss))
                    batches.check_labels()  # raises UserError for a label that is no class
                previous_loss = loss
            batches.check_labels()
            self.engine.wait()
            seconds = time.perf_counter() - begin
            if previous_loss is not None:
                progress(samples, self.engine.mean(previous_loss))
        return EpochResult(samples, seconds, batches.wait_seconds - wait_seconds_before, batches.sample_order)

    def evaluate(self) -> tuple[int, int]:
        """Return (correct samples, all samples) of this rank's part of the validation set."""
        batches = self._data["val"]
        correct: Tensor = 0
        total = 0
        with self.communicator.lost_rank_named():
            for batch in batches.epoch():
                self.steps += 1
                # All ranks have as many batches as the largest shard; the last of a smaller one may be empty.
                if batch.samples:
                    correct = correct + self.engine.correct(batch)
                    total += batch.samples
            batches.check_labels()
            # Without a batch ``correct`` is not a tensor, but still the number 0.
            return int(self.engine.array(correct).item()) if total else 0, total

    def predictions(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield float32 logits (n, classes) and labels (n,) of each batch of this rank's part of the
        validation set.

        Call it after ``warm_up``. It opens the validation set itself, so that a mere evaluation does not have
        to call ``open_data``, which opens the training set too.
        """
        engine, batches = self.engine, self.open(self.config, "val")
        for batch in batches.epoch():
            self.steps += 1
            logits = engine.array(engine.logits(batch.images))
            yield logits[: batch.samples], engine.array(batch.labels)[: batch.samples]
        batches.check_labels()

    @property
    def waits_for_data(self) -> bool:
        """True while a loop waits for the input library to finish its next batch."""
        # The watchdog's thread reads this, while the rank's own may open or drop batches: hence the copy.
        return any(batches.waiting for batches in list(self._data.values()))

    def weights(self) -> dict[str, np.ndarray]:
        """Return float32 copies of all tensors, by the names and in the shapes of
        ``rn50.benchmark.network.shapes``."""
        return {name: self.engine.array(tensor) for name, tensor in self.engine.tensors().items()}

    def assign(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Set the tensors that ``arrays`` names, by the names of ``weights``, and their averages. Momentum is
        unchanged."""
        averages = self.engine.state()["average"]
        self._set(self.engine.tensors(), arrays)
        self._set(averages, {name: array for name, array in arrays.items() if name in averages})

    def state(self) -> dict[str, np.ndarray]:
        """Return float32 copies of what a step changes besides ``weights``: NAME_momentum of each trainable
        tensor, and with EMA_HALF_LIFE NAME_average of every tensor."""
        return {name: self.engine.array(tensor) for name, tensor in self._state_tensors().items()}

    def assign_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Set what ``arrays`` names, by the names of ``state``."""
        self._set(self._state_tensors(), arrays)

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """In this context have the averages of EMA_HALF_LIFE in place of the trained tensors, to evaluate and
        save them. Without EMA_HALF_LIFE the trained tensors stay."""
        averages, tensors = self.engine.state()["average"], self.engine.tensors()
        trained = {name: self.engine.array(tensors[name]) for name in averages}
        self._set(tensors, {name: self.engine.array(average) for name, average in averages.items()})
        try:
            yield
        finally:
            self._set(tensors, trained)

    def open(self, config: Config, split: Split, first_epoch: int = 1) -> Batches:
        """Return the batches of a split. ``config`` is this rank's, or differs from it in the input pipeline,
        for measurements of the pipeline. ``first_epoch`` is the epoch of the first pass, which decides the
        size of its images."""
        place = self.communicator, self._seed, self.engine.batch_format
        return input_library.open_batches(config, split, *place, first_epoch)

    def synthetic(self) -> Batches:
        """Return one random batch, held on the device and repeated without end."""
        return RepeatedBatch(self.engine.synthetic(self.config.data.image_size))

    def close(self) -> None:
        """End the input threads and leave the job. It may be called after a fault, and before
        ``open_data``."""
        self._data = {}
        self.communicator.close()

    def _engine(self, communicator: Communicator, model: str | None = None) -> Engine:
        """Return a new engine of the framework, of ResNet-50 or of a ``model`` of the framework's zoo."""
        framework = self.config.run.framework
        if model:
            return frameworks.module(framework, "zoo").create(self.config, communicator, model)
        return frameworks.module(framework, "engine").create(self.config, communicator)

    def _state_tensors(self) -> dict[str, Tensor]:
        """Return the tensors that ``state`` returns as arrays, by its names."""
        kinds = self.engine.state().items()
        return {f"{name}_{kind}": tensor for kind, tensors in kinds for name, tensor in tensors.items()}

    def _set(self, tensors: Mapping[str, Tensor], arrays: Mapping[str, np.ndarray]) -> None:
        """Set those of ``tensors`` that ``arrays`` names."""
        for name, array in arrays.items():
            self.engine.set(tensors[name], array)

    def _dry_step(self, engine: Engine, batch: Batch) -> None:
        """Run a step at a learning rate of 0, and wait for its end. The step changes running statistics and
        momentum, but no weights."""
        self.steps += 1
        engine.step(batch, 0.0)
        engine.wait()

    def _trial(self, name: str) -> Callable[[], None]:
        """Return a function that runs one step of ResNet-50 in the precision ``name``. Its engine takes this
        rank for the only one, because the ranks do not make equally many of these steps."""
        engine = self._engine(SingleProcess(self.communicator.local_rank))
        engine.build(self._seed, name)
        return functools.partial(self._dry_step, engine, engine.synthetic(self.config.data.image_size))


@contextlib.contextmanager
def opened(config: Config, model: str | None = None) -> Iterator[Rank]:
    """Yield a new rank. At the end of the context wait for the other ranks; close the rank whatever
    happens."""
    rank = Rank(config, model)
    try:
        yield rank
        rank.communicator.barrier()
    finally:
        rank.close()


class LearningRates:
    """Counts the steps of a run and returns the learning rate of each (``rn50.benchmark.schedule``)."""

    def __init__(self, config: Config):
        samples, batch_size = config.data.train_samples, config.hyperparameters.batch_size
        # The steps of an epoch in the schedule, and those that a rank really makes. The schedule rounds the
        # samples of a rank down. A rank makes one step more if the largest shard, which is rounded up, needs
        # one more batch; with BENCHMARK_STEPS it makes at most that many.
        steps = schedule.steps_per_epoch(samples, config.ranks, batch_size)
        batches = record_set.batches(samples, config.ranks, batch_size)
        self._steps_per_epoch = min(batches, config.run.benchmark_steps or batches)
        self.rate_of = functools.partial(schedule.learning_rate, recipe=config.recipe, steps_per_epoch=steps)
        """Function that returns the learning rate of a step, counted from 1."""
        self._step, self._half_life = 0, config.hyperparameters.ema_half_life

    @property
    def average_share(self) -> float:
        """Share that the tensors after this step get in their averages, from 0 to 1.

        In the first ``AVERAGE_PERIOD`` steps it is 1: the averages are copies. After that every
        ``AVERAGE_PERIOD`` steps what was averaged keeps ``0.5 ** (AVERAGE_PERIOD / EMA_HALF_LIFE)``.
        """
        if not self._half_life or self._step > AVERAGE_PERIOD and self._step % AVERAGE_PERIOD:
            return 0.0
        return 1.0 if self._step <= AVERAGE_PERIOD else 1 - 0.5 ** (AVERAGE_PERIOD / self._half_life)

    def go_on_after(self, epoch: int) -> None:
        """Count the steps of ``epoch`` epochs as made."""
        self._step = epoch * self._steps_per_epoch

    def next(self) -> float:
        """Begin the next step and return its learning rate."""
        self._step += 1
        return self.rate_of(self._step)

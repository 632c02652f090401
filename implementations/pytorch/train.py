"""One rank of the timed run in PyTorch: from a batch of the input pipeline to the update of the weights."""

import dataclasses
import itertools
import math
import pathlib
import time
from typing import Any, List, Optional, Tuple

import torch

from implementations.pytorch import zoo
from implementations.pytorch.communicator import join, lost_rank_named
from implementations.pytorch.input_library import open_batches, prepare
from implementations.pytorch.input_pipeline import SyntheticBatches, batch_format
from implementations.pytorch.model import ResNet50, evaluation, trainable
from implementations.pytorch.model import join as join_parameters
from implementations.pytorch.optimizer import OPTIMIZERS, in_order
from implementations.pytorch.step import Eager, normalise_of, of_full_batches
from rn50.benchmark import schedule
from rn50.errors import UserError
from rn50.machine.hardware import fastest_cpu_precision
from rn50.run.implementation import EpochResult, Operator, Progress
from rn50.settings.config import Config, InputPipeline

PROGRESS_SECONDS = 1.0
WARM_UP_STEPS = 3


def create(config: Config, model: Optional[str] = None) -> "PytorchImplementation":
    """Return the implementation for ``config.run.framework`` "pytorch"; ``model`` names one of torchvision to time instead."""
    return PytorchImplementation(config, model)


class PytorchImplementation:
    """See ``rn50.run.implementation.Implementation``."""

    def __init__(self, config: Config, model: Optional[str] = None):
        self.config = config
        self._model = model
        on_gpu = config.run.device == "gpu"
        self.communicator: Any = join(config)
        if on_gpu and torch.cuda.device_count() <= self.communicator.local_rank:
            raise UserError("DEVICE=gpu",
                            f"PyTorch sees {torch.cuda.device_count()} GPUs, DGXNGPU={config.run.ranks_per_node} asks for more",
                            "set DEVICE=cpu, or install a driver and a PyTorch that fit the GPUs")
        self.device = torch.device("cuda", self.communicator.local_rank) if on_gpu else torch.device("cpu")
        torch.backends.cudnn.benchmark = on_gpu  # every shape recurs some ten thousand times
        auto = "float16" if on_gpu else fastest_cpu_precision()
        self.precision = auto if config.run.precision == "auto" else config.run.precision
        self.batch_format = batch_format(self.device, self.precision)
        h, data = config.hyperparameters, config.data
        steps = schedule.steps_per_epoch(data.train_samples, config.ranks, h.batch_size)
        self._warmup_steps, self._schedule_steps = round(h.warmup_epochs * steps), round(h.schedule_epochs * steps)
        self._step = self.steps = 0
        self._reported = 0.0
        self.forward_seconds = math.inf
        self.training_data: Any = None
        self.validation_data: Any = None

    @property
    def waits_for_data(self) -> bool:
        """True while a requested batch is not ready."""
        return any(data is not None and data.waiting for data in (self.training_data, self.validation_data))

    @lost_rank_named()
    def warm_up(self, seed: int) -> List[str]:
        """Build and compile everything on synthetic batches, then restore the weights of ``seed``."""
        h = self.config.hyperparameters
        self._seed = seed
        prepare(self.config, self.device, self.precision)
        self.network = self._untrained().to(self.device)
        self.network.initialize(seed)
        self.parameters = trainable(self.network)
        ordered = in_order(self.parameters)
        weights, self._gradients = join_parameters(ordered, lambda values: self.communicator.gradients(values, self.device))
        self.optimizer = OPTIMIZERS[h.optimizer](ordered, weights, self._gradients, h)
        synthetic = self.open_input(None)
        batch = next(synthetic.epoch())
        self._ragged_step = Eager(self.network, self._gradients, h.label_smoothing)
        self._full_step = of_full_batches(self.config.run.step_mode, self._ragged_step, batch.images, batch.labels)
        for batch in itertools.islice(synthetic.epoch(), WARM_UP_STEPS):
            self._train_step(batch, learning_rate=0.0)
            self._wait()
            begin = time.perf_counter()
            self._evaluate(batch.images, batch.labels)
            self._wait()
            self.forward_seconds = min(self.forward_seconds, time.perf_counter() - begin)
        self.network.initialize(seed)
        self.optimizer.reset()
        self._wait()
        return [parameter.name for parameter in self.parameters]

    def _untrained(self) -> Any:
        """Return the network without values."""
        h, data = self.config.hyperparameters, self.config.data
        if self._model is not None:
            return zoo.ZooNetwork(self._model, data.classes, self.precision)
        normalise = normalise_of(self.config.run.step_mode, self.device)
        return ResNet50(data.classes, data.width, h.bn_gamma_zero, self.precision, normalise)

    def open_data(self) -> None:
        """Open the data set for the first time."""
        self.training_data, self.validation_data = (
            open_batches(self.config, training, self.communicator, self._seed, self.device, self.precision)
            for training in (True, False)
        )

    def open_input(self, knobs: Optional[InputPipeline]) -> Any:
        """Return batches for ``train_steps``: the training set through a pipeline of these settings, or with None a random batch
        on the device."""
        if knobs is None:
            return SyntheticBatches(self.config, self.communicator.size, self.device, self.precision)
        config = dataclasses.replace(self.config, input_pipeline=knobs)
        batches = open_batches(config, True, self.communicator, self._seed, self.device, self.precision)
        batches.drain()
        return batches

    @lost_rank_named()
    def train_steps(self, batches: Any, lead_in: int, steps: int) -> EpochResult:
        """Run steps that leave the weights as they are. The first ``lead_in`` steps are not timed."""
        batches.drain()
        for batch in itertools.islice(batches.epoch(), lead_in):
            self._train_step(batch, learning_rate=0.0)
        self._wait()
        begin, waited, samples = time.perf_counter(), batches.wait_seconds, 0
        for batch in itertools.islice(batches.epoch(), steps):
            self._train_step(batch, learning_rate=0.0)
            samples += batch.samples
        self._wait()
        return EpochResult(samples, time.perf_counter() - begin, batches.wait_seconds - waited)

    def profile(self, batches: Any, steps: int, trace: pathlib.Path) -> Tuple[EpochResult, List[Operator]]:
        """Run steps under PyTorch's profiler."""
        activity = torch.profiler.ProfilerActivity
        on_gpu = self.device.type == "cuda"
        with torch.profiler.profile(activities=[activity.CPU, activity.CUDA] if on_gpu else [activity.CPU]) as profiler:
            result = self.train_steps(batches, 0, steps)
        profiler.export_chrome_trace(str(trace))
        taken = "self_device_time_total" if on_gpu else "self_cpu_time_total"
        every = [Operator(each.key, each.count, getattr(each, taken) / 1e6) for each in profiler.key_averages()]
        return result, [each for each in every if each.seconds]

    @lost_rank_named()
    def train_epoch(self, epoch: int, progress: Progress) -> EpochResult:
        """Train on one pass over the training set."""
        begin = time.perf_counter()
        waited = self.training_data.wait_seconds
        samples = 0
        previous: Any = None
        for batch in itertools.islice(self.training_data.epoch(), self.config.run.benchmark_steps):
            self._step += 1
            loss = self._train_step(batch, self._learning_rate())
            samples += batch.samples
            if time.perf_counter() - self._reported > PROGRESS_SECONDS and previous is not None:
                # The loss of the previous step, because reading it does not drain the device.
                progress(samples, float(previous.mean()))
                self.training_data.check_labels()
                self._reported = time.perf_counter()
            previous = loss
        self.training_data.check_labels()
        self._wait()
        result = EpochResult(samples, time.perf_counter() - begin, self.training_data.wait_seconds - waited)
        progress(samples, float(previous.mean()))
        return result

    def _learning_rate(self) -> float:
        return schedule.learning_rate(
            self._step, self.config.hyperparameters.learning_rate, self._warmup_steps, self._schedule_steps
        )

    def _train_step(self, batch: Any, learning_rate: float) -> torch.Tensor:
        """Run forward pass, backward pass, all-reduce and update; return the loss of every sample."""
        self.steps += 1
        images, labels, samples, global_samples = batch
        ragged = samples < len(labels)
        loss = self._ragged_step(images[:samples], labels[:samples]) if ragged else self._full_step(images, labels)
        self.communicator.all_reduce_gradients(self._gradients)
        self.optimizer.step(learning_rate, global_samples)
        return loss

    @torch.no_grad()
    def _evaluate(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.network.eval()
        return evaluation(self.network, images, labels)

    @lost_rank_named()
    def evaluate(self) -> Tuple[int, int]:
        """Return (correct, total) of this rank's shard of the validation set."""
        correct, total = torch.zeros((), dtype=torch.int64, device=self.device), 0
        for batch in self.validation_data.epoch():
            self.steps += 1
            if batch.samples:
                correct += self._evaluate(batch.images, batch.labels)[: batch.samples].sum()
                total += batch.samples
        self.validation_data.check_labels()
        return int(correct), total

    def _wait(self) -> None:
        """Wait until the device has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def close(self) -> None:
        """End the input threads and leave the job."""
        self.training_data = self.validation_data = None
        self.communicator.close()

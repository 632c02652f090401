"""One rank of the timed run in MXNet: from a batch of the input pipeline to the update of the weights."""

import dataclasses
import itertools
import json
import math
import pathlib
import time
from typing import Any, List, Optional, Tuple

import mxnet as mx
from mxnet import autograd

from implementations.mxnet import zoo
from implementations.mxnet.communicator import join, lost_rank_named
from implementations.mxnet.input_pipeline import DaliBatches, SyntheticBatches, batch_format
from implementations.mxnet.model import Evaluation, Layout, ResNet50, TrainingLoss, join_gradients, trainable
from implementations.mxnet.optimizer import OPTIMIZERS
from rn50.benchmark import schedule
from rn50.data.pipeline import dali
from rn50.errors import UserError
from rn50.machine.hardware import fastest_cpu_precision
from rn50.run.implementation import EpochResult, Operator, Progress
from rn50.settings.config import Config, InputPipeline

PROGRESS_SECONDS = 1.0
WARM_UP_STEPS = 3


def create(config: Config, model: Optional[str] = None) -> "MxnetImplementation":
    """Return the implementation for ``config.run.framework`` "mxnet"; ``model`` names one of Gluon's to time instead."""
    return MxnetImplementation(config, model)


class MxnetImplementation:
    """See ``rn50.run.implementation.Implementation``."""

    def __init__(self, config: Config, model: Optional[str] = None):
        self.config = config
        self._model = model
        on_gpu = config.run.device == "gpu"
        self.communicator: Any = join(config)
        if on_gpu and mx.context.num_gpus() <= self.communicator.local_rank:
            raise UserError("DEVICE=gpu",
                            f"MXNet sees {mx.context.num_gpus()} GPUs, DGXNGPU={config.run.ranks_per_node} asks for more",
                            "set DEVICE=cpu, or use mxnet-cu112 and a GPU of compute capability 5.0 to 8.9")
        self.context = mx.gpu(self.communicator.local_rank) if on_gpu else mx.cpu()
        # MXNet's convolutions run channels-last on GPUs only. Gluon's models are never channels-last.
        self.layout = "NHWC" if on_gpu and model is None else "NCHW"
        auto = "float16" if on_gpu else fastest_cpu_precision()
        self.precision = auto if config.run.precision == "auto" else config.run.precision
        self.batch_format = batch_format(self.context, self.layout, self.precision)
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
        """True while a requested batch of DALI is not ready."""
        return any(data is not None and data.waiting for data in (self.training_data, self.validation_data))

    @lost_rank_named()
    def warm_up(self, seed: int) -> List[str]:
        """Build and compile everything on synthetic batches, then restore the weights of ``seed``."""
        h, data = self.config.hyperparameters, self.config.data
        self._seed = seed
        mx.random.seed(seed)
        self.network = self._untrained()
        self.network.initialize(mx.init.MSRAPrelu(slope=0), self.context)  # for parameters without one of their own: Gluon's
        # One graph per batch shape: a graph of static shape is planned again at each change of the shape.
        self._loss, self._ragged_loss = (TrainingLoss(self.network, data.classes, h.label_smoothing) for _ in range(2))
        self._evaluation = Evaluation(self.network)
        for graph in (self._loss, self._ragged_loss, self._evaluation):
            graph.hybridize(static_alloc=True, static_shape=True)
        self.parameters = trainable(self.network)
        self._gradients = join_gradients(self.parameters, self.config.run.gradient_groups, self.communicator.gradients)
        self.optimizer = OPTIMIZERS[h.optimizer](self.parameters, h)
        dali.prepare(self.config, self.batch_format)
        initial = {name: p.data().copy() for name, p in self.network.collect_params().items()}
        for batch in itertools.islice(self.open_input(None).epoch(), WARM_UP_STEPS):
            self._train_step(batch, learning_rate=0.0)
            mx.nd.waitall()
            begin = time.perf_counter()
            self._evaluation(batch.images, batch.labels).wait_to_read()
            self.forward_seconds = min(self.forward_seconds, time.perf_counter() - begin)
        for name, parameter in self.network.collect_params().items():
            parameter.set_data(initial[name])
        self.optimizer.reset()
        mx.nd.waitall()
        return [parameter.name for parameter in self.parameters]

    def _untrained(self) -> Any:
        """Return the network without values."""
        h, data = self.config.hyperparameters, self.config.data
        if self._model is not None:
            return zoo.network(self._model, data.classes, data.image_size, self.precision)
        fused = self.context.device_type == "cpu" and self.precision == "float32"
        computed = Layout(self.layout, self.precision, fused_relu=fused)
        return ResNet50(data.classes, data.width, h.bn_gamma_zero, computed)

    def open_data(self) -> None:
        """Open the data set for the first time."""
        self.training_data, self.validation_data = (
            DaliBatches(self.config, training, self.communicator, self._seed, self.context, self.layout, self.precision)
            for training in (True, False)
        )

    def open_input(self, knobs: Optional[InputPipeline]) -> Any:
        """Return batches for ``train_steps``: the training set through a pipeline of these settings, or with None a random batch
        on the device."""
        if knobs is None:
            return SyntheticBatches(self.config, self.communicator.size, self.context, self.layout, self.precision)
        config = dataclasses.replace(self.config, input_pipeline=knobs)
        batches = DaliBatches(config, True, self.communicator, self._seed, self.context, self.layout, self.precision)
        batches.drain()
        return batches

    @lost_rank_named()
    def train_steps(self, batches: Any, lead_in: int, steps: int) -> EpochResult:
        """Run steps that leave the weights as they are. The first ``lead_in`` steps are not timed."""
        batches.drain()
        for batch in itertools.islice(batches.epoch(), lead_in):
            self._train_step(batch, learning_rate=0.0)
        mx.nd.waitall()
        begin, waited, samples = time.perf_counter(), batches.wait_seconds, 0
        for batch in itertools.islice(batches.epoch(), steps):
            self._train_step(batch, learning_rate=0.0)
            samples += batch.samples
        mx.nd.waitall()
        return EpochResult(samples, time.perf_counter() - begin, batches.wait_seconds - waited)

    def profile(self, batches: Any, steps: int, trace: pathlib.Path) -> Tuple[EpochResult, List[Operator]]:
        """Run steps under MXNet's profiler.

        Without MXNET_EXEC_BULK_EXEC_TRAIN=0, operators that the engine runs in one piece count as one.
        """
        mx.profiler.set_config(profile_symbolic=True, profile_imperative=True, aggregate_stats=True, filename=str(trace))
        mx.profiler.set_state("run")
        result = self.train_steps(batches, 0, steps)
        mx.profiler.set_state("stop")
        told = json.loads(mx.profiler.dumps(reset=True, format="json"))["Time"]
        mx.profiler.dump()
        return result, [Operator(name, each["Count"], each["Total"] / 1e3) for name, each in told["operator"].items()]

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
                # The loss of the previous step, because reading it does not drain the engine.
                progress(samples, float(previous.mean().asscalar()))
                self.training_data.check_labels()
                self._reported = time.perf_counter()
            previous = loss
        self.training_data.check_labels()
        mx.nd.waitall()
        result = EpochResult(samples, time.perf_counter() - begin, self.training_data.wait_seconds - waited)
        progress(samples, float(previous.mean().asscalar()))
        return result

    def _learning_rate(self) -> float:
        return schedule.learning_rate(
            self._step, self.config.hyperparameters.learning_rate, self._warmup_steps, self._schedule_steps
        )

    def _train_step(self, batch: Any, learning_rate: float) -> Any:
        """Run forward pass, backward pass, all-reduce and update; return the loss of every sample."""
        self.steps += 1
        images, labels, samples, global_samples = batch
        ragged = samples < len(labels)
        with autograd.record():
            loss = self._ragged_loss(images[:samples], labels[:samples]) if ragged else self._loss(images, labels)
        loss.backward()
        self.communicator.all_reduce_gradients(self._gradients)
        self.optimizer.step(learning_rate, global_samples)
        return loss

    @lost_rank_named()
    def evaluate(self) -> Tuple[int, int]:
        """Return (correct, total) of this rank's shard of the validation set."""
        correct, total = mx.nd.zeros(1, self.context), 0
        for batch in self.validation_data.epoch():
            self.steps += 1
            if batch.samples:
                correct = correct + self._evaluation(batch.images, batch.labels)[: batch.samples].sum()
                total += batch.samples
        self.validation_data.check_labels()
        return int(correct.asscalar()), total

    def close(self) -> None:
        """End the input threads and leave the job."""
        self.training_data = self.validation_data = None
        self.communicator.close()

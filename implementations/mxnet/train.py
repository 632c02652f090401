"""One rank of the timed run in MXNet: from a batch of the input pipeline to the update of the weights."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd

from implementations.mxnet.communicator import connect, lost_rank_named
from implementations.mxnet.input_pipeline import DaliBatches, synthetic
from implementations.mxnet.model import (
    Evaluation,
    Layout,
    ResNet50,
    TrainingLoss,
    flatten_gradients,
    trainable,
)
from implementations.mxnet.optimizer import OPTIMIZERS
from rn50 import frameworks, process
from rn50.benchmark import quantization
from rn50.data.pipeline import dali
from rn50.data.pipeline.batches import Batch, Batches, BatchFormat, Split
from rn50.machine import hardware
from rn50.run import precision, training
from rn50.run.base_implementation import BaseImplementation
from rn50.run.implementation import EpochResult, OnProgress
from rn50.settings.config import Config


def image_layout(device: str, environ: Mapping[str, str]) -> str:
    """Return the layout of images: "HWC" on the GPUs of NVIDIA's MXNet container, else "CHW".

    MXNet's convolutions run channels-last on GPUs only. Its released batch norm does not: it describes a
    channels-last tensor to cuDNN as (N*H*W, C, 1, 1) (MXNet 1.9.1, cudnn_batch_norm-inl.h, ``Init``). cuDNN
    refuses a first dimension beyond 880,801 in training and 65,535 in inference (PyTorch,
    Normalization.cpp); the stem has N * 12,544. NVIDIA's build has a batch norm of its own.
    """
    container = frameworks.traits("mxnet").container
    return "HWC" if device == "gpu" and environ.get(container) else "CHW"


def _require_code(config: Config, index: int) -> None:
    """Raise UserError unless MXNet's wheel has code for a GPU. MXNet does not tell its compute capability, so
    the driver's tool is asked. NVIDIA's container has another build."""
    if process.environment().get(frameworks.traits("mxnet").container):
        return
    gpus = hardware.read().gpus
    capability = gpus[index].capability if index < len(gpus) else None
    if capability is not None:
        training.require_code(config, capability)


class MxnetImplementation(BaseImplementation):
    """See ``rn50.run.implementation.Implementation``."""

    _lost_rank_named = staticmethod(lost_rank_named)

    def __init__(self, config: Config):
        on_gpu = config.run.device == "gpu"
        if on_gpu:
            training.require_gpus(
                config, mx.context.num_gpus(), "use mxnet-cu112 and a GPU of compute capability 5.0 to 8.9"
            )
        super().__init__(config, connect(config))
        local_rank = self.communicator.local_rank
        if on_gpu:
            _require_code(config, local_rank)
        self.context = mx.gpu(local_rank) if on_gpu else mx.cpu()
        self.batch_format = BatchFormat(
            local_rank if on_gpu else None,
            image_layout(config.run.device, process.environment()),
            self.precision.name == "float16",
        )
        self._masks: list[tuple[Any, Any]] = []

    @lost_rank_named()
    def warm_up(self, seed: int) -> list[str]:
        """Build and compile everything on synthetic batches, then restore the weights of ``seed``."""
        h, classes = self.config.hyperparameters, self.config.data.classes
        self._seed = seed
        dali.prepare(self.config, self.batch_format)
        self.precision = precision.choose(self.config, self.communicator, self._timed_step)
        mx.random.seed(seed)
        self.network = self._untrained()
        self.network.initialize(
            mx.init.MSRAPrelu(slope=0), self.context
        )  # for parameters without their own initializer, as in Gluon's zoo
        # One graph per batch shape: a graph of static shape is planned again at each change of the shape.
        self._loss, self._ragged_loss = (
            TrainingLoss(self.network, classes, h.label_smoothing) for _ in range(2)
        )
        self._evaluation = Evaluation(self.network)
        for graph in (self._loss, self._ragged_loss, self._evaluation):
            graph.hybridize(static_alloc=True, static_shape=True)
        self.parameters = trainable(self.network)
        self._gradients = flatten_gradients(
            self.parameters, self.config.run.gradient_groups, self.communicator.gradients
        )
        self.optimizer = OPTIMIZERS[h.optimizer](self.parameters, h)
        initial = {name: p.data().copy() for name, p in self.network.collect_params().items()}
        self.forward_seconds = training.warm_up(
            self.config, self._synthetic(), self._trial_step, self._trial_evaluation
        )
        for name, parameter in self.network.collect_params().items():
            parameter.set_data(initial[name])
        self.optimizer.reset()
        self._wait()
        return [parameter.name for parameter in self.parameters]

    def _untrained(self) -> Any:
        """Return the network without values."""
        return self._resnet50(self.precision.name)

    def _resnet50(self, dtype: str) -> ResNet50:
        """Return our network in a precision, without values."""
        fused = self.config.run.device == "cpu" and dtype == "float32"
        layout = Layout(
            "N" + self.batch_format.layout, dtype, fused, self.config.run.quantization == quantization.NAME
        )
        return ResNet50(
            self.config.data.classes,
            self.config.data.width,
            self.config.hyperparameters.bn_gamma_zero,
            layout,
        )

    def _timed_step(self, dtype: str) -> Callable[[], None]:
        """Return a forward and backward pass of our network in a precision; all-reduce and update take as
        long in any."""
        network, batch = self._resnet50(dtype), next(self._synthetic().epoch())
        network.initialize(ctx=self.context)
        loss = TrainingLoss(network, self.config.data.classes, self.config.hyperparameters.label_smoothing)
        loss.hybridize(static_alloc=True, static_shape=True)

        def step() -> None:
            self.steps += 1
            with autograd.record():
                value = loss(batch.images, batch.labels)
            value.backward()
            self._wait()

        return step

    def _synthetic(self) -> Batches:
        """Return a random batch, held on the device and repeated."""
        return synthetic(self.config, self.communicator.size, self.batch_format)

    def _open(self, config: Config, split: Split) -> Batches:
        return DaliBatches(config, split, self.communicator, self._seed, self.batch_format)

    def _tensors(self) -> dict[str, Any]:
        return {name: parameter.data() for name, parameter in self.network.collect_params().items()}

    def _array(self, tensor: Any) -> np.ndarray:
        return self._moved(tensor.asnumpy(), 3, 1)

    def _set(self, tensor: Any, array: np.ndarray) -> None:
        tensor[:] = mx.nd.array(self._moved(array, 1, 3))

    def _moved(self, array: np.ndarray, axis: int, destination: int) -> np.ndarray:
        """Return convolution weights with their input channels moved to another axis, if images are
        channels-last."""
        channels_last = self.batch_format.layout == "HWC" and array.ndim == 4
        return np.ascontiguousarray(np.moveaxis(array, axis, destination)) if channels_last else array

    def keep(self, masks: Mapping[str, np.ndarray]) -> None:
        """Multiply tensors by masks after every update."""
        tensors = self._tensors()
        self._masks = [
            (tensors[name], mx.nd.array(self._moved(mask, 1, 3), self.context))
            for name, mask in masks.items()
        ]

    @lost_rank_named()
    def train_epoch(self, epoch: int, progress: OnProgress) -> EpochResult:
        """Train on one pass over the training set."""
        self._pace.begin(self.training_data)
        previous: Any = None
        for batch in itertools.islice(self.training_data.epoch(), self.config.run.benchmark_steps):
            loss = self._train_step(batch, self._learning_rates.next())
            self._pace.add(batch.samples)
            # The loss of the previous step, because reading it does not drain the engine.
            if previous is not None and self._pace.is_due():
                progress(self._pace.samples, float(previous.mean().asscalar()))
                self.training_data.check_labels()
            previous = loss
        self.training_data.check_labels()
        self._wait()
        result = self._pace.result()
        progress(result.samples, float(previous.mean().asscalar()))
        return result

    def _train_step(self, batch: Batch, learning_rate: float) -> Any:
        """Run forward pass, backward pass, all-reduce and update; return the loss of every sample."""
        self.steps += 1
        images, labels, samples, global_samples = batch
        ragged = samples < len(labels)
        with autograd.record():
            loss = (
                self._ragged_loss(images[:samples], labels[:samples])
                if ragged
                else self._loss(images, labels)
            )
        loss.backward()
        self.communicator.all_reduce_gradients(self._gradients)
        self.optimizer.step(learning_rate, global_samples)
        for weight, mask in self._masks:
            mx.nd.elemwise_mul(weight, mask, out=weight)
        return loss

    def _evaluate(self, images: Any, labels: Any) -> Any:
        return self._evaluation(images, labels)

    def _logits(self, images: Any) -> Any:
        return self.network(images)

    def _wait(self) -> None:
        mx.nd.waitall()


create = MxnetImplementation

"""The engine of MXNet: network, training step and tensors."""

from collections.abc import Mapping
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd

# DALI has to be loaded before MXNet computes: loaded later it crashes in functions of libmxnet.
from implementations.mxnet import dali_batches, device, optimizer, zoo  # noqa: F401
from implementations.mxnet.model import (
    Evaluation,
    Layout,
    ResNet50,
    TrainingLoss,
    flatten_gradients,
    trainable,
)
from rn50.benchmark import quantization
from rn50.data.pipeline.batches import Batch, BatchFormat
from rn50.run.precision import before_warm_up
from rn50.settings.config import Config


class MxnetEngine:
    """See ``rn50.run.engine.Engine``."""

    def __init__(self, config: Config, communicator: Any, model: str | None = None):
        self._config, self._communicator, self._model = config, communicator, model
        self.context = device.of_rank(config, communicator.local_rank)
        self._masks: list[tuple[Any, Any]] = []
        self.batch_format = self._format()

    def build(self, seed: int, precision: str) -> list[str]:
        """Build network, graphs and optimizer."""
        config, h, data = self._config, self._config.hyperparameters, self._config.data
        mx.random.seed(seed)
        if self._model is None:
            self.network: Any = self._resnet50(precision)
        else:
            self.network = zoo.network(self._model, data.classes, data.image_size, precision)
        # The initializer is for parameters without their own, as in Gluon's zoo.
        self.network.initialize(mx.init.MSRAPrelu(slope=0), self.context)
        # One graph per batch shape: a graph of static shape is planned again at each change of the shape.
        self._loss, self._ragged_loss = (
            TrainingLoss(self.network, data.classes, h.label_smoothing) for _ in range(2)
        )
        self._evaluation = Evaluation(self.network)
        for graph in (self._loss, self._ragged_loss, self._evaluation):
            graph.hybridize(static_alloc=True, static_shape=True)
        parameters = trainable(self.network)
        self._gradients = flatten_gradients(parameters, config.run.gradient_groups, self._zeros)
        self.optimizer = optimizer.create(parameters, h)
        return [parameter.name for parameter in parameters]

    def step(self, batch: Batch, learning_rate: float) -> Any:
        """Run forward pass, backward pass, all-reduce and update."""
        images, labels, samples, global_samples = batch
        with autograd.record():
            if samples < len(labels):
                loss = self._ragged_loss(images[:samples], labels[:samples])
            else:
                loss = self._loss(images, labels)
        loss.backward()
        self._communicator.all_reduce_gradients(self._gradients)
        self.optimizer.step(learning_rate, global_samples)
        for weight, mask in self._masks:
            mx.nd.elemwise_mul(weight, mask, out=weight)
        return loss

    def mean(self, loss: Any) -> float:
        """Return the mean of a loss. MXNet waits for its step only."""
        return float(loss.mean().asscalar())

    def correct(self, batch: Batch) -> Any:
        """Return the number of samples classified correctly."""
        return self._evaluation(batch.images, batch.labels)[: batch.samples].sum()

    def logits(self, images: Any) -> Any:
        """Return the logits of an evaluation."""
        return self.network(images)

    def tensors(self) -> dict[str, Any]:
        """Return parameters and running statistics."""
        return {name: parameter.data() for name, parameter in self.network.collect_params().items()}

    def momentum(self) -> dict[str, Any]:
        """Return the optimizer's momentum."""
        return self.optimizer.momentum()

    def array(self, tensor: Any) -> np.ndarray:
        """Return a copy of a tensor."""
        return self._moved(tensor.asnumpy(), 3, 1)

    def set(self, tensor: Any, array: np.ndarray) -> None:
        """Give a tensor the values of an array."""
        tensor[:] = mx.nd.array(self._moved(array, 1, 3))

    def keep(self, masks: Mapping[str, np.ndarray]) -> None:
        """Multiply tensors by masks after every update."""
        tensors = self.tensors()
        self._masks = [
            (tensors[name], mx.nd.array(self._moved(mask, 1, 3), self.context))
            for name, mask in masks.items()
        ]

    def synthetic(self) -> Batch:
        """Return a random batch: images (B, 3, S, S) or (B, S, S, 3), labels (B,) float32."""
        samples, data = self._config.hyperparameters.batch_size, self._config.data
        shape, dtype = self.batch_format.shape(samples, data.image_size), self.batch_format.dtype
        random = np.random.RandomState(0)
        images = mx.nd.array(random.standard_normal(shape), self.context, dtype)
        labels = mx.nd.array(random.randint(data.classes, size=samples), self.context, "float32")
        return Batch(images, labels, samples, samples * self._communicator.size)

    def wait(self) -> None:
        """Wait until MXNet has finished all that is queued."""
        mx.nd.waitall()

    def _zeros(self, values: int) -> Any:
        """Return an array of zeros for gradients."""
        shared = self._communicator.shared(values)
        if shared is None:
            return mx.nd.zeros(values, self.context)
        return mx.nd.from_numpy(shared[:], zero_copy=True)  # which makes what it takes read-only: a view

    def _format(self) -> BatchFormat:
        precision = before_warm_up(self._config).name  # final on a GPU, and of no effect here on a CPU
        # Gluon's models are never channels-last.
        layout = "CHW" if self._model else device.image_layout(self._config)
        on_gpu = self.context.device_type == "gpu"
        gpu = self.context.device_id if on_gpu else None
        return BatchFormat(gpu, layout, on_gpu and precision == "float16")

    def _resnet50(self, precision: str) -> ResNet50:
        run, data = self._config.run, self._config.data
        fused_relu = run.device == "cpu" and precision == "float32"
        rounds = run.quantization == quantization.NAME
        layout = Layout(f"N{self.batch_format.layout}", precision, fused_relu, rounds, data.image_size)
        return ResNet50(data.classes, data.width, self._config.hyperparameters.bn_gamma_zero, layout)

    def _moved(self, array: np.ndarray, axis: int, destination: int) -> np.ndarray:
        """Return convolution weights with their input channels moved to another axis, if images are
        channels-last."""
        channels_last = self.batch_format.layout == "HWC" and array.ndim == 4
        return np.ascontiguousarray(np.moveaxis(array, axis, destination)) if channels_last else array


create = MxnetEngine

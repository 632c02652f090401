"""The engine of MXNet: network, training step and tensors."""

from collections.abc import Mapping
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd

# DALI has to be loaded before MXNet computes: loaded later it crashes in functions of libmxnet.
from implementations.mxnet import dali_batches, device, optimizer  # noqa: F401
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
    """An engine (``rn50.run.engine.Engine``)."""

    def __init__(self, config: Config, communicator: Any):
        self._config, self._communicator = config, communicator
        self.context = device.of_rank(config, communicator.local_rank)
        self._masks: list[tuple[Any, Any]] = []
        self.batch_format = self._format()

    def build(self, seed: int, precision: str) -> list[str]:
        config, h = self._config, self._config.hyperparameters
        mx.random.seed(seed)
        self.network = self._network(precision)
        # One graph per batch shape: a graph of static shape is planned again at each change of the shape.
        self._loss, self._ragged_loss = (
            TrainingLoss(self.network, config.data.classes, h.label_smoothing) for _ in range(2)
        )
        self._evaluation = Evaluation(self.network)
        for graph in (self._loss, self._ragged_loss, self._evaluation):
            graph.hybridize(static_alloc=True, static_shape=True)
        parameters = trainable(self.network)
        self._gradients = flatten_gradients(parameters, config.run.gradient_groups, self._zeros)
        self.optimizer = optimizer.create(parameters, h)
        return [parameter.name for parameter in parameters]

    def step(self, batch: Batch, learning_rate: float) -> Any:
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
        return float(loss.mean().asscalar())  # waits for the step of this loss only

    def correct(self, batch: Batch) -> Any:
        return self._evaluation(batch.images, batch.labels)[: batch.samples].sum()

    def logits(self, images: Any) -> Any:
        return self.network(images)

    def tensors(self) -> dict[str, Any]:
        return {name: parameter.data() for name, parameter in self.network.collect_params().items()}

    def momentum(self) -> dict[str, Any]:
        return self.optimizer.momentum()

    def array(self, tensor: Any) -> np.ndarray:
        return self._moved(tensor.asnumpy(), 3, 1)

    def set(self, tensor: Any, array: np.ndarray) -> None:
        tensor[:] = mx.nd.array(self._moved(array, 1, 3))

    def keep(self, masks: Mapping[str, np.ndarray]) -> None:
        tensors = self.tensors()
        moved = ((tensors[name], self._moved(mask, 1, 3)) for name, mask in masks.items())
        self._masks = [(tensor, mx.nd.array(mask, self.context)) for tensor, mask in moved]

    def synthetic(self) -> Batch:
        """Return a random batch: images (B, 3, S, S) or (B, S, S, 3), labels (B,) float32."""
        samples, data = self._config.hyperparameters.batch_size, self._config.data
        shape, dtype = self.batch_format.shape(samples, data.image_size), self.batch_format.dtype
        random = np.random.RandomState(0)
        images = mx.nd.array(random.standard_normal(shape), self.context, dtype)
        labels = mx.nd.array(random.randint(data.classes, size=samples), self.context, "float32")
        return Batch(images, labels, samples, samples * self._communicator.size)

    def wait(self) -> None:
        mx.nd.waitall()

    def _zeros(self, values: int) -> Any:
        shared = self._communicator.shared(values)
        if shared is None:
            return mx.nd.zeros(values, self.context)
        return mx.nd.from_numpy(shared[:], zero_copy=True)  # which makes what it takes read-only: a view

    def _format(self) -> BatchFormat:
        precision = before_warm_up(self._config).name  # final on a GPU, and of no effect here on a CPU
        on_gpu = self.context.device_type == "gpu"
        gpu = self.context.device_id if on_gpu else None
        return BatchFormat(gpu, device.image_layout(self._config), on_gpu and precision == "float16")

    def _network(self, precision: str) -> Any:
        """Return the network, with its initial weights."""
        run, data = self._config.run, self._config.data
        fused_relu = run.device == "cpu" and precision == "float32"
        rounds = run.quantization == quantization.NAME
        layout = Layout(f"N{self.batch_format.layout}", precision, fused_relu, rounds, data.image_size)
        network = ResNet50(data.classes, data.width, self._config.hyperparameters.bn_gamma_zero, layout)
        network.initialize(ctx=self.context)
        return network

    def _moved(self, array: np.ndarray, axis: int, destination: int) -> np.ndarray:
        """Return convolution weights with their input channels moved to another axis, if images are
        channels-last."""
        channels_last = self.batch_format.layout == "HWC" and array.ndim == 4
        return np.ascontiguousarray(np.moveaxis(array, axis, destination)) if channels_last else array


create = MxnetEngine

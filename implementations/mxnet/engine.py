"""The engine of MXNet: it builds the network and computes the training steps and evaluations of one rank.

``Rank`` in ``rn50/run/loop.py`` calls it for every batch. The protocol ``Engine`` in ``rn50/run/engine.py``
describes the public methods.
"""

from collections.abc import Mapping
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd

# Import DALI before MXNet computes anything: a DALI that is loaded later crashes in functions of libmxnet.
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
        """(weight, mask of 0 and 1) of pruned weights, from ``keep``."""
        self.batch_format = self._format()

    def build(self, seed: int, precision: str) -> list[str]:
        """Build the network with random weights, its graphs and the optimizer. Return the names of the
        trainable parameters."""
        config, hyperparameters = self._config, self._config.hyperparameters
        mx.random.seed(seed)
        self.network = self._network(precision)
        # A graph for every size of images, of full batches and of ragged ones: MXNet plans a graph of static
        # shape anew whenever the shape changes.
        self._losses = {size: self._loss_graph() for size in config.image_sizes}
        self._ragged_losses = {size: self._loss_graph() for size in config.image_sizes}
        self._evaluation = Evaluation(self.network)
        self._evaluation.hybridize(static_alloc=True, static_shape=True)
        parameters = trainable(self.network)
        averaged = self.tensors() if hyperparameters.ema_half_life else {}
        self._averages = {name: tensor.copy() for name, tensor in averaged.items()}
        self._gradients = flatten_gradients(parameters, config.run.gradient_groups, self._zeros)
        self.optimizer = optimizer.create(parameters, hyperparameters)
        return [parameter.name for parameter in parameters]

    def step(self, batch: Batch, learning_rate: float, average_share: float = 0.0) -> Any:
        """Train on a batch. Return the loss of every sample, which may still be computed."""
        images, labels, samples, global_samples = batch
        size = images.shape[2]  # H of NCHW, or W of NHWC
        with autograd.record():
            if samples < len(labels):
                loss = self._ragged_losses[size](images[:samples], labels[:samples])
            else:
                loss = self._losses[size](images, labels)
        loss.backward()
        self._communicator.all_reduce_gradients(self._gradients)
        self.optimizer.step(learning_rate, global_samples)
        for weight, mask in self._masks:  # pruned weights stay 0
            mx.nd.elemwise_mul(weight, mask, out=weight)
        if average_share:
            self._average(average_share)
        return loss

    def mean(self, loss: Any) -> float:
        return float(loss.mean().asscalar())  # waits for the step that has computed this loss, for no other

    def correct(self, batch: Batch) -> Any:
        """Return the number of samples of a batch, without its padding, that the network classifies
        correctly, as an array."""
        return self._evaluation(batch.images, batch.labels)[: batch.samples].sum()

    def logits(self, images: Any) -> Any:
        return self.network(images)

    def tensors(self) -> dict[str, Any]:
        return {name: parameter.data() for name, parameter in self.network.collect_params().items()}

    def state(self) -> dict[str, dict[str, Any]]:
        return {"momentum": self.optimizer.momentum(), "average": self._averages}

    def array(self, tensor: Any) -> np.ndarray:
        """Return the values of a tensor of the network, convolutions as (outputs, inputs, height, width)."""
        return self._with_axis_moved(tensor.asnumpy(), 3, 1)

    def set(self, tensor: Any, array: np.ndarray) -> None:
        """Set a tensor of the network to the values that ``array`` returns for it."""
        tensor[:] = mx.nd.array(self._with_axis_moved(array, 1, 3))

    def keep(self, masks: Mapping[str, np.ndarray]) -> None:
        """Multiply the weights of these names by their masks after every step from now on."""
        tensors = self.tensors()
        arrays = {name: self._with_axis_moved(mask, 1, 3) for name, mask in masks.items()}
        self._masks = [(tensors[name], mx.nd.array(arrays[name], self.context)) for name in arrays]

    def synthetic(self, image_size: int) -> Batch:
        """Return a random batch: images (B, 3, S, S) or (B, S, S, 3), labels (B,) float32."""
        samples, data = self._config.hyperparameters.batch_size, self._config.data
        shape, dtype = self.batch_format.shape(samples, image_size), self.batch_format.dtype
        random = np.random.RandomState(0)
        images = mx.nd.array(random.standard_normal(shape), self.context, dtype)
        labels = mx.nd.array(random.randint(data.classes, size=samples), self.context, "float32")
        return Batch(images, labels, samples, samples * self._communicator.size)

    def wait(self) -> None:
        mx.nd.waitall()

    def _zeros(self, values: int) -> Any:
        """Return the memory of the gradients, float32 of shape (values,): shared with the other ranks if the
        communicator has such memory, else on the device."""
        shared = self._communicator.shared(values)
        if shared is None:
            return mx.nd.zeros(values, self.context)
        # ``from_numpy`` makes the array that it gets read-only, so it gets a view.
        return mx.nd.from_numpy(shared[:], zero_copy=True)

    def _format(self) -> BatchFormat:
        """Return the format of the batches that this engine takes."""
        # Images are float16 on a GPU that computes in float16, else float32. On a CPU the warm-up may still
        # change the precision, but there the format does not depend on it.
        precision = before_warm_up(self._config).name
        on_gpu = self.context.device_type == "gpu"
        gpu = self.context.device_id if on_gpu else None
        return BatchFormat(gpu, device.image_layout(self._config), on_gpu and precision == "float16")

    def _loss_graph(self) -> TrainingLoss:
        """Return a new graph of the training loss, for batches of one shape."""
        h, classes = self._config.hyperparameters, self._config.data.classes
        graph = TrainingLoss(self.network, classes, h.label_smoothing, h.loss == "binary")
        graph.hybridize(static_alloc=True, static_shape=True)
        return graph

    def _average(self, share: float) -> None:
        """Add ``share`` of the difference from its tensor to every average."""
        named_tensors, averages = self.tensors(), list(self._averages.values())
        tensors = [named_tensors[name] for name in self._averages]
        if self.context.device_type == "cpu":  # NumPy is faster there, as in ``optimizer.OnCpu``
            mx.nd.waitall()  # a queued operation might use the memory that NumPy reads
            tensors, averages = optimizer.Memory(tensors)(), optimizer.Memory(averages)()
        for tensor, average in zip(tensors, averages, strict=True):
            average[:] += share * (tensor - average)

    def _network(self, precision: str) -> Any:
        """Return the network with its initial weights."""
        run, data = self._config.run, self._config.data
        # True: batch norm and ReLU are one operator, which exists for float32 on a CPU only.
        fused_relu = run.device == "cpu" and precision == "float32"
        # True: every layer rounds its weights and inputs as in int8.
        rounds = run.quantization == quantization.NAME
        layout = Layout(f"N{self.batch_format.layout}", precision, fused_relu, rounds, data.image_size)
        gamma_zero = self._config.hyperparameters.bn_gamma_zero
        network = ResNet50(data.classes, data.width, gamma_zero, layout, self._config.first_bias)
        network.initialize(ctx=self.context)
        return network

    def _with_axis_moved(self, array: np.ndarray, axis: int, destination: int) -> np.ndarray:
        """Return the weights of a convolution with ``axis``, which has the input channels, moved to
        ``destination``. If images are channels-last, it is axis 3 in MXNet, and axis 1 outside of this
        engine. If they are not, or for other tensors, return ``array`` itself."""
        channels_last = self.batch_format.layout == "HWC" and array.ndim == 4
        return np.ascontiguousarray(np.moveaxis(array, axis, destination)) if channels_last else array


create = MxnetEngine

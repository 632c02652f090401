"""The engine of Paddle: it builds the network and computes the training steps and evaluations of one rank.

``Rank`` in ``rn50/run/loop.py`` calls it for every batch. ``rn50/run/engine.py`` says what each public method
owes its caller.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from implementations.paddle import device, paddle
from implementations.paddle.model import ResNet50, flatten_gradients, tensors, trainable, training_loss
from implementations.paddle.optimizer import OPTIMIZERS
from rn50.benchmark import quantization
from rn50.data.pipeline.batches import Batch, BatchFormat
from rn50.run.precision import before_warm_up
from rn50.settings.config import Config


class PaddleEngine:
    """An engine (``rn50.run.engine.Engine``)."""

    def __init__(self, config: Config, communicator: Any):
        self._config, self._communicator = config, communicator
        self._gpu = device.of_rank(config, communicator.local_rank)
        self._masks: list[tuple[paddle.Tensor, paddle.Tensor]] = []  # (tensor, mask) of ``keep``
        self.batch_format = self._format()

    def build(self, seed: int, precision: str) -> list[str]:
        h = self._config.hyperparameters
        self.network = self._network(precision)
        self.network.initialize(seed)
        parameters = trainable(self.network)
        self._gradients = flatten_gradients(parameters, self._zeros)
        self.optimizer = OPTIMIZERS[h.optimizer](parameters, self._gradients, h)
        averaged = self.tensors() if h.ema_half_life else {}
        self._averages = {name: tensor.clone().detach() for name, tensor in averaged.items()}
        return [parameter.name for parameter in parameters]

    def step(self, batch: Batch, learning_rate: float, average_share: float = 0.0) -> paddle.Tensor:
        images, labels, samples, global_samples = batch
        self.network.train()
        self._gradients.zero_()
        h = self._config.hyperparameters
        # The samples behind ``samples`` only pad the batch.
        target = h.label_smoothing, h.loss == "binary"
        loss = training_loss(self.network, images[:samples], labels[:samples], *target)
        loss.sum().backward()  # a sum, which the optimizer divides by global_samples
        self._communicator.all_reduce_gradients(self._gradients)
        self.optimizer.step(learning_rate, global_samples)
        with paddle.no_grad():
            for tensor, mask in self._masks:
                tensor.multiply_(mask)
            if average_share:
                tensors = self.tensors()
                for name, average in self._averages.items():
                    average.lerp_(tensors[name], average_share)
        return loss.detach()

    def mean(self, loss: paddle.Tensor) -> float:
        return float(loss.mean())

    def correct(self, batch: Batch) -> paddle.Tensor:
        is_correct = self.logits(batch.images).argmax(axis=1) == batch.labels
        return is_correct[: batch.samples].sum()

    @paddle.no_grad()
    def logits(self, images: paddle.Tensor) -> paddle.Tensor:
        self.network.eval()
        return self.network(images)

    def tensors(self) -> dict[str, paddle.Tensor]:
        return tensors(self.network)

    def state(self) -> dict[str, dict[str, paddle.Tensor]]:
        return {"momentum": self.optimizer.momentum(), "average": self._averages}

    def array(self, tensor: paddle.Tensor) -> np.ndarray:
        return tensor.numpy()

    def set(self, tensor: paddle.Tensor, array: np.ndarray) -> None:
        tensor.set_value(array)

    def keep(self, masks: Mapping[str, np.ndarray]) -> None:
        tensors = self.tensors()
        self._masks = [(tensors[name], paddle.to_tensor(mask)) for name, mask in masks.items()]

    def synthetic(self, image_size: int) -> Batch:
        """Return a random batch: images (B, 3, S, S) or (B, S, S, 3), labels (B,) int64."""
        samples, data = self._config.hyperparameters.batch_size, self._config.data
        shape, dtype = self.batch_format.shape(samples, image_size), self.batch_format.dtype
        random = np.random.RandomState(0)
        images = paddle.to_tensor(random.standard_normal(shape).astype(dtype))
        labels = paddle.to_tensor(random.randint(data.classes, size=samples))
        return Batch(images, labels, samples, samples * self._communicator.size)

    def wait(self) -> None:
        if self._gpu is not None:
            paddle.device.cuda.synchronize()

    def _zeros(self, values: int) -> paddle.Tensor:
        """Return the memory of the gradients, float32 of shape (values,): shared with the other ranks if the
        communicator has such memory, else on the device."""
        shared = self._communicator.shared(values)
        if shared is None:
            return paddle.zeros([values])
        return paddle.Tensor(value=shared, place=paddle.CPUPlace(), zero_copy=True)

    def _format(self) -> BatchFormat:
        # On a CPU the warm-up may still change the precision, but there the format does not depend on it.
        precision = before_warm_up(self._config).name
        layout = "CHW" if self._gpu is None else "HWC"
        return BatchFormat(self._gpu, layout, self._gpu is not None and precision == "float16")

    def _network(self, precision: str) -> Any:
        """Return the network, without initial weights."""
        data, layout = self._config.data, f"N{self.batch_format.layout}"
        h, bias = self._config.hyperparameters, self._config.first_bias
        is_quantized = self._config.run.quantization == quantization.NAME
        return ResNet50(data.classes, data.width, h.bn_gamma_zero, precision, layout, is_quantized, bias)


create = PaddleEngine

"""A further framework with tests/toy on PYTHONPATH, FRAMEWORK=toy: a linear classifier of pixels, in
NumPy."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rn50.benchmark.optimizers import update
from rn50.data.pipeline.batches import Batch, BatchFormat


class ToyEngine:
    """See ``rn50.run.engine.Engine``."""

    batch_format = BatchFormat(None, "CHW", False)

    def __init__(self, config: Any, communicator: Any):
        self._config, self._communicator = config, communicator
        self._masks: dict[str, np.ndarray] = {}

    def build(self, seed: int, precision: str) -> list[str]:
        inputs, classes = 3 * self._config.data.image_size**2, self._config.data.classes
        initial = np.random.RandomState(seed).standard_normal((inputs, classes)) / inputs
        self._weights = {"fc1_weight": initial.astype(np.float32), "fc1_bias": np.zeros(classes, np.float32)}
        self._velocities = {name: np.zeros_like(weight) for name, weight in self._weights.items()}
        values = (inputs + 1) * classes
        shared = self._communicator.shared(values)
        self._flat = flat = np.zeros(values, np.float32) if shared is None else shared
        self._gradients = {"fc1_weight": flat[classes:].reshape(inputs, classes), "fc1_bias": flat[:classes]}
        return list(self._weights)

    def step(self, batch: Batch, learning_rate: float, average_share: float = 0.0) -> np.ndarray:
        h, classes = self._config.hyperparameters, self._config.data.classes
        images, labels = batch.images[: batch.samples], np.asarray(batch.labels[: batch.samples], np.int64)
        logits = self.logits(images)
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_probability = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        onehot = np.eye(classes, dtype=np.float32)[labels]
        target = (1 - h.label_smoothing) * onehot + h.label_smoothing / classes
        change = np.exp(log_probability) - target
        self._gradients["fc1_weight"][:] = images.reshape(len(images), -1).T @ change
        self._gradients["fc1_bias"][:] = change.sum(axis=0)
        self._communicator.all_reduce_gradients(self._flat)
        eta = h.lars_eta if h.optimizer == "lars" else None
        for name, weight in self._weights.items():
            gradient, velocity = self._gradients[name] / batch.global_samples, self._velocities[name]
            state = name, weight, gradient, velocity, learning_rate
            weight[:], velocity[:] = update(*state, h.momentum, h.weight_decay, eta)
            weight *= self._masks.get(name, 1)
        return -(target * log_probability).sum(axis=1)

    def mean(self, loss: np.ndarray) -> float:
        return float(loss.mean())

    def correct(self, batch: Batch) -> Any:
        return (self.logits(batch.images).argmax(axis=1) == batch.labels)[: batch.samples].sum()

    def logits(self, images: np.ndarray) -> np.ndarray:
        return images.reshape(len(images), -1) @ self._weights["fc1_weight"] + self._weights["fc1_bias"]

    def tensors(self) -> dict[str, np.ndarray]:
        return self._weights

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        return {"momentum": self._velocities, "average": {}}

    def array(self, tensor: np.ndarray) -> np.ndarray:
        return np.array(tensor)

    def set(self, tensor: np.ndarray, array: np.ndarray) -> None:
        tensor[:] = array

    def keep(self, masks: Mapping[str, np.ndarray]) -> None:
        self._masks = dict(masks)

    def synthetic(self, image_size: int) -> Batch:
        samples, data = self._config.hyperparameters.batch_size, self._config.data
        random = np.random.RandomState(0)
        images = random.standard_normal((samples, 3, image_size, image_size)).astype(np.float32)
        labels = random.randint(data.classes, size=samples)
        return Batch(images, labels, samples, samples * self._communicator.size)

    def wait(self) -> None:
        """Do nothing: a processor has finished when NumPy returns."""


create = ToyEngine

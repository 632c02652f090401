"""A third framework with tests/toy on PYTHONPATH, FRAMEWORK=toy: a linear classifier of pixels, in NumPy."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rn50.benchmark.optimizers import update
from rn50.data.pipeline import dali
from rn50.data.pipeline.batches import Batch, BatchFormat, RepeatedBatch
from rn50.data.pipeline.numpy_batches import NumpyBatches
from rn50.process import environment
from rn50.run import local_ranks, precision, single_process, training


class OneRank(single_process.SingleProcess):
    """A communicator of size 1."""

    def gradients(self, values: int) -> np.ndarray:
        return np.zeros(values, np.float32)


class SharedMemory(local_ranks.LocalRanks):
    """One of several ranks; the gradients of all are in shared memory."""

    def gradients(self, values: int) -> np.ndarray:
        self._everybodys = self.share(values)
        return self._everybodys[self.rank]

    def all_reduce_gradients(self, gradients: np.ndarray) -> None:
        self.all_reduce_shared(self._everybodys)


class ToyImplementation:
    """See ``rn50.run.implementation.Implementation``."""

    def __init__(self, config: Any):
        self.config = config
        self.communicator: Any = OneRank() if config.ranks == 1 else SharedMemory(environment())
        self.batch_format = BatchFormat(None, "CHW", False)
        self._learning_rates, self._pace = training.LearningRates(config), training.Pace()
        self.precision = precision.before_warm_up(config)
        self._masks: dict[str, np.ndarray] = {}
        self.steps, self.forward_seconds = 0, float("inf")
        self.training_data: Any = None
        self.validation_data: Any = None

    @property
    def waits_for_data(self) -> bool:
        return any(data is not None and data.waiting for data in (self.training_data, self.validation_data))

    def warm_up(self, seed: int) -> list[str]:
        self._seed, inputs, classes = seed, 3 * self.config.data.image_size**2, self.config.data.classes
        dali.prepare(self.config, self.batch_format)
        initial = np.random.RandomState(seed).standard_normal((inputs, classes)).astype(np.float32) / inputs
        flat = self.communicator.gradients((inputs + 1) * classes)
        self._gradients = {"fc1_weight": flat[classes:].reshape(inputs, classes), "fc1_bias": flat[:classes]}
        self._flat, self._weights = (
            flat,
            {"fc1_weight": initial.copy(), "fc1_bias": np.zeros(classes, np.float32)},
        )
        self._velocities = {name: np.zeros_like(weight) for name, weight in self._weights.items()}
        train = lambda batch: self._train_step(batch, learning_rate=0.0)  # noqa: E731
        self.forward_seconds = training.warm_up(
            self.config, self._synthetic(), train, lambda batch: self._logits(batch.images)
        )
        for velocity in self._velocities.values():
            velocity[:] = 0
        return list(self._weights)

    def _synthetic(self) -> RepeatedBatch:
        random, samples = np.random.RandomState(0), self.config.hyperparameters.batch_size
        images = random.standard_normal(self.batch_format.shape(samples, self.config.data.image_size)).astype(
            np.float32
        )
        labels = random.randint(self.config.data.classes, size=samples)
        return RepeatedBatch(Batch(images, labels, samples, samples * self.communicator.size))

    def _open(self, config: Any, split: Any) -> NumpyBatches:
        return NumpyBatches(config, split, self.communicator, self._seed, self.batch_format)

    def weights(self) -> dict[str, np.ndarray]:
        return {name: weight.copy() for name, weight in self._weights.items()}

    def assign(self, arrays: Mapping[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            self._weights[name][:] = array

    def keep(self, masks: Mapping[str, np.ndarray]) -> None:
        self._masks = dict(masks)

    def momentum(self) -> dict[str, np.ndarray]:
        return {name: velocity.copy() for name, velocity in self._velocities.items()}

    def assign_momentum(self, arrays: Mapping[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            self._velocities[name][:] = array

    def begin_after(self, epoch: int, seed: int) -> None:
        self._learning_rates.go_on_after(epoch)
        self._seed, self.training_data = seed, None
        self.training_data = self._open(self.config, "train")

    def open_data(self) -> None:
        self.training_data, self.validation_data = (
            self._open(self.config, "train"),
            self._open(self.config, "val"),
        )

    def train_epoch(self, epoch: int, progress: Any) -> Any:
        self._pace.begin(self.training_data)
        for index, batch in enumerate(
            itertools.islice(self.training_data.epoch(), self.config.run.benchmark_steps)
        ):
            losses = self._train_step(batch, self._learning_rates.next())
            self._pace.add(batch.samples)
            if index and self._pace.is_due():
                progress(self._pace.samples, float(losses.mean()))
        self.training_data.check_labels()
        progress(self._pace.samples, float(losses.mean()))
        return self._pace.result()

    def _logits(self, images: np.ndarray) -> np.ndarray:
        return images.reshape(len(images), -1) @ self._weights["fc1_weight"] + self._weights["fc1_bias"]

    def _train_step(self, batch: Batch, learning_rate: float) -> np.ndarray:
        self.steps += 1
        h, classes = self.config.hyperparameters, self.config.data.classes
        images, labels = batch.images[: batch.samples], np.asarray(batch.labels[: batch.samples], np.int64)
        logits = self._logits(images)
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_probability = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        target = (1 - h.label_smoothing) * np.eye(classes, dtype=np.float32)[
            labels
        ] + h.label_smoothing / classes
        change = np.exp(log_probability) - target
        self._gradients["fc1_weight"][:] = images.reshape(len(images), -1).T @ change
        self._gradients["fc1_bias"][:] = change.sum(axis=0)
        self.communicator.all_reduce_gradients(self._flat)
        for name, weight in self._weights.items():
            state = (
                name,
                weight,
                self._gradients[name] / batch.global_samples,
                self._velocities[name],
                learning_rate,
            )
            eta = h.lars_eta if h.optimizer == "lars" else None
            weight[:], self._velocities[name][:] = update(*state, h.momentum, h.weight_decay, eta)
            weight *= self._masks.get(name, 1)
        return -(target * log_probability).sum(axis=1)

    def evaluate(self) -> tuple[int, int]:
        correct = total = 0
        for batch in self.validation_data.epoch():
            self.steps += 1
            correct += int((self._logits(batch.images).argmax(axis=1) == batch.labels)[: batch.samples].sum())
            total += batch.samples
        self.validation_data.check_labels()
        return correct, total

    def predictions(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        batches = self._open(self.config, "val")
        for images, labels, samples, _ in batches.epoch():
            self.steps += 1
            yield self._logits(images)[:samples], labels[:samples]
        batches.check_labels()

    def _wait(self) -> None:
        """Do nothing: a processor has finished when NumPy returns."""

    def close(self) -> None:
        self.training_data = self.validation_data = None
        self.communicator.close()


create = ToyImplementation

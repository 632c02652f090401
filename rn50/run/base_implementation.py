"""The neutral half of an implementation: tensors and momentum by name, the data of a run, its evaluation."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from rn50.data.pipeline.batches import Batch, Batches, BatchFormat, Split
from rn50.run import precision, training
from rn50.settings.config import Config


class BaseImplementation(ABC):
    """See ``rn50.run.implementation.Implementation``. A framework adds warm-up, training loop and the methods
    below that are abstract.

    ``network`` and ``optimizer`` are set by its ``warm_up``.
    """

    network: Any
    optimizer: Any
    batch_format: BatchFormat
    _seed: int

    def __init__(self, config: Config, communicator: Any):
        self.config, self.communicator = config, communicator
        self.precision = precision.before_warm_up(config)
        self._learning_rates, self._pace = training.LearningRates(config), training.Pace()
        self.steps = 0
        self.forward_seconds = math.inf
        self.training_data: Any = None
        self.validation_data: Any = None

    @property
    def waits_for_data(self) -> bool:
        """True while a requested batch is not ready."""
        return any(data is not None and data.waiting for data in (self.training_data, self.validation_data))

    def weights(self) -> dict[str, np.ndarray]:
        """Return copies of all tensors."""
        return {name: self._array(tensor) for name, tensor in self._tensors().items()}

    def assign(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Give tensors these values."""
        self._assign(self._tensors(), arrays)

    def momentum(self) -> dict[str, np.ndarray]:
        """Return copies of the momentum."""
        return {name: self._array(tensor) for name, tensor in self.optimizer.momentum().items()}

    def assign_momentum(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Give the momentum these values."""
        self._assign(self.optimizer.momentum(), arrays)

    def _assign(self, tensors: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            self._set(tensors[name], array)

    def open_data(self) -> None:
        """Open the data set for the first time."""
        self.training_data = self._open(self.config, "train")
        self.validation_data = self._open(self.config, "val")

    def begin_after(self, epoch: int, seed: int) -> None:
        """Go on as after ``epoch`` epochs, and read the training set with another seed."""
        self._learning_rates.go_on_after(epoch)
        self._seed, self.training_data = seed, None
        self.training_data = self._open(self.config, "train")

    def evaluate(self) -> tuple[int, int]:
        """Return (correct, total) of this rank's shard of the validation set."""
        correct: Any = 0
        total = 0
        with self._lost_rank_named():
            for batch in self.validation_data.epoch():
                self.steps += 1
                if batch.samples:
                    correct = correct + self._evaluate(batch.images, batch.labels)[: batch.samples].sum()
                    total += batch.samples
            self.validation_data.check_labels()
            count = int(self._array(correct).item()) if total else 0
        return count, total

    def predictions(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield logits and labels of this rank's shard of the validation set."""
        batches = self._open(self.config, "val")
        for images, labels, samples, _ in batches.epoch():
            self.steps += 1
            yield self._array(self._logits(images))[:samples], self._array(labels)[:samples]
        batches.check_labels()

    def close(self) -> None:
        """End the input threads and leave the job."""
        self.training_data = self.validation_data = None
        self.communicator.close()

    def _open(self, config: Config, split: Split) -> Batches:
        """Return the batches of a split."""
        return training.open_batches(config, split, self.communicator, self._seed, self.batch_format)

    def _trial_step(self, batch: Batch) -> None:
        self._train_step(batch, learning_rate=0.0)
        self._wait()

    def _trial_evaluation(self, batch: Batch) -> None:
        self._evaluate(batch.images, batch.labels)
        self._wait()

    _lost_rank_named: Callable[[], AbstractContextManager[None]]
    """Context that raises RankLostError in place of the framework's error after a rank is lost."""

    @abstractmethod
    def _tensors(self) -> dict[str, Any]:
        """Return all tensors of the network by name."""

    @abstractmethod
    def _array(self, tensor: Any) -> np.ndarray:
        """Return a copy of a tensor, in the shape that every framework shares."""

    @abstractmethod
    def _set(self, tensor: Any, array: np.ndarray) -> None:
        """Give a tensor the values of an array of ``_array``, in place."""

    @abstractmethod
    def _train_step(self, batch: Batch, learning_rate: float) -> Any:
        """Run forward pass, backward pass, all-reduce and update; return the loss of every sample."""

    @abstractmethod
    def _evaluate(self, images: Any, labels: Any) -> Any:
        """Return 1 for every sample that is classified correctly, else 0."""

    @abstractmethod
    def _logits(self, images: Any) -> Any:
        """Return the logits of a batch."""

    @abstractmethod
    def _wait(self) -> None:
        """Wait until the device has finished its work."""

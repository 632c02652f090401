"""One rank of the timed run in PaddlePaddle: from a batch of the input pipeline to the update of the
weights."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from implementations.paddle import paddle
from implementations.paddle.communicator import connect, lost_rank_named
from implementations.paddle.input_pipeline import synthetic
from implementations.paddle.model import (
    ResNet50,
    evaluation,
    flatten_gradients,
    tensors,
    trainable,
    training_loss,
)
from implementations.paddle.optimizer import OPTIMIZERS
from rn50.benchmark import quantization
from rn50.data.pipeline.batches import Batch, Batches, BatchFormat
from rn50.run import training
from rn50.run.base_implementation import BaseImplementation
from rn50.run.implementation import EpochResult, OnProgress
from rn50.settings.config import Config


class PaddleImplementation(BaseImplementation):
    """See ``rn50.run.implementation.Implementation``."""

    _lost_rank_named = staticmethod(lost_rank_named)

    def __init__(self, config: Config):
        self._on_gpu = config.run.device == "gpu"
        if self._on_gpu:
            training.require_gpus(
                config,
                paddle.device.cuda.device_count(),
                "use paddlepaddle-gpu and a GPU of compute capability 6.1 to 8.9",
            )
        super().__init__(config, connect(config))
        local_rank = self.communicator.local_rank
        if self._on_gpu:
            training.require_code(config, paddle.device.cuda.get_device_capability(local_rank))
        paddle.set_device(f"gpu:{local_rank}" if self._on_gpu else "cpu")
        half = self.precision.name == "float16"
        self.batch_format = (
            BatchFormat(local_rank, "HWC", half) if self._on_gpu else BatchFormat(None, "CHW", False)
        )
        self._masks: list[tuple[paddle.Tensor, paddle.Tensor]] = []

    @lost_rank_named()
    def warm_up(self, seed: int) -> list[str]:
        """Build everything and run it on synthetic batches, then restore the weights of ``seed``."""
        h = self.config.hyperparameters
        self._seed = seed
        training.prepare_input(self.config, self.batch_format)
        self.network = self._untrained()
        self.network.initialize(seed)
        self.parameters = trainable(self.network)
        self._gradients = flatten_gradients(self.parameters, self.communicator.gradients)
        self.optimizer = OPTIMIZERS[h.optimizer](self.parameters, self._gradients, h)
        self.forward_seconds = training.warm_up(
            self.config, self._synthetic(), self._trial_step, self._trial_evaluation
        )
        self.network.initialize(seed)
        self.optimizer.reset()
        return [parameter.name for parameter in self.parameters]

    def _untrained(self) -> Any:
        """Return the network without values."""
        data, gamma_zero = self.config.data, self.config.hyperparameters.bn_gamma_zero
        return ResNet50(
            data.classes,
            data.width,
            gamma_zero,
            self.precision.name,
            f"N{self.batch_format.layout}",
            self.config.run.quantization == quantization.NAME,
        )

    def _synthetic(self) -> Batches:
        """Return a random batch, held on the device and repeated."""
        return synthetic(self.config, self.communicator.size, self.batch_format)

    def _tensors(self) -> dict[str, paddle.Tensor]:
        return tensors(self.network)

    def _array(self, tensor: paddle.Tensor) -> np.ndarray:
        array: np.ndarray = tensor.numpy()
        return array

    def _set(self, tensor: paddle.Tensor, array: np.ndarray) -> None:
        tensor.set_value(array)

    def keep(self, masks: Mapping[str, np.ndarray]) -> None:
        """Multiply tensors by masks after every update."""
        by_name = tensors(self.network)
        self._masks = [(by_name[name], paddle.to_tensor(mask)) for name, mask in masks.items()]

    @paddle.no_grad()
    def _apply_masks(self) -> None:
        for tensor, mask in self._masks:
            tensor.multiply_(mask)

    @lost_rank_named()
    def train_epoch(self, epoch: int, progress: OnProgress) -> EpochResult:
        """Train on one pass over the training set."""
        self._pace.begin(self.training_data)
        previous: Any = None
        for batch in itertools.islice(self.training_data.epoch(), self.config.run.benchmark_steps):
            loss = self._train_step(batch, self._learning_rates.next())
            self._pace.add(batch.samples)
            # The loss of the previous step, because the latest one may not be computed yet.
            if previous is not None and self._pace.is_due():
                progress(self._pace.samples, float(previous.mean()))
                self.training_data.check_labels()
            previous = loss
        self.training_data.check_labels()
        self._wait()
        result = self._pace.result()
        progress(result.samples, float(previous.mean()))
        return result

    def _train_step(self, batch: Batch, learning_rate: float) -> paddle.Tensor:
        """Run forward pass, backward pass, all-reduce and update; return the loss of every sample."""
        self.steps += 1
        images, labels, samples, global_samples = batch
        self.network.train()
        self._gradients.zero_()
        losses = training_loss(
            self.network, images[:samples], labels[:samples], self.config.hyperparameters.label_smoothing
        )
        losses.sum().backward()
        self.communicator.all_reduce_gradients(self._gradients)
        self.optimizer.step(learning_rate, global_samples)
        self._apply_masks()
        return losses.detach()

    @paddle.no_grad()
    def _evaluate(self, images: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        self.network.eval()
        return evaluation(self.network, images, labels)

    @paddle.no_grad()
    def _logits(self, images: paddle.Tensor) -> paddle.Tensor:
        self.network.eval()
        return self.network(images)

    def _wait(self) -> None:
        if self._on_gpu:
            paddle.device.cuda.synchronize()


create = PaddleImplementation

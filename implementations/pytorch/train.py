"""One rank of the timed run in PyTorch: from a batch of the input pipeline to the update of the weights."""

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from implementations.pytorch.communicator import connect, lost_rank_named
from implementations.pytorch.half_weights import HalfWeights
from implementations.pytorch.input_pipeline import synthetic
from implementations.pytorch.layers import layers_of
from implementations.pytorch.look_back import LookBack
from implementations.pytorch.model import (
    PRECISIONS,
    ResNet50,
    evaluation,
    flatten_parameters,
    tensors,
    trainable,
)
from implementations.pytorch.optimizer import OPTIMIZERS, in_order
from implementations.pytorch.step import Eager, captured, is_captured, of_full_batches
from implementations.pytorch.traits import TRAITS
from rn50.benchmark import quantization
from rn50.data.pipeline.batches import Batch, Batches, BatchFormat
from rn50.errors import UserError
from rn50.run import precision, training
from rn50.run.base_implementation import BaseImplementation
from rn50.run.implementation import EpochResult, OnProgress
from rn50.settings.config import Config


def _require_driver() -> None:
    """Raise UserError if the driver is older than the CUDA that PyTorch was built for. Call it before the
    ranks connect, which takes their GPUs."""
    try:
        torch.cuda.init()
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError("DEVICE=gpu", reason, "rn50 doctor says which driver PyTorch needs") from error


def _require_code(config: Config, index: int) -> None:
    """Raise UserError unless PyTorch has code for a GPU."""
    capability = torch.cuda.get_device_capability(index)
    # Names such as sm_75 and sm_90a, and compute_120 for PTX.
    names = [re.fullmatch(r"(sm|compute)_(\d+)(\d)[a-z]?", name) for name in torch.cuda.get_arch_list()]
    codes = [(match[1], (int(match[2]), int(match[3]))) for match in names if match]
    build = TRAITS._replace(
        capabilities=tuple(code for kind, code in codes if kind == "sm"),
        ptx=min((code for kind, code in codes if kind == "compute"), default=None),
    )
    training.require_code(config, capability, build)


class PytorchImplementation(BaseImplementation):
    """See ``rn50.run.implementation.Implementation``."""

    _lost_rank_named = staticmethod(lost_rank_named)

    def __init__(self, config: Config):
        on_gpu = config.run.device == "gpu"
        if on_gpu:
            training.require_gpus(
                config, torch.cuda.device_count(), "install a driver and PyTorch that fit the GPUs"
            )
            _require_driver()
        super().__init__(config, connect(config))
        local_rank = self.communicator.local_rank
        if on_gpu:
            _require_code(config, local_rank)
        self.device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
        if on_gpu:  # every shape but that of a ragged batch recurs some ten thousand times
            torch.backends.cudnn.benchmark = True
        in_half = on_gpu and self.precision.name != "float32"  # tensor cores want aligned pixels
        self.batch_format = BatchFormat(
            local_rank if on_gpu else None, "HWC", self.precision.name == "float16", 4 if in_half else 3
        )
        self._look_back = LookBack(self.device)
        self._masked: list[torch.Tensor] = []
        self._masks: list[torch.Tensor] = []

    @lost_rank_named()
    def warm_up(self, seed: int) -> list[str]:
        """Build and compile everything on synthetic batches, then restore the weights of ``seed``."""
        h = self.config.hyperparameters
        self._seed = seed
        training.prepare_input(self.config, self.batch_format)
        self.precision = precision.choose(self.config, self.communicator, self._timed_step)
        self.network = self._untrained().to(self.device)
        self.network.initialize(seed)
        self.parameters = trainable(self.network)
        ordered = in_order(self.parameters)
        weights, self._gradients = flatten_parameters(
            ordered, lambda n: self.communicator.gradients(n, self.device)
        )
        self.optimizer = OPTIMIZERS[h.optimizer](ordered, weights, self._gradients, h)
        batches = self._synthetic()
        batch = next(batches.epoch())
        self._ragged_step = Eager(self.network, self._gradients, h.label_smoothing)
        if self.config.run.step_mode == "fused" and self.device.type == "cuda":
            half = PRECISIONS[self.precision.name]
            self._ragged_step = HalfWeights(
                self.network, ordered, weights, self._gradients, h.label_smoothing, half
            )
        self._full_step = of_full_batches(
            self.config.run.step_mode, self._ragged_step, batch.images, batch.labels
        )
        if is_captured(self.config.run.step_mode, self.device):
            self.optimizer.run, _ = captured(self.optimizer.update, self.device)
        self.forward_seconds = training.warm_up(
            self.config, batches, self._trial_step, self._trial_evaluation
        )
        self.network.initialize(seed)
        self.optimizer.reset()
        self._wait()
        return [parameter.name for parameter in self.parameters]

    def _untrained(self) -> Any:
        """Return the network without values."""
        return self._resnet50(self.precision.name)

    def _resnet50(self, dtype: str) -> ResNet50:
        """Return our network in a precision, without values."""
        h, data = self.config.hyperparameters, self.config.data
        layers = layers_of(self.config.run.step_mode, self.device, h.batch_size)
        rounds = self.config.run.quantization == quantization.NAME
        return ResNet50(data.classes, data.width, h.bn_gamma_zero, dtype, rounds=rounds, **layers)

    def _timed_step(self, dtype: str) -> Callable[[], None]:
        """Return a forward and backward pass of our network in a precision; all-reduce and update take as
        long in any."""
        h, network, batch = (
            self.config.hyperparameters,
            self._resnet50(dtype).to(self.device),
            next(self._synthetic().epoch()),
        )
        network.initialize(self._seed)
        _, gradients = flatten_parameters(in_order(trainable(network)), torch.zeros)
        eager = Eager(network, gradients, h.label_smoothing)
        losses = of_full_batches(self.config.run.step_mode, eager, batch.images, batch.labels)

        def step() -> None:
            self.steps += 1
            losses(batch.images, batch.labels)
            self._wait()

        return step

    def _synthetic(self) -> Batches:
        """Return a random batch, held on the device and repeated."""
        return synthetic(self.config, self.communicator.size, self.batch_format)

    def _tensors(self) -> dict[str, torch.Tensor]:
        return tensors(self.network)

    def _array(self, tensor: torch.Tensor) -> np.ndarray:
        return np.array(tensor.cpu().numpy(), order="C")

    def _set(self, tensor: torch.Tensor, array: np.ndarray) -> None:
        tensor.copy_(torch.from_numpy(array))

    def keep(self, masks: Mapping[str, np.ndarray]) -> None:
        """Multiply tensors by masks after every update."""
        self._masked = [tensors(self.network)[name] for name in masks]
        self._masks = [
            torch.empty_like(masked).copy_(torch.from_numpy(mask))
            for masked, mask in zip(self._masked, masks.values(), strict=False)
        ]

    @lost_rank_named()
    def train_epoch(self, epoch: int, progress: OnProgress) -> EpochResult:
        """Train on one pass over the training set."""
        self._pace.begin(self.training_data)
        previous: Any = None
        for batch in itertools.islice(self.training_data.epoch(), self.config.run.benchmark_steps):
            loss = self._train_step(batch, self._learning_rates.next())
            self._pace.add(batch.samples)
            if previous is not None and self._pace.is_due():
                with self._look_back.reading():
                    progress(self._pace.samples, float(previous.mean()))
                    self.training_data.check_labels()
            previous = loss
            self._look_back.mark()
        self.training_data.check_labels()
        self._wait()
        result = self._pace.result()
        progress(result.samples, float(previous.mean()))
        return result

    def _train_step(self, batch: Batch, learning_rate: float) -> torch.Tensor:
        """Run forward pass, backward pass, all-reduce and update; return the loss of every sample."""
        self.steps += 1
        images, labels, samples, global_samples = batch
        ragged = samples < len(labels)
        if ragged:
            with self._without_trials():
                loss = self._ragged_step(images[:samples], labels[:samples])
        else:
            loss = self._full_step(images, labels)
        self.communicator.all_reduce_gradients(self._gradients)
        self.optimizer.step(learning_rate, global_samples)
        if self._masks:
            torch._foreach_mul_(self._masked, self._masks)
        return loss

    @contextlib.contextmanager
    def _without_trials(self) -> Iterator[None]:
        """Let cuDNN choose algorithms without trials, which would take longer than the one batch per epoch of
        this shape."""
        torch.backends.cudnn.benchmark = False
        yield
        torch.backends.cudnn.benchmark = self.device.type == "cuda"

    @torch.no_grad()
    def _evaluate(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.network.eval()
        return evaluation(self.network, images, labels)

    @torch.no_grad()
    def _logits(self, images: torch.Tensor) -> torch.Tensor:
        self.network.eval()
        return self.network(images)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


create = PytorchImplementation

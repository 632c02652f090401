"""The engine of PyTorch: it builds the network and computes the training steps and evaluations of one rank.

``Rank`` in ``rn50/run/loop.py`` calls it for every batch. ``rn50/run/engine.py`` says what each public method
owes its caller.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from implementations.pytorch import device
from implementations.pytorch.averages import Averages
from implementations.pytorch.half_weights import HalfWeights
from implementations.pytorch.layers import layers_of
from implementations.pytorch.look_back import LookBack
from implementations.pytorch.model import PRECISIONS, ResNet50, flatten, tensors, trainable
from implementations.pytorch.optimizer import OPTIMIZERS
from implementations.pytorch.step import Eager, captured, full_batch_step, is_captured
from rn50.benchmark import quantization
from rn50.data.pipeline.batches import Batch, BatchFormat
from rn50.run.precision import before_warm_up
from rn50.settings.config import Config


class PytorchEngine:
    """The engine of one rank. The docstrings of its public methods are in ``rn50.run.engine.Engine``."""

    def __init__(self, config: Config, communicator: Any):
        self._config, self._communicator = config, communicator
        self.device = device.of_rank(config, communicator.local_rank)
        # cuDNN times several algorithms for each new shape and keeps the fastest. It pays because all full
        # batches have one shape, which recurs in thousands of steps.
        torch.backends.cudnn.benchmark = self.device.type == "cuda"
        self._look_back = LookBack(self.device)
        # Tensors that every update multiplies by a mask of 0 and 1, and these masks (``keep``).
        self._masked: list[torch.Tensor] = []
        self._masks: list[torch.Tensor] = []
        self.batch_format = self._format()

    def build(self, seed: int, precision: str) -> list[str]:
        h, mode = self._config.hyperparameters, self._config.run.step_mode
        self.network = self._network(precision).to(self.device)
        self.network.initialize(seed)
        parameters = trainable(self.network)
        # From here on the parameters are views of one tensor, and their gradients views of another.
        flat = flatten(parameters, self._zeros)
        self._gradients = flat.gradients
        self.optimizer = OPTIMIZERS[h.optimizer](flat, h)
        self._averages = Averages(flat, self.tensors()) if h.ema_half_life else None
        is_binary = h.loss == "binary"
        # The step of a ragged batch, the last of an epoch, which may be smaller than the others. It runs
        # operation by operation, and is never captured as a CUDA graph.
        self._ragged_step = Eager(self.network, self._gradients, h.label_smoothing, is_binary)
        if mode == "fused" and self.device.type == "cuda":
            # This step casts all weights to half precision in one kernel.
            dtype = PRECISIONS[precision]
            self._ragged_step = HalfWeights(self.network, flat, h.label_smoothing, dtype, is_binary)
        # The same step for full batches, compiled or captured as ``mode`` says, for each size of images. The
        # captured steps share their memory: no two run at the same time.
        pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None
        self._full_steps = {}
        for size in self._config.image_sizes:
            images, labels, *_ = self.synthetic(size)
            self._full_steps[size] = full_batch_step(mode, self._ragged_step, images, labels, pool)
        if is_captured(mode, self.device):
            # ``optimizer.step`` calls ``run``: from here on it replays a CUDA graph of the update.
            self.optimizer.run, _ = captured(self.optimizer.update, self.device)
            # The captures have run steps and updates. The updates had a learning rate of 0, but the steps
            # have changed the running statistics: set the initial values again.
            self.network.initialize(seed)
        return [parameter.name for parameter in parameters]

    def step(self, batch: Batch, learning_rate: float, average_share: float = 0.0) -> torch.Tensor:
        # During this step the loop reads the loss of the step before, by ``mean``. That waits for the work
        # that has been started up to here, and not for this step.
        self._look_back.mark()
        images, labels, samples, global_samples = batch
        # Behind the ``samples`` images of a ragged batch is padding.
        if samples < len(labels):
            with self._without_trials():
                loss = self._ragged_step(images[:samples], labels[:samples])
        else:
            loss = self._full_step(images, labels)
        self._communicator.all_reduce_gradients(self._gradients)
        self.optimizer.step(learning_rate, global_samples)
        if self._masks:
            torch._foreach_mul_(self._masked, self._masks)
        if self._averages and average_share:
            self._averages.update(average_share)
        return loss

    def mean(self, loss: torch.Tensor) -> float:
        with self._look_back.reading():
            return float(loss.mean())

    def correct(self, batch: Batch) -> torch.Tensor:
        is_correct = self.logits(batch.images).argmax(dim=1) == batch.labels
        return is_correct[: batch.samples].sum()

    @torch.no_grad()
    def logits(self, images: torch.Tensor) -> torch.Tensor:
        self.network.eval()
        return self.network(images)

    def tensors(self) -> dict[str, torch.Tensor]:
        return tensors(self.network)

    def state(self) -> dict[str, dict[str, torch.Tensor]]:
        averages = self._averages.tensors if self._averages else {}
        return {"momentum": self.optimizer.momentum(), "average": averages}

    def array(self, tensor: torch.Tensor) -> np.ndarray:
        return np.array(tensor.cpu().numpy(), order="C")

    def set(self, tensor: torch.Tensor, array: np.ndarray) -> None:
        tensor.copy_(torch.from_numpy(array))

    def keep(self, masks: Mapping[str, np.ndarray]) -> None:
        by_name = self.tensors()
        self._masked = [by_name[name] for name in masks]
        pairs = zip(self._masked, masks.values(), strict=True)
        self._masks = [torch.empty_like(masked).copy_(torch.from_numpy(mask)) for masked, mask in pairs]

    def synthetic(self, image_size: int) -> Batch:
        """Return a random batch: images (B, channels, S, S), channels-last in memory, labels (B,) int64."""
        samples, data = self._config.hyperparameters.batch_size, self._config.data
        shape = self.batch_format.shape(samples, image_size)
        dtype = getattr(torch, self.batch_format.dtype)
        random = torch.Generator().manual_seed(0)
        images = torch.randn(shape, generator=random).to(self.device, dtype).permute(0, 3, 1, 2)
        labels = torch.randint(data.classes, (samples,), generator=random).to(self.device)
        return Batch(images, labels, samples, samples * self._communicator.size)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _full_step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Run the step of a full batch (``step.Step``)."""
        return self._full_steps[images.shape[-1]](images, labels)

    def _zeros(self, values: int) -> torch.Tensor:
        """Return the memory of the gradients, float32 of shape (values,): shared with the other ranks if the
        communicator has such memory, else on the device."""
        shared = self._communicator.shared(values)
        return torch.zeros(values, device=self.device) if shared is None else torch.from_numpy(shared)

    def _format(self) -> BatchFormat:
        # On a CPU the warm-up may still change the precision, but there the format does not depend on it.
        precision = before_warm_up(self._config).name
        on_tensor_cores = precision != "float32" and self.device.type == "cuda"
        # The kernels of tensor cores need aligned pixels: a fourth channel, of zeros, aligns them.
        channels = 4 if on_tensor_cores else 3
        # The input pipeline makes float16 or float32, not bfloat16.
        return BatchFormat(self.device.index, "HWC", on_tensor_cores and precision == "float16", channels)

    def _network(self, precision: str) -> Any:
        """Return the network, without initial weights."""
        h, data, run = self._config.hyperparameters, self._config.data, self._config.run
        layers = layers_of(run.step_mode, self.device, h.batch_size)
        rounds = run.quantization == quantization.NAME
        layers |= {"rounds": rounds, "blur": h.blur_pool, "bias": self._config.first_bias}
        return ResNet50(data.classes, data.width, h.bn_gamma_zero, precision, **layers)

    @contextlib.contextmanager
    def _without_trials(self) -> Iterator[None]:
        """Let cuDNN choose algorithms without timing them in this context. For the one ragged batch of an
        epoch the trials would take longer than the step itself."""
        torch.backends.cudnn.benchmark = False
        yield
        torch.backends.cudnn.benchmark = self.device.type == "cuda"


create = PytorchEngine
"""Name by which rn50 finds the engine of any framework."""

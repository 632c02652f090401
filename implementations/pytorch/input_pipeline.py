"""Batches for the training loop: from DALI, or synthetic ones held in memory."""

import pathlib
import time
from typing import Any, Iterator, NamedTuple

import torch
from nvidia.dali.plugin.pytorch import feed_ndarray

from rn50.config import Config
from rn50.data import dali_pipeline, shards, verify
from rn50.errors import UserError


class Batch(NamedTuple):
    """Images (B, 3, S, S), channels-last in memory, labels (B,) int64, and how many samples there are."""

    images: torch.Tensor
    labels: torch.Tensor
    samples: int
    global_samples: int
    """Samples of this step over all ranks."""


def form(device: torch.device, precision: str) -> dali_pipeline.Form:
    """What DALI is to make of the images."""
    return dali_pipeline.Form(device.index if device.type == "cuda" else None, "HWC", precision == "float16")


class DaliBatches:
    """One of the two sets, read by DALI while the previous batch trains."""

    def __init__(self, config: Config, training: bool, communicator: Any, seed: int, device: torch.device, precision: str):
        self._config = config
        self._training = training
        self._rank, self._ranks = communicator.rank, communicator.size
        self._batch_size = config.hyperparameters.batch_size
        samples = config.data.train_samples if training else config.data.eval_samples
        name, variable = ("train", "NUMEXAMPLES") if training else ("val", "NUMVALEXAMPLES")
        self._rec, self._idx = (pathlib.Path(config.data.folder, f"{name}.{kind}") for kind in ("rec", "idx"))
        verify.check_record_set(self._rec, self._idx, samples, variable)
        self._shard_sizes = shards.shard_sizes(samples, self._ranks)
        self._batches = shards.batches(samples, self._ranks, self._batch_size)
        # Another seed on every rank: with one seed, all ranks would crop their images in the same places.
        self._pipeline = dali_pipeline.build(
            config, training, self._rank, self._ranks, seed + self._rank, form(device, precision)
        )
        size = config.data.image_size
        shape = (self._batch_size, size, size, 3)
        dtype = torch.float16 if precision == "float16" else torch.float32
        # On a GPU the batch before is read and this one copied in on one stream, one after the other.
        self._images = torch.empty(shape, dtype=dtype, device=device)
        self._labels = torch.empty(self._batch_size, 1, device=device)
        self._stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        self._lowest, self._highest = torch.zeros((), device=device), torch.zeros((), device=device)
        self._passes = 0
        self.wait_seconds = 0.0
        """Time spent waiting for DALI, over the life of this object."""
        self.waiting = False
        """Whether it waits for DALI now."""

    def epoch(self) -> Iterator[Batch]:
        """One pass over this rank's shard, the samples that fill up the last batch cut off."""
        # DALI moves on to the next shard after every pass over the training set.
        shard = (self._rank + self._passes) % self._ranks if self._training else self._rank
        self._passes += 1
        for index in range(self._batches):
            self._feed()
            flat = self._labels.view(-1)
            self._lowest, self._highest = torch.minimum(self._lowest, flat.min()), torch.maximum(self._highest, flat.max())
            real = shards.real_samples(self._shard_sizes[shard], index, self._batch_size)
            total = sum(shards.real_samples(size, index, self._batch_size) for size in self._shard_sizes)
            # A label that is out of range is told of by check_labels; until then it must not stop the device.
            classes = flat.clamp(0, self._config.data.classes - 1).long()
            yield Batch(self._images.permute(0, 3, 1, 2), classes, real, total)

    def drain(self) -> None:
        """Throws away the batches that are prepared ahead."""
        for _ in range(self._config.input_pipeline.prefetch_queue_depth):
            self._run()

    def check_labels(self) -> None:
        """Raises UserError where a label of the batches so far is not in [0, classes). Waits for the device."""
        low, high = float(self._lowest), float(self._highest)
        if low < 0 or high >= self._config.data.classes:
            label = low if low < 0 else high
            raise UserError(self._fault(f"{self._rec}: there is a label {label:.0f}, outside [0, {self._config.data.classes})"))

    def _feed(self) -> None:
        begin = time.perf_counter()
        outputs = self._run()
        self.wait_seconds += time.perf_counter() - begin
        for output, tensor in zip(outputs, (self._images, self._labels)):
            feed_ndarray(output.as_tensor(), tensor, cuda_stream=self._stream)

    def _run(self) -> Any:
        self.waiting = True
        try:
            outputs = self._pipeline.run()
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(self._fault(f"{self._rec}: DALI cannot read it: {reason}")) from error
        self.waiting = False
        return outputs

    def _fault(self, otherwise: str) -> str:
        """The first bad record of the file in words, or ``otherwise`` where none is found in good time."""
        return verify.find_bad_record(self._rec, self._idx, self._config.data.classes) or otherwise


class SyntheticBatches:
    """The same full random batch again and again, held on the device."""

    wait_seconds = 0.0
    waiting = False

    def __init__(self, config: Config, ranks: int, device: torch.device, precision: str):
        size, batch_size = config.data.image_size, config.hyperparameters.batch_size
        random = torch.Generator().manual_seed(0)
        images = torch.randn(batch_size, size, size, 3, generator=random)
        labels = torch.randint(config.data.classes, (batch_size,), generator=random)
        dtype = torch.float16 if precision == "float16" else torch.float32
        self._batch = Batch(images.to(device, dtype).permute(0, 3, 1, 2), labels.to(device), batch_size, batch_size * ranks)

    def epoch(self) -> Iterator[Batch]:
        """The one batch without end."""
        while True:
            yield self._batch

    def drain(self) -> None:
        """Nothing is prepared ahead."""

    def check_labels(self) -> None:
        """They are made to fit."""

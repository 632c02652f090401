"""Batches from PaddlePaddle's DataLoader, for machines without DALI: INPUT_LIBRARY=dataloader."""

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
from paddle.io import DataLoader

from implementations.paddle import paddle
from rn50.benchmark import rules
from rn50.data.pipeline import loader_batches, loader_records
from rn50.data.pipeline.batches import BatchFormat, Split
from rn50.process import ask_to_end_with_parent
from rn50.settings.config import Config


class Records(loader_records.Records):
    """Records whose batches are NumPy arrays alone: PaddlePaddle's DataLoader hands over nothing else."""

    def arrays(self, samples: list[Any]) -> list[np.ndarray]:
        """Return the images and labels of a batch, or one array with the bytes of an error line."""
        batch = self.together(samples)
        return [np.frombuffer(batch.encode(), np.uint8)] if isinstance(batch, str) else [*batch]


class LoaderBatches(loader_batches.LoaderBatches):
    """Batches of images (B, 3, S, S) or (B, S, S, 3) and labels (B,) int64."""

    records = Records
    _records: Records

    def __init__(self, config: Config, split: Split, communicator: Any, seed: int, form: BatchFormat):
        super().__init__(config, split, communicator, seed, form)
        self._form = form
        self._mean, self._std = (paddle.to_tensor(values, "float32") for values in (rules.MEAN, rules.STD))

    def _load(self, order: loader_records.Order, workers: int, ahead: int) -> Iterator[Any]:
        end_with_us = ask_to_end_with_parent()
        batches = iter(
            DataLoader(
                self._records,
                batch_sampler=order,
                collate_fn=self._records.arrays,
                num_workers=workers,
                prefetch_factor=ahead,
                worker_init_fn=lambda _: end_with_us(),
            )
        )
        # DataLoader has no public way to end its processes, and its thread keeps it alive while batches
        # remain, which is for ever.
        weakref.finalize(self, batches._try_shutdown_all)
        return map(_batch_or_fault, batches)

    def _on_device(self, images: paddle.Tensor, labels: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        pixels = ((images.astype("float32") - self._mean) / self._std).astype(self._form.dtype)
        return pixels if self._form.layout == "HWC" else pixels.transpose([0, 3, 1, 2]), labels.astype(
            "int64"
        )


def _batch_or_fault(arrays: list[paddle.Tensor]) -> Any:
    """Undo ``Records.arrays``: return the batch, or the error line."""
    return arrays if len(arrays) == 2 else arrays[0].numpy().tobytes().decode()

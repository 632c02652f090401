"""Batches from PaddlePaddle's DataLoader, for INPUT_LIBRARY=dataloader, which machines without DALI use. The
base class decodes and counts samples; this file normalises each batch on the rank's device."""

import functools
import weakref
from collections.abc import Iterator
from typing import Any

from paddle.io import DataLoader

from implementations.paddle import paddle
from rn50.benchmark import rules
from rn50.data.pipeline import loader_batches


class LoaderBatches(loader_batches.LoaderBatches):
    """Batches of images (B, 3, S, S) or (B, S, S, 3) and labels (B,) int64."""

    @functools.cached_property
    def _mean_and_std(self) -> list[paddle.Tensor]:
        """Mean and standard deviation of the channels, on the rank's device."""
        return [paddle.to_tensor(values, "float32") for values in (rules.MEAN, rules.STD)]

    def _load(self, **options: Any) -> Iterator[Any]:
        batches = iter(DataLoader(collate_fn=self._records.collate, **options))
        # Our order of batches never ends, and while batches remain, a thread of DataLoader keeps it alive. It
        # has no public function that ends its processes.
        weakref.finalize(self, batches._try_shutdown_all)
        return batches

    def _placed(self, prepared: list[paddle.Tensor], index: int) -> tuple[paddle.Tensor, paddle.Tensor]:
        images, labels = prepared
        mean, std = self._mean_and_std
        pixels = ((images.astype("float32") - mean) / std).astype(self._batch_format.dtype)
        placed = pixels if self._batch_format.layout == "HWC" else pixels.transpose([0, 3, 1, 2])
        return placed, labels.astype("int64")

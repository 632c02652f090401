"""Batches from DALI in PaddlePaddle's tensors, for INPUT_LIBRARY=dali. The base class runs DALI's pipeline
and counts samples; this file copies each batch to the rank's device."""

from typing import Any

from nvidia.dali.plugin.paddle import feed_ndarray

from implementations.paddle import paddle
from rn50.data.pipeline import dali_batches
from rn50.data.pipeline.batches import BatchFormat


class DaliBatches(dali_batches.DaliBatches):
    """Batches of images (B, 3, S, S) or (B, S, S, 3) and labels (B,) int64."""

    def _allocate(self, batch_format: BatchFormat, shape: tuple[int, ...]) -> Any:
        """Return the buffers into which ``_copied`` copies a batch: images of ``shape``, and labels (B, 1),
        float32. The base class calls it once for each size of images."""
        on_gpu = batch_format.device_id is not None
        self._stream = paddle.device.cuda.current_stream().cuda_stream if on_gpu else None
        self._wrong = paddle.zeros([], "int64")
        # One buffer is enough. On a GPU a copy and the step before it are in one stream, so that the copy
        # begins when the step has read the previous batch.
        return paddle.empty(shape, batch_format.dtype), paddle.empty([shape[0], 1], "float32")

    def _copied(self, outputs: Any, arrays: Any, index: int) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Copy DALI's ``outputs``, images and labels, to the device, and return them as a batch."""
        for output, tensor in zip(outputs, arrays, strict=False):
            feed_ndarray(output.as_tensor(), tensor.data_ptr(), cuda_stream=self._stream)
        images, labels = arrays[0], arrays[1].reshape([-1])
        # A label that is not a class index would stop a GPU. It is clamped and counted here, and
        # ``check_labels`` reports it after the epoch.
        classes = paddle.nan_to_num(labels, nan=-1.0).clip(0, self._classes - 1).astype("int64")
        self._wrong += (labels != classes.astype("float32")).sum()
        return images, classes

    def _wrong_labels(self) -> int:
        """Return the number of labels so far that are not a class index."""
        return int(self._wrong)

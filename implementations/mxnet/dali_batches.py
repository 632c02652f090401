"""Batches from DALI in MXNet's arrays. The base class runs DALI's pipeline and counts samples; this file
copies each batch to the rank's device."""

import ctypes
from typing import Any

import mxnet as mx
from mxnet.base import _LIB, check_call
from nvidia.dali.backend import TensorCPU, TensorGPU

from rn50.data.pipeline import dali_batches
from rn50.data.pipeline.batches import BatchFormat


class DaliBatches(dali_batches.DaliBatches):
    """Batches of images (B, 3, S, S) or (B, S, S, 3) and labels (B,) float32."""

    def _allocate(self, batch_format: BatchFormat, shape: tuple[int, ...]) -> Any:
        gpu = batch_format.device_id
        context = mx.cpu() if gpu is None else mx.gpu(gpu)
        self._wrong = mx.nd.zeros(1, context)
        # Two buffers, so that a batch can be copied while MXNet still reads the batch before. ``copy_in``
        # waits until MXNet has done with a buffer.
        return [
            (mx.nd.empty(shape, context, batch_format.dtype), mx.nd.empty((shape[0], 1), context))
            for _ in range(2)
        ]

    def _copied(self, outputs: Any, arrays: Any, index: int) -> tuple[Any, Any]:
        buffers = arrays[index % 2]
        for output, array in zip(outputs, buffers, strict=False):
            copy_in(output.as_tensor(), array)
        images, labels = buffers[0], buffers[1].reshape(-1)
        # A label that is not a class index is counted here, for ``check_labels``, and becomes 0. NaN is none
        # because it is not equal to itself.
        is_class = (labels == labels.floor()) * (labels >= 0) * (labels < self._classes)
        self._wrong += (1 - is_class).sum()
        return images, mx.nd.where(is_class, labels, mx.nd.zeros_like(labels))

    def _wrong_labels(self) -> int:
        return int(self._wrong.asscalar())


def copy_in(source: TensorCPU | TensorGPU, array: Any) -> None:
    """Copy a tensor of DALI to an array of the same shape and type. Wait until MXNet has done with the array,
    and until the copy is complete.

    ``feed_ndarray`` of DALI 1.34 waits for neither. MXNet's streams know nothing of the copy, so that MXNet
    could read an array on a GPU too early (github.com/NVIDIA/DALI/pull/5364). Raises RuntimeError if the
    shapes differ.
    """
    if source.shape() != list(array.shape):
        raise RuntimeError(f"DALI's shape is {source.shape()}, the array's {array.shape}")
    address = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayWaitToWrite(array.handle))
    check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(address)))
    source.copy_to_external(address)

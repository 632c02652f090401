"""Batches from DALI in NumPy arrays, on the CPU, for code that uses no framework, such as the evaluation of
an ONNX model."""

from typing import Any

import numpy as np

from rn50.data.pipeline import dali_batches


class NumpyBatches(dali_batches.DaliBatches):
    """Batches of images, in the shape and type that a ``BatchFormat`` gives, and labels (B,) int64. The
    arrays of a batch are valid until the next batch is taken."""

    _wrong = 0

    def _copied(self, outputs: Any, arrays: Any, index: int) -> tuple[np.ndarray, np.ndarray]:
        images, column = (output.as_array() for output in outputs)
        labels = column.reshape(-1)  # from (B, 1)
        # A label that is not a class index becomes one here; ``check_labels`` reports it later.
        classes = np.clip(np.nan_to_num(labels, nan=-1), 0, self._classes - 1).astype(np.int64)
        self._wrong += int((labels != classes).sum())
        return images, classes

    def _wrong_labels(self) -> int:
        return self._wrong

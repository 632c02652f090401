"""The toy's batches from DALI: NumPy's."""

from rn50.data.pipeline.numpy_batches import NumpyBatches as DaliBatches

__all__ = ["DaliBatches"]

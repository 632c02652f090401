"""MXNet's batches."""

from implementations.mxnet.dali_batches import DaliBatches

__all__ = ["DaliBatches"]

"""MXNet's communicator."""

from implementations.mxnet.communicator import connect

__all__ = ["connect"]

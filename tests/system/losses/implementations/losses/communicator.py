"""MXNet's communicators."""

from implementations.mxnet.communicator import Distributed, SharedMemory

__all__ = ["Distributed", "SharedMemory"]

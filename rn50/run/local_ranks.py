"""The ranks of a run on one machine, and their all-reduce in shared memory.

``local_launcher`` gives each rank a socket to every other one, and all ranks one memory. The all-reduce works
in place: each rank sums its share of the elements, in the time that reading and writing them takes. When a
rank is gone its sockets close, which the others see at once.
"""

import contextlib
import mmap
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rn50.errors import RankLostError
from rn50.process import MEMORY, RANK, SOCKETS
from rn50.run.clock import seconds_of

CHUNK = 1 << 15
"""Elements that are summed at a time: they fit into a core's cache, from which the sum is copied to all
ranks."""


def started_here(environ: Mapping[str, str]) -> bool:
    """Return True if this process is one of several ranks that ``local_launcher`` started."""
    return SOCKETS in environ


class LocalRanks:
    """This rank and its connections to the others: a communicator."""

    library = "shared memory"
    lost_rank_named = contextlib.nullcontext  # the methods raise RankLostError themselves

    def __init__(self, environ: Mapping[str, str]):
        self.rank = self.local_rank = int(environ[RANK])
        sockets = dict(enumerate(environ[SOCKETS].split(",")))
        self.size = len(sockets)
        self._peers = {rank: socket.socket(fileno=int(number)) for rank, number in sockets.items() if number}
        self._memory, self._bytes = int(environ[MEMORY]), 0
        self._shared: list[list[np.ndarray]] = []
        """The arrays of all ranks for each array of ``shared``, in their order."""

    def barrier(self) -> None:
        """Wait until every rank has called it. Like all methods below, raises RankLostError if a rank is
        gone."""
        self._exchange(b"\0")

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """Return the element-wise sum of a small int64 array (64 KiB at most) over all ranks, on every
        rank."""
        arrays = [np.frombuffer(content, np.int64) for content in self._exchange(array.tobytes())]
        return np.sum(arrays, axis=0, dtype=np.int64).reshape(array.shape)

    def all_reduce_seconds(self, values: int, repeats: int) -> list[float]:
        """Return the seconds of each of ``repeats`` all-reduces of ``values`` float32 numbers."""
        start = self._bytes
        arrays = self.share(values)
        seconds = seconds_of(lambda: self.all_reduce_shared(arrays), self.barrier, repeats)
        self.barrier()  # nobody uses the arrays again
        self._bytes = start
        if self.rank == 0:
            os.ftruncate(self._memory, start)
        self.barrier()
        return seconds

    def shared(self, values: int) -> np.ndarray:
        """Return this rank's array of ``share``, for gradients."""
        self._shared.append(self.share(values))
        return self._shared[-1][self.rank]

    def all_reduce_gradients(self, gradients: Any) -> None:
        """All-reduce in place what ``shared`` has returned; ``gradients`` are views of it."""
        for arrays in self._shared:
            self.all_reduce_shared(arrays)

    def share(self, values: int) -> list[np.ndarray]:
        """Return one array of ``values`` float32 zeros per rank, in memory that all ranks share. All ranks
        call it in the same order."""
        stride = -(-4 * values // mmap.PAGESIZE) * mmap.PAGESIZE
        start, self._bytes = self._bytes, self._bytes + stride * self.size
        if self.rank == 0:
            os.ftruncate(self._memory, self._bytes)
        self.barrier()
        mapped = mmap.mmap(self._memory, stride * self.size, offset=start)
        return [np.frombuffer(mapped, np.float32, values, rank * stride) for rank in range(self.size)]

    def all_reduce_shared(self, arrays: Sequence[np.ndarray]) -> None:
        """All-reduce the arrays of ``share`` in place. The sums are the same to the last bit on every
        rank."""
        self.barrier()
        values = len(arrays[0])
        end = values * (self.rank + 1) // self.size
        for start in range(values * self.rank // self.size, end, CHUNK):
            chunks = [array[start : min(start + CHUNK, end)] for array in arrays]
            for chunk in chunks[1:]:
                chunks[0] += chunk
            for chunk in chunks[1:]:
                chunk[:] = chunks[0]
        self.barrier()

    def close(self) -> None:
        """Close the connections. A second call does nothing."""
        for peer in self._peers.values():
            peer.close()

    def _exchange(self, words: bytes) -> list[bytes]:
        """Return the messages of all ranks, in the order of the ranks. All messages have the same length."""
        try:
            for peer in self._peers.values():
                peer.sendall(words)
            received = {rank: _receive(peer, len(words)) for rank, peer in self._peers.items()}
            return [received.get(rank, words) for rank in range(self.size)]
        except OSError as error:
            raise RankLostError from error


def _receive(peer: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        received = peer.recv(size - len(content))
        if not received:
            raise ConnectionResetError
        content += received
    return content

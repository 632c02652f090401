"""The ranks of a run on one machine, and their all-reduce in shared memory.

``local_launcher`` starts the ranks. It gives each rank a socket to every other rank, and a descriptor of
memory that all ranks share. The all-reduce works in place: each rank sums one part of the elements over the
arrays of all ranks and writes the sums back to all arrays, which takes only the time to read and write them.
When a rank ends, its sockets close, which the other ranks see at once.

``SharedMemory`` in ``communicator.py`` of each framework is ``LocalRanks`` or a subclass of it.
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
"""Elements that are summed at a time. They fit into a core's cache, so the sums are still there when they are
copied to the arrays of the other ranks."""


def started_here(environ: Mapping[str, str]) -> bool:
    """Return True if this process is a rank that ``local_launcher`` started."""
    return SOCKETS in environ


class LocalRanks:
    """A communicator: this rank and its connections to the other ranks of the machine.

    All methods but ``close`` raise RankLostError if another rank has ended.
    """

    library = "shared memory"
    lost_rank_named = contextlib.nullcontext  # the methods raise RankLostError themselves

    def __init__(self, environ: Mapping[str, str]):
        self.rank = self.local_rank = int(environ[RANK])
        descriptors = dict(enumerate(environ[SOCKETS].split(",")))  # by rank; empty for this rank
        self.size = len(descriptors)
        self._peers = {rank: socket.socket(fileno=int(fd)) for rank, fd in descriptors.items() if fd}
        """Rank -> socket to it, for all ranks but this one."""
        self._memory = int(environ[MEMORY])
        """Descriptor of the shared memory."""
        self._bytes = 0
        """Size of the shared memory."""
        self._shared: list[list[np.ndarray]] = []
        """For each call of ``shared`` a list of the arrays of all ranks, by rank."""

    def barrier(self) -> None:
        """Wait until every rank has called this method."""
        self._exchange(b"\0")

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """Return the element-wise sum of an int64 array of 64 KiB at most over all ranks, on every rank. All
        ranks send before they receive, so a larger array might fill the sockets' buffers and block them."""
        arrays = [np.frombuffer(message, np.int64) for message in self._exchange(array.tobytes())]
        return np.sum(arrays, axis=0, dtype=np.int64).reshape(array.shape)

    def all_reduce_seconds(self, values: int, repeats: int) -> list[float]:
        """Time ``repeats`` all-reduces of ``values`` float32 numbers. Return the seconds of each."""
        bytes_before = self._bytes
        arrays = self.allocate(values)
        seconds = seconds_of(lambda: self.all_reduce_shared(arrays), self.barrier, repeats)
        self.barrier()  # after it no rank uses the arrays, so rank 0 may remove them from the shared memory
        self._bytes = bytes_before
        if self.rank == 0:
            os.ftruncate(self._memory, bytes_before)
        self.barrier()
        return seconds

    def shared(self, values: int) -> np.ndarray:
        """Allocate an array of ``values`` float32 zeros for gradients on each rank. Return that of this
        rank."""
        self._shared.append(self.allocate(values))
        return self._shared[-1][self.rank]

    def all_reduce_gradients(self, gradients: Any) -> None:
        """All-reduce in place all arrays that ``shared`` has returned. ``gradients`` are views of them, and
        not used."""
        for arrays in self._shared:
            self.all_reduce_shared(arrays)

    def allocate(self, values: int) -> list[np.ndarray]:
        """Extend the shared memory by an array of ``values`` float32 zeros for each rank, and return the
        arrays of all ranks. All ranks make the same calls in the same order."""
        stride = -(-4 * values // mmap.PAGESIZE) * mmap.PAGESIZE  # bytes of an array, rounded up to pages
        start = self._bytes
        self._bytes += stride * self.size
        if self.rank == 0:
            os.ftruncate(self._memory, self._bytes)
        self.barrier()
        mapped = mmap.mmap(self._memory, stride * self.size, offset=start)
        return [np.frombuffer(mapped, np.float32, values, rank * stride) for rank in range(self.size)]

    def all_reduce_shared(self, arrays: Sequence[np.ndarray]) -> None:
        """All-reduce the arrays of a call of ``allocate`` in place. The sums are the same to the last bit on
        every rank."""
        self.barrier()
        # This rank sums the elements from values * rank / size on, below values * (rank + 1) / size.
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

    def _exchange(self, message: bytes) -> list[bytes]:
        """Send this rank's message to all other ranks, and return the messages of all ranks, by rank. The
        messages of one call have the same length."""
        try:
            for peer in self._peers.values():
                peer.sendall(message)
            received = {rank: _receive(peer, len(message)) for rank, peer in self._peers.items()}
            return [received.get(rank, message) for rank in range(self.size)]
        except OSError as error:
            raise RankLostError from error


def _receive(peer: socket.socket, size: int) -> bytes:
    """Return the next ``size`` bytes. Raises OSError if the peer has closed its socket."""
    content = b""
    while len(content) < size:
        received = peer.recv(size - len(content))
        if not received:
            raise ConnectionResetError
        content += received
    return content

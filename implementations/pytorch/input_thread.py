"""Make batches ahead in a thread with a stream of its own, in a few buffers that are used again and again.

Queues pass the buffers between the two threads, and events order what the device does with them: the training
stream waits until a buffer is filled, and the input thread until the step that reads it is done.
"""

import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

CLOSING_SECONDS = 10
"""Longest wait for the thread to end; longer than the DataLoader takes to miss its processes (5 s)."""


class Buffer:
    """Memory of one batch."""

    def __init__(self, content: Any, filled: Any, read: Any):
        self.content, self.filled, self.read = content, filled, read
        self.remark: Any = None
        """Result of ``fill``."""


class InputThread:
    """Fills buffers in a thread, which starts with the first batch and ends with this object."""

    def __init__(
        self,
        prepare: Callable[[], Any],
        fill: Callable[[Any, Any], Any],
        contents: Sequence[Any],
        device: torch.device,
        streams: Any,
    ):
        """For each batch the thread calls ``fill(one of contents, prepare())``. Only work that ``fill``
        starts writes to the content.

        Neither function may refer to this object. ``streams`` is the module of the device's streams, such as
        ``torch.cuda``.
        """
        self._streams, self._device = streams, device
        self._free: Any = queue.SimpleQueue()
        self._made: Any = queue.SimpleQueue()
        self._lent = [Buffer(content, _event(streams), _event(streams)) for content in contents]
        arguments = (prepare, fill, self._free, self._made, streams, streams.Stream(device))
        self._thread = threading.Thread(target=_fill_buffers, args=arguments, name="input", daemon=True)
        weakref.finalize(self, _end, self._thread, self._free)

    def give_back(self) -> None:
        """Give the thread what ``lend`` returned, once the device has done the work queued so far."""
        for buffer in self._lent:
            buffer.read.record(self._streams.current_stream(self._device))
            self._free.put(buffer)
        self._lent = []
        if self._thread.ident is None:
            self._thread.start()

    def wait(self) -> Buffer | BaseException:
        """Wait for the next buffer, or for the error that ended the thread."""
        while True:
            try:
                return self._made.get(timeout=1)
            except queue.Empty:
                if not self._thread.is_alive() and self._made.empty():
                    return RuntimeError("the input thread has ended; its error was raised before")

    def lend(self, made: Buffer | BaseException) -> Buffer:
        """Return a buffer for the current stream to use until ``give_back``, or raise the thread's error."""
        if isinstance(made, BaseException):
            raise made
        self._streams.current_stream(self._device).wait_event(made.filled)
        self._lent.append(made)
        return made


def _event(streams: Any) -> Any:
    """Return an event. A thread that waits for it sleeps, where CUDA would keep a core busy by default."""
    return streams.Event(blocking=True) if streams is torch.cuda else streams.Event()


def _fill_buffers(
    prepare: Callable[[], Any],
    fill: Callable[[Any, Any], Any],
    free: Any,
    made: Any,
    streams: Any,
    stream: Any,
) -> None:
    try:
        with streams.stream(stream):
            while True:
                prepared = prepare()
                buffer = free.get()
                if buffer is None:
                    return
                buffer.read.synchronize()
                buffer.remark = fill(buffer.content, prepared)
                buffer.filled.record(stream)
                made.put(buffer)
                # nvJPEG writes in a stream of its own, which does not wait for this one. So memory that this
                # one reads is freed only when it has been read.
                buffer.filled.synchronize()
                del prepared
    except BaseException as error:  # the other thread waits for it
        made.put(error)


def _end(thread: threading.Thread, free: Any) -> None:
    free.put(None)
    if (
        thread.ident is not None and thread is not threading.current_thread()
    ):  # a collection of garbage may run in any thread
        thread.join(CLOSING_SECONDS)

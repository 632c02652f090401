"""Read results of an earlier step while the GPU computes the latest one. In this way the engine reads losses,
and ``dali_batches.py`` reads the number of wrong labels."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


class LookBack:
    """Reads values that an earlier step has computed, on a CUDA stream of its own.

    The stream of the steps executes its work in order. A read on that stream would wait for the latest step,
    and the GPU would then have nothing to do until the host starts the next step. On a CPU work is not
    queued, and the methods do nothing.
    """

    def __init__(self, device: torch.device):
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._event: Any = None

    def mark(self) -> None:
        """Let later reads wait for the work that has been started until now, and for no later work."""
        if self._stream is not None:
            self._event = torch.cuda.current_stream(self._stream.device).record_event()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Let reads in this context go to the stream of this object. They may only read values whose
        computation was started before the latest ``mark``. ``mark`` must have been called."""
        if self._stream is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._event)
            yield

"""Read results of an earlier step without waiting for the latest one."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


class LookBack:
    """Reads values of an earlier step while the device computes the latest one, so that its queue does not
    run empty.

    The stream of the steps runs in order, so a read on it would wait for all that the host has started there.
    """

    def __init__(self, device: torch.device):
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._event: Any = None

    def mark(self) -> None:
        """Let later reads wait for the work started so far."""
        if self._stream is not None:
            self._event = torch.cuda.current_stream(self._stream.device).record_event()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read in this context values that were computed before the latest ``mark``."""
        if self._stream is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._event)
            yield

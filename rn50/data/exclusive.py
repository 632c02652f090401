"""One process at a time in a folder."""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Iterator

from rn50.errors import UserError


@contextlib.contextmanager
def only_process(folder: Path, doing: str) -> Iterator[None]:
    """Hold ``folder`` for this process: of two that would write into it at once, the second is refused with a ``UserError``."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"{folder}: another process is {doing} there; wait for it") from error
        yield
    finally:
        os.close(descriptor)

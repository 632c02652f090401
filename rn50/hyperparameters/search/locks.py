"""Locks that are released when their processes end, however they end, on one machine or a network file
system."""

import fcntl
import os
import pathlib
from typing import IO, Any

from rn50 import files
from rn50.errors import UserError
from rn50.packages import needed_for

with needed_for("rn50 search"):
    from optuna.storages.journal import JournalFileOpenLock


def locked(file: pathlib.Path, operation: int = fcntl.LOCK_EX) -> IO[Any]:
    """Return the file, locked until every process that has it closes it; wait for the lock, unless the flock
    ``operation`` is another.

    Raises UserError if the file cannot be written or the file system has no locks, BlockingIOError where it
    does not wait for a lock that is held.
    """
    with files.errors_of(file, "give another --output", "cannot be written"):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o666)
        stream = os.fdopen(descriptor, "a")
    try:
        fcntl.flock(stream, operation)
    except OSError as error:
        stream.close()
        if isinstance(error, BlockingIOError):
            raise
        remedy = "give a folder whose file system has locks"
        raise UserError(file, f"cannot be locked ({error.strerror})", remedy) from None
    return stream


def locked_if_free(file: pathlib.Path) -> IO[Any] | None:
    """Return as ``locked`` does, but None if the lock is held already."""
    try:
        return locked(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None


class JournalLock(JournalFileOpenLock):
    """Lock of Optuna's journal. Optuna's own locks are files, which stay behind when a worker is killed.

    Acquiring it cuts off a line that a killed worker left unfinished, because such a line in the middle makes
    the journal unreadable.
    """

    def __init__(self, journal: pathlib.Path):
        super().__init__(str(journal))
        self._journal = journal

    def acquire(self) -> bool:
        """Wait for the lock."""
        self._held = locked(self._journal.with_suffix(".lock"))
        written = self._journal.read_bytes()
        if not written.endswith(b"\n"):
            os.truncate(self._journal, written.rfind(b"\n") + 1)
        return True

    def release(self) -> None:
        """Release the lock."""
        self._held.close()

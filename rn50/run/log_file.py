"""The log file of a run. While the run writes it, it has the name ``partial_name`` and is locked.

``mlperf_log.py`` writes to a ``LogFile`` on rank 0. ``job.py`` calls ``refuse_existing`` before the ranks
start, and ``stop_abandoned`` after they have ended.
"""

import contextlib
import fcntl
import io
import logging
import os
import pathlib
import secrets
import tempfile
from typing import IO, Any

from rn50 import files
from rn50.errors import UserError
from rn50.packages import needed_for
from rn50.results.parse import partial_name
from rn50.run.clock import now_ms
from rn50.terminal import say

_MOVE = "move it away or set another RESULT_FILE"
_TOKEN = b":::MLLOG"
"""Beginning of every log."""


class LogFile:
    """The log of a run. ``stream`` is open for writing until ``finish``, which renames the file to
    ``result_file``."""

    def __init__(self, result_file: pathlib.Path):
        """Open the partial log, empty it and lock it. Without the lock, ranks of a launcher that was killed
        might still write to the same file.

        Raises UserError if another file has the name, another run writes the log, or it cannot be written.
        """
        self._result_file, self._partial = result_file, partial_name(result_file)
        refuse_existing(result_file)
        try:
            result_file.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(self._partial):  # opening a pipe would wait
                files.refuse_irregular(self._partial, os.lstat(self._partial).st_mode, _MOVE)
            self.stream = open(self._partial, "a+", encoding="utf-8", opener=_no_link)  # noqa: SIM115
            if not _lock(self.stream):
                remedy = "wait until that ends, or end it, and start again"
                raise UserError(self._partial, "another run is writing this log", remedy)
            # Before this run got the lock, another may have finished and renamed this very file.
            refuse_existing(result_file)
            # The file must be empty, or the log of a run that ended early, which this run replaces.
            if os.pread(self.stream.fileno(), len(_TOKEN), 0) not in (b"", _TOKEN):
                raise UserError(self._partial, "exists, and is not a log that a run has left", _MOVE)
            self.stream.truncate(0)
        except OSError as error:
            raise _unwritable(error.filename or self._partial, error) from error

    @property
    def is_lost(self) -> bool:
        """True if the partial log was moved or removed."""
        with contextlib.suppress(OSError):
            return not os.path.samestat(os.lstat(self._partial), os.fstat(self.stream.fileno()))
        return True

    def refuse_loss(self) -> None:
        """Raise UserError if the partial log is lost, because a run without its log gives no result."""
        if self.is_lost:
            problem = "was removed or moved while the run wrote it"
            raise UserError(self._partial, problem, "start the run again")

    def keep(self) -> None:
        """Write the content of a lost log, which the open ``stream`` can still read, to a new file, and print
        its name. The file is in the nearest folder above the log that still exists, else in the folder of
        temporary files; if neither can be written, there is none."""
        descriptor = self.stream.fileno()
        content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        nearest = next(folder for folder in self._result_file.absolute().parents if folder.is_dir())
        for folder in (nearest, pathlib.Path(tempfile.gettempdir())):
            copy = folder / f"{self._result_file.name}.kept-{secrets.token_hex(4)}"
            with contextlib.suppress(UserError):
                files.write(copy, content, files.NOTHING)
                say(f"rn50: {self._partial}: is gone; what was logged is kept in {copy}", err=True)
                return

    def finish(self) -> None:
        """Close the log and rename it to its final name. Raises UserError if that fails."""
        self.refuse_loss()
        self.stream.close()
        try:
            self._partial.replace(self._result_file)
        except OSError as error:
            problem = f"whole, but cannot be renamed to {self._result_file.name} ({error.strerror})"
            raise UserError(self._partial, problem, "rename it") from error


def _no_link(name: str, flags: int) -> int:
    """Open a file, but fail if it is a symbolic link. The parameter ``opener`` of ``open`` takes this
    function."""
    return os.open(name, flags | os.O_NOFOLLOW, 0o666)


def _lock(stream: IO[Any]) -> bool:
    """Lock the file until the stream is closed; return False if another process has locked it.

    Return True on a file system without locks.
    """
    with contextlib.suppress(OSError):
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _unwritable(path: str | pathlib.Path, error: OSError) -> UserError:
    """Return the error for a log that cannot be written."""
    return UserError(path, f"cannot write the result log ({error.strerror})", "set another RESULT_FILE")


def refuse_existing(result_file: pathlib.Path) -> None:
    """Raise UserError if ``result_file`` exists, if the system does not say whether it exists, or if it ends
    in .json: the settings and versions of the run are saved beside the log under that name."""
    try:
        os.lstat(result_file)
    except (FileNotFoundError, NotADirectoryError):
        if result_file.suffix == ".json":
            problem = "what the run is made with is saved under this name"
            raise UserError(f"RESULT_FILE={result_file}", problem, "let it end in .txt") from None
    except OSError as error:
        raise _unwritable(result_file, error) from error
    else:
        raise UserError(result_file, "a result of this name exists", _MOVE)


def stop_abandoned(result_file: pathlib.Path) -> None:
    """End the partial log of a run that was killed: write ``run_stop``, status "aborted", if the clock was
    running. The file keeps its partial name.

    Do nothing if there is no such log, or if another run is still writing it.
    """
    try:
        stream = files.open_regular(partial_name(result_file), flags=os.O_RDWR | os.O_NOFOLLOW)
    except UserError:  # it does not exist, is no regular file, or cannot be opened
        return
    with stream:
        if _lock(stream):
            with open(stream.fileno(), "r+b", buffering=0, closefd=False) as unbuffered:
                _end_abandoned(unbuffered)


def _end_abandoned(stream: IO[bytes]) -> None:
    """Append ``run_stop``, status "aborted", to a log that has ``run_start`` and no ``run_stop``."""
    with needed_for("the log of a timed run"):
        from mlperf_logging.mllog import constants
        from mlperf_logging.mllog.mllog import MLLogger

    content = stream.read()
    lines = content[: content.rfind(b"\n") + 1]  # drop a last line that was cut short
    if f'"{constants.RUN_START}"'.encode() not in lines or f'"{constants.RUN_STOP}"'.encode() in lines:
        return
    text = io.StringIO()
    logger = logging.Logger("rn50.mlperf", logging.INFO)
    logger.addHandler(logging.StreamHandler(text))
    MLLogger(logger).end(constants.RUN_STOP, metadata={constants.STATUS: "aborted"}, time_ms=now_ms())
    stop = text.getvalue().encode()
    stream.truncate(len(lines))
    stream.seek(len(lines))
    with contextlib.suppress(OSError):
        if stream.write(stop) == len(stop):
            return
    # The disk is full. Make room for ``stop`` within the size of ``lines``: drop lines from the end up to
    # ``run_start``, and then the lines before it.
    whole = lines.splitlines(keepends=True)
    start = next(i for i, line in enumerate(whole) if f'"{constants.RUN_START}"'.encode() in line)
    head, run_start, tail = whole[:start], [whole[start]], whole[start + 1 :]
    while len(b"".join(head + run_start + tail)) + len(stop) > len(lines):
        (tail or head or run_start).pop()
    stream.seek(0)
    stream.write(b"".join(head + run_start + tail) + stop)
    stream.truncate()

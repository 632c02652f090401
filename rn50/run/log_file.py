"""The file that the log of a run is: it grows under another name, is nobody else's meanwhile, and is kept whatever happens."""

import contextlib
import fcntl
import io
import logging
import os
import pathlib
import secrets
import tempfile
from typing import IO, Any, TextIO, Union

from mlperf_logging.mllog import constants
from mlperf_logging.mllog.mllog import MLLogger

from rn50 import files
from rn50.errors import UserError
from rn50.run.clock import now_ms
from rn50.terminal import say

_MOVE = "move it away or set another RESULT_FILE"
_TOKEN = b":::MLLOG"


class LogFile:
    """The log of a run, under the name ``partial_name`` until ``finish``."""

    def __init__(self, result_file: pathlib.Path):
        """Raises UserError where something else is there, another run writes it, or it cannot be written."""
        self._result_file, self._partial = result_file, partial_name(result_file)
        self.stream = _open(result_file)

    @property
    def is_lost(self) -> bool:
        """Whether it no longer lies where it was begun."""
        try:
            return not os.path.samestat(os.lstat(self._partial), os.fstat(self.stream.fileno()))
        except OSError:
            return True

    def refuse_loss(self) -> None:
        """Raises UserError where ``is_lost``: without its log a run gives no result."""
        if self.is_lost:
            raise UserError(self._partial, "was removed or moved while the run wrote it", "start the run again")

    def keep(self) -> None:
        """Writes what was logged to the nearest folder that can hold it, and says where."""
        descriptor = self.stream.fileno()
        content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        nearest = next(folder for folder in self._result_file.absolute().parents if folder.is_dir())
        for folder in (nearest, pathlib.Path(tempfile.gettempdir())):
            kept = folder / f"{self._result_file.name}.kept-{secrets.token_hex(4)}"
            with contextlib.suppress(UserError):
                files.write(kept, content, files.NOTHING)
                say(f"rn50: {self._partial}: is gone; what was logged is kept in {kept}", err=True)
                return

    def finish(self) -> None:
        """Gives it its final name. Raises UserError where that cannot be."""
        self.refuse_loss()
        self.stream.close()
        try:
            self._partial.replace(self._result_file)
        except OSError as error:
            raise UserError(self._partial, f"whole, but cannot be renamed to {self._result_file.name} ({error.strerror})",
                            "rename it") from error


def _open(result_file: pathlib.Path) -> TextIO:
    """The partial log, empty and locked: what a killed launcher or script has left behind may still be writing it."""
    partial = partial_name(result_file)
    refuse_existing(result_file)
    try:
        result_file.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(partial):  # a pipe would be waited for
            files.refuse_irregular(partial, os.lstat(partial).st_mode, _MOVE)
        stream = open(partial, "a+", encoding="utf-8", opener=_no_link)  # noqa: SIM115
        if not _lock(stream):
            raise UserError(partial, "another run is writing this log", "wait until that ends, or end it, and start again")
        # Until it was locked, that run may have finished and given this very file its final name.
        refuse_existing(result_file)
        if os.pread(stream.fileno(), len(_TOKEN), 0) not in (b"", _TOKEN):
            raise UserError(partial, "exists, and is no log that a run has left", _MOVE)
        stream.truncate(0)
    except OSError as error:
        raise _unwritable(error.filename or partial, error) from error
    return stream


def _no_link(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW, 0o666)


def _lock(stream: IO[Any]) -> bool:
    """Whether nobody else has locked the file; it stays ours until the stream is closed. A file system may have no locks."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def partial_name(result_file: pathlib.Path) -> pathlib.Path:
    """The name under which the log of a run grows."""
    return result_file.with_name(result_file.name + ".partial")


def _unwritable(path: Union[str, pathlib.Path], error: OSError) -> UserError:
    return UserError(path, f"cannot write the result log ({error.strerror})", "set another RESULT_FILE")


def refuse_existing(result_file: pathlib.Path) -> None:
    """Raises UserError where ``result_file`` is there already, or it cannot be known whether it is, or the name is taken."""
    try:
        os.lstat(result_file)
    except (FileNotFoundError, NotADirectoryError):
        if result_file.suffix == ".json":
            raise UserError(f"RESULT_FILE={result_file}", "what the run is made with is saved under this name",
                            "let it end in .txt") from None
    except OSError as error:
        raise _unwritable(result_file, error) from error
    else:
        raise UserError(result_file, "a result of this name exists", _MOVE)


def stop_abandoned(result_file: pathlib.Path) -> None:
    """Ends the log of a run that was killed before it could: ``run_stop`` status "aborted" where the clock was running.

    It does nothing to a log that some run is still writing.
    """
    try:
        stream = files.open_regular(partial_name(result_file), flags=os.O_RDWR | os.O_NOFOLLOW)
    except UserError:  # it is not there, or no log
        return
    with stream:
        if _lock(stream):
            with open(stream.fileno(), "r+b", buffering=0, closefd=False) as unbuffered:
                _end_abandoned(unbuffered)


def _end_abandoned(stream: IO[bytes]) -> None:
    content = stream.read()
    lines = content[: content.rfind(b"\n") + 1]  # a last line that was cut short says nothing
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
    # On a full disk the line finds room only in place of the last ones; that the clock ran has to stay.
    kept = lines.splitlines(keepends=True)
    run_start = next(i for i, line in enumerate(kept) if f'"{constants.RUN_START}"'.encode() in line)
    while len(b"".join(kept)) + len(stop) > len(lines):
        del kept[-1 if len(kept) - 1 > run_start else run_start - 1]
        run_start = min(run_start, len(kept) - 1)
    stream.seek(0)
    stream.write(b"".join(kept) + stop)
    stream.truncate()

"""Open files that may be large, damaged or a stranger's, and write files: all code of rn50 does both here.

Reading refuses pipes, devices and files above a size (``open_regular``, ``read_bytes``, ``read_text``,
``read_json``). Writing is atomic, and never replaces a file that rn50 did not write (``write``,
``refuse_to_replace``). ``only_process`` locks a folder.
"""

import contextlib
import csv
import fcntl
import hashlib
import json
import math
import os
import pathlib
import re
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import rn50
from rn50.errors import UserError, did_you_mean, excerpt

PACKAGES = pathlib.Path(__file__).resolve().parent.parent
"""Folder with the packages ``rn50`` and ``implementations``: a checkout, or the folder of pip's packages."""
IS_CHECKOUT = (PACKAGES / "run_experiments.sh").is_file()
"""True if this code runs from a checkout. A package that pip installed has no scripts."""
ROOT = PACKAGES if IS_CHECKOUT else pathlib.Path()
"""Root of the checkout; the working folder if rn50 was installed without a checkout."""
INSTALL = f"{'' if IS_CHECKOUT else 'in a checkout of rn50: '}requirements/install.sh"
"""Command that installs sets of ``requirements/``."""
LARGEST = 64 << 20
"""Largest file, in bytes, that is read whole unless the caller sets another limit."""
DEEPEST = 64
"""Most nesting levels of lists and objects in JSON; no genuine file has more."""
MARK = f"written by rn50 {rn50.__version__}"
"""Text in the first lines of every file that ``write`` may replace by default."""
NOTHING, OURS, ANY = "nothing", "a file of the same kind that rn50 wrote", "any file of the same kind"
"""Values of ``may_replace``: the files that ``write`` may replace."""
PAGE, PICTURE, MODEL = "a page", "a picture", "an ONNX model"
WEIGHTS, CHECKPOINT = "a file of weights", "a checkpoint"
JSON, TEXT, BINARY = "a JSON file", "a text file", "a binary file"
"""Kinds of files. A file of no other kind is BINARY."""

_unfinished: set[pathlib.Path] = set()
"""The temporary files that calls of ``write`` are writing."""
_MARK_OF_ANY_VERSION = MARK.rsplit(" ", 1)[0].encode()  # "written by rn50"
_MARKED_WITHIN = 4096  # bytes at the beginning of a file in which its mark and its kind are looked for
_LOG_NAME = re.compile(r"result_.*\.txt")
_LOG_LINE = re.compile(rb"^:::MLLOG ", re.MULTILINE)
_LOG_WITHIN = 1 << 20  # bytes at the beginning of a file in which a line of a log is looked for
_LONGEST_NAME = 100  # bytes: a file system allows 255, and names are joined to longer ones
_LONGEST_INTEGER = 20  # digits of the largest 64-bit integer; with 400 digits, arithmetic would overflow
_KINDS = (
    (rb"\s*<!(?i:doctype html)", PAGE),
    (rb"<\?xml|\x89PNG|%PDF", PICTURE),
    (rb"\x08", MODEL),  # the version of the format, which protobuf writes first
    (rb'(?s).{4}\0{4}\{.*"classes"', WEIGHTS),  # safetensors: the length of the header, then the header
    (rb"(?s).{4}\0{4}\{", CHECKPOINT),
    (rb"\s*\{", JSON),
    (rb"#|[^\0]*\Z", TEXT),  # a comment first, or no null byte
)
"""(pattern of the first bytes, kind) of the files that rn50 writes."""
_IRREGULAR = {"d": "a folder", "p": "a pipe", "s": "a socket", "l": "a symbolic link"}
"""First letter of ``stat.filemode`` -> its name. The other letters are devices."""
_NESTING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|([\[{])|[\]}]', re.DOTALL)
"""A string of JSON, or a bracket. Group 1 is an opening bracket. A string may lack its end."""

Path = str | pathlib.Path


class MissingError(UserError):
    """Error: there is no file of this name."""


def relative(path: pathlib.Path) -> pathlib.Path:
    """Return a path relative to the working folder if it is below it, else the absolute path."""
    absolute, here = pathlib.Path(os.path.abspath(path)), pathlib.Path.cwd()
    return absolute.relative_to(here) if absolute.is_relative_to(here) else absolute


def refuse_without_checkout(what: str) -> None:
    """Raise UserError if rn50 was installed without a checkout. ``what`` is the subject of the error, as
    "rn50 run"."""
    if not IS_CHECKOUT:
        raise UserError(what, "needs the scripts of a checkout", "git clone rn50, and make setup in it")


def has_working_folder() -> bool:
    """Return whether the working folder exists: somebody may have removed it."""
    with contextlib.suppress(FileNotFoundError):
        return bool(os.getcwd())
    return False


def other_checkout() -> pathlib.Path | None:
    """Return the checkout that contains the working folder, if this code belongs to another checkout. Return
    None otherwise."""
    with contextlib.suppress(OSError):  # the working folder was removed
        here = pathlib.Path.cwd()
        for folder in (here, *here.parents):
            if IS_CHECKOUT and (folder / "run_experiments.sh").is_file() and (folder / "rn50").is_dir():
                return None if (folder / "rn50").samefile(PACKAGES / "rn50") else folder
    return None


def nearest(path: pathlib.Path) -> str:
    """Return a question that suggests another name for the outermost part of ``path`` that does not exist; ""
    if no name beside it is near."""
    missing = next(part for part in (*reversed(path.parents), path) if not os.path.lexists(part))
    with contextlib.suppress(OSError):  # its parent may be a file, or unreadable
        return did_you_mean(missing.name, os.listdir(missing.parent), nearness=0.7)
    return ""


def open_regular(path: Path, remedy: str = "give a regular file", flags: int = os.O_RDONLY) -> BinaryIO:
    """Return a regular file, opened with ``flags`` of ``os.open``. A pipe or a device is refused before it is
    opened, because to open it might wait for ever.

    Raises UserError, ending in ``remedy``, if the file is not regular or cannot be opened; MissingError if it
    does not exist.
    """
    try:
        refuse_irregular(path, os.stat(path).st_mode, remedy)
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
        stream = os.fdopen(descriptor, "rb" if flags & os.O_ACCMODE == os.O_RDONLY else "r+b")
        # Check again what is open: another file may have taken the name since the first check. The stack
        # closes the file if it is refused.
        with contextlib.ExitStack() as opened:
            opened.push(stream)
            refuse_irregular(path, os.fstat(descriptor).st_mode, remedy)
            opened.pop_all()
        return stream
    except FileNotFoundError as error:
        raise MissingError(path, f"cannot be read ({error.strerror})", remedy) from error
    except (OSError, ValueError) as error:
        raise UserError(path, f"cannot be read ({_reason(error)})", remedy) from error


def refuse_irregular(path: Path, mode: int, remedy: str) -> None:
    """Raise UserError, ending in ``remedy``, unless ``mode`` (``st_mode`` of ``os.stat``) is that of a
    regular file."""
    if not stat.S_ISREG(mode):
        kind = _IRREGULAR.get(stat.filemode(mode)[0], "a device")
        raise UserError(path, f"is {kind}, no regular file", remedy)


@contextlib.contextmanager
def errors_of(path: Path, remedy: str, problem: str = "cannot be read") -> Iterator[None]:
    """Turn an OSError in this context into a UserError about ``path`` that ends in ``remedy``."""
    try:
        yield
    except OSError as error:
        raise UserError(path, f"{problem} ({_reason(error)})", remedy) from error


def _reason(error: Exception) -> str:
    """Return the reason of an OSError or ValueError in words. A ValueError means that the name has a null
    byte, or a character that the encoding of the system lacks."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else "no file can have this name"


def read_bytes(path: Path, limit: int = LARGEST, remedy: str = "give a regular file") -> bytes:
    """Return the content of a regular file. Raises as ``open_regular`` does, and UserError above ``limit``
    bytes."""
    with open_regular(path, remedy) as stream, errors_of(path, remedy):
        # Do not read(limit + 1) at once: read(n) allocates n bytes, even if the file is short.
        content: bytes = stream.read(min(os.fstat(stream.fileno()).st_size, limit) + 1) or b""
    if len(content) > limit:
        raise UserError(path, f"has more than {limit:,} bytes", remedy)
    return content


def read_text(
    path: Path, limit: int = LARGEST, remedy: str = "give a text file", errors: str = "strict"
) -> str:
    """Return the text of a regular UTF-8 file; ``errors`` as for ``bytes.decode``. Raises as ``read_bytes``
    does."""
    try:
        return read_bytes(path, limit, remedy).decode("utf-8", errors)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(path, f"line {line}: bytes that are no UTF-8 text", remedy) from error


def read_json(path: Path, limit: int = LARGEST, remedy: str = "give a JSON file") -> Any:
    """Return the JSON value of a file. Raises as ``read_bytes`` does, and UserError if it is not JSON."""
    try:
        return parse_json(read_text(path, limit, remedy))
    except ValueError as error:
        # A name with two values is JSON all the same (see ``one_value_each``).
        problem = str(error) if "has two values" in str(error) else f"no JSON ({error})"
        raise UserError(path, problem, remedy) from error


def parse_json(text: str) -> Any:
    """Return the value of a JSON text. Raises ValueError if the text is not JSON, is nested more than
    ``DEEPEST`` levels deep, or has a number that is not finite or a name with two values."""
    depth = 0
    for part in _NESTING.finditer(text):
        if part[0][0] != '"':  # a bracket, not a string
            depth += 1 if part[1] else -1
        if depth > DEEPEST:
            raise ValueError(f"nested deeper than {DEEPEST} levels")
    return _DECODER.decode(text)


def one_value_each(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the JSON object of ``pairs`` (name, value): an ``object_pairs_hook`` for a JSON decoder. Raises
    ValueError if a name has two different values; Python's own decoder takes the last."""
    members = dict(pairs)
    if len(members) < len(pairs):
        for name, value in pairs:
            if value != members[name]:
                raise ValueError(f"{excerpt(name)!r} has two values")
    return members


def integer(digits: str) -> int:
    """Return the whole number that ``digits`` of a JSON text are. Raises ValueError if it has more digits
    than a 64-bit integer: the time to parse a number grows with the square of its length."""
    if len(digits.lstrip("-")) > _LONGEST_INTEGER:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)


def _finite(text: str) -> float:
    """Return the number that ``text``, a part of a JSON text like 1e3 or NaN, is. Raises ValueError if it is
    not finite."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]}")
    return number


_DECODER = json.JSONDecoder(
    parse_int=integer, parse_float=_finite, parse_constant=_finite, object_pairs_hook=one_value_each
)


def table_beside(module: str, name: str) -> list[list[str]]:
    """Return the rows, without the headings, of the CSV file ``name`` that lies beside a module. ``module``
    is the ``__file__`` of the module."""
    with pathlib.Path(module).with_name(name).open(newline="", encoding="utf-8") as table:
        return list(csv.reader(table))[1:]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a regular file, in hexadecimal digits. Raises as ``open_regular`` does."""
    digest = hashlib.sha256()
    with open_regular(path) as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def write(
    path: Path, content: str | bytes, may_replace: str = OURS, remedy: str = "name another file"
) -> None:
    """Write a file atomically. Characters that UTF-8 cannot encode are written as escapes.

    ``may_replace`` is NOTHING, OURS or ANY. With OURS, an existing file is replaced only if it has ``MARK``
    in its first lines, so ``content`` should have it too. The kind of a file is read from its content.

    Raises UserError, ending in ``remedy``, if the file cannot be written, or if an existing file may not be
    replaced. Never replaces a result log, a file of another kind, or anything but a regular file.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    path = pathlib.Path(path)
    try:
        refuse_to_replace(path, _kind_of(data), may_replace, remedy)
        temporary = path.with_name(f".rn50-{secrets.token_hex(8)}")
        _unfinished.add(temporary)
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
            if may_replace == NOTHING:
                os.link(temporary, path)  # unlike a rename, it fails if somebody has made the file by now
            else:
                temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
            _unfinished.discard(temporary)
    except FileExistsError:
        raise UserError(path, "exists", f"{remedy}, or move it away") from None
    except (OSError, ValueError) as error:
        raise UserError(path, f"cannot be written ({_reason(error)})", remedy) from error


def make_folder(folder: pathlib.Path, remedy: str) -> None:
    """Make a folder and those above it, unless they exist. Raises UserError, ending in ``remedy``, if that
    fails."""
    with errors_of(folder, remedy, "cannot be made"):
        folder.mkdir(parents=True, exist_ok=True)


def discard_unfinished() -> None:
    """Remove the temporary files of calls of ``write`` in other threads. Called before ``os._exit``, which
    ends the threads before they can remove them."""
    for file in tuple(_unfinished):
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)


def refuse_to_replace(
    path: pathlib.Path,
    kind: str,
    may_replace: str = OURS,
    remedy: str = "name another file",
    inputs: Iterable[Path] = (),
    needs_room: bool = False,
) -> None:
    """Raise UserError if ``write`` would refuse to write a file of ``kind`` to ``path``. Call it before hours
    of work whose result is to be written there.

    Also raises it if the file is one of ``inputs``, the files that the command reads. With ``needs_room``
    also raises it if 1 MiB cannot be written into the folder, as on a full disk.
    """
    if needs_room:
        with errors_of(path, remedy, "cannot be written"), tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(bytes(1 << 20))
    try:
        existing = os.lstat(path)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise UserError(path, f"cannot be written ({_reason(error)})", remedy) from error
    refuse_irregular(path, existing.st_mode, remedy)
    if any(os.path.exists(file) and os.path.samestat(existing, os.stat(file)) for file in inputs):
        raise UserError(path, "is an input of this command", remedy)
    if may_replace == NOTHING:
        raise UserError(path, "exists", f"{remedy}, or move it away")
    with open_regular(path, remedy) as stream:
        head = stream.read(_LOG_WITHIN)
    log_line = _LOG_LINE.search(head)
    # A report of rn50 quotes lines of logs too, but behind its mark.
    before_log = head[: log_line.start()] if log_line else head
    is_ours = _MARK_OF_ANY_VERSION in before_log[:_MARKED_WITHIN]
    if _LOG_NAME.fullmatch(path.name) or (log_line and not is_ours):
        raise UserError(path, "is a result log, which nothing replaces", remedy)
    if may_replace == OURS and head and not is_ours:
        raise UserError(path, "exists, and rn50 did not write it", f"{remedy}, or move it away")
    if head and _kind_of(head) != kind:
        raise UserError(path, f"is {_kind_of(head)}, and would become {kind}", remedy)


def _kind_of(content: bytes) -> str:
    """Return the kind of a file with this content."""
    return next((kind for pattern, kind in _KINDS if re.match(pattern, content[:_MARKED_WITHIN])), BINARY)


def path_part(name: object) -> str:
    """Return a safe name of a file or folder, made from untrusted text.

    The name has no separator, space or control character and no leading dot or dash. It is not empty, and has
    at most ``_LONGEST_NAME`` bytes.
    """
    safe = re.sub(r"[^\w.+-]+", "_", str(name)).encode()[:_LONGEST_NAME].decode(errors="ignore")
    return safe.lstrip("_.-").rstrip("_.") or "unnamed"


@contextlib.contextmanager
def only_process(folder: pathlib.Path, doing: str) -> Iterator[int]:
    """Lock ``folder`` in this context, and yield the descriptor that holds the lock. A process that inherits
    the descriptor holds the lock too.

    Raises UserError if another process holds the lock: it is ``doing`` something there, as "searching".
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(folder, f"another process is {doing} there", "wait for it") from error
        yield descriptor
    finally:
        os.close(descriptor)

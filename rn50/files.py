"""Files: read within size limits, written atomically, named so that they stay in their folder; one writer per
folder."""

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
from rn50.errors import UserError, excerpt

PACKAGES = pathlib.Path(__file__).resolve().parent.parent
"""Folder of the packages ``rn50`` and ``implementations``: the checkout, or where pip installed them without
one."""
IS_CHECKOUT = (PACKAGES / "run_experiments.sh").is_file()
ROOT = PACKAGES if IS_CHECKOUT else pathlib.Path()
"""Root of the checkout, or the working folder without one."""
INSTALL = f"{'' if IS_CHECKOUT else 'in a checkout of rn50: '}requirements/install.sh"
"""Command that installs sets of ``requirements/``."""
LARGEST = 64 << 20
"""Largest file, in bytes, that is read whole unless the caller sets another limit."""
DEEPEST = 64
"""Most nesting levels of lists and objects in JSON; no genuine file has more."""
MARK = f"written by rn50 {rn50.__version__}"
"""Mark in the first lines of every file that a later call may replace unasked."""
NOTHING, OURS, ANY = "nothing", "a file of the same kind that rn50 wrote", "any file of the same kind"
"""Values of ``may_replace``: the files that ``write`` may replace."""
PAGE, PICTURE, MODEL = "a page", "a picture", "an ONNX model"
WEIGHTS, CHECKPOINT = "a file of weights", "a checkpoint"
JSON, TEXT, BINARY = "a JSON file", "a text file", "a binary file"
"""Kinds of files; BINARY is any other."""

_unfinished: set[pathlib.Path] = set()
"""Files of temporary names that ``write`` is writing."""
_MARK = MARK.rsplit(" ", 1)[0].encode()  # of any version
_MARKED_WITHIN = 4096
_LOG_NAME = re.compile(r"result_.*\.txt")
_LOG_LINE = re.compile(rb"^:::MLLOG ", re.MULTILINE)
_LOG_WITHIN = 1 << 20
_LONGEST_NAME = 100  # bytes; names are joined, and a file system allows 255
_LONGEST_INTEGER = 20  # digits, as the largest of 64 bits has; arithmetic on one of 400 would overflow
_KINDS = tuple(
    (re.compile(pattern, re.DOTALL), kind)
    for pattern, kind in (
        (rb"\s*<!(?i:doctype html)", PAGE),
        (rb"<\?xml|\x89PNG|%PDF", PICTURE),
        (rb"\x08", MODEL),  # the version of the format, which protobuf writes first
        (rb'.{4}\0{4}\{.*"classes"', WEIGHTS),  # safetensors: the length of the header, then the header
        (rb".{4}\0{4}\{", CHECKPOINT),
        (rb"\s*\{", JSON),
        (rb"#|[^\0]*\Z", TEXT),
    )
)
"""First bytes of the files that rn50 writes, and their kinds."""
_IRREGULAR = {"d": "a folder", "p": "a pipe", "s": "a socket", "l": "a symbolic link"}
"""Types of ``stat.filemode``, and their names. The others are devices."""
_NESTING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|([\[{])|[\]}]', re.DOTALL)
"""Strings of JSON, one without an end included, and what opens or closes a level."""

Path = str | pathlib.Path


class MissingError(UserError):
    """Error: no file of this name exists."""


def refuse_without_checkout(what: str) -> None:
    """Raise UserError, beginning with ``what``, if rn50 was installed without a checkout."""
    if not IS_CHECKOUT:
        raise UserError(what, "needs the scripts of a checkout", "git clone rn50, and make setup in it")


def has_working_folder() -> bool:
    """Return whether the working folder is still there."""
    try:
        return bool(os.getcwd())
    except FileNotFoundError:
        return False


def other_checkout() -> pathlib.Path | None:
    """Return the checkout that the working folder is in, if the code that runs is that of another one."""
    with contextlib.suppress(OSError):  # the folder is gone
        here = pathlib.Path.cwd()
        for folder in (here, *here.parents):
            if IS_CHECKOUT and (folder / "run_experiments.sh").is_file() and (folder / "rn50").is_dir():
                return None if (folder / "rn50").samefile(PACKAGES / "rn50") else folder
    return None


def open_regular(path: Path, remedy: str = "give a regular file", flags: int = os.O_RDONLY) -> BinaryIO:
    """Open a regular file with ``flags`` of ``os.open``. A pipe or device is neither opened nor waited for.

    Raises UserError, ending in ``remedy``, if the file is not regular or cannot be opened; MissingError if it
    does not exist.
    """
    try:
        refuse_irregular(path, os.stat(path).st_mode, remedy)
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
        stream = os.fdopen(descriptor, "rb" if flags & os.O_ACCMODE == os.O_RDONLY else "r+b")
        with contextlib.ExitStack() as opened:
            opened.push(stream)
            # The open file counts, even if another has its name by now.
            refuse_irregular(path, os.fstat(descriptor).st_mode, remedy)
            opened.pop_all()
        return stream
    except FileNotFoundError as error:
        raise MissingError(path, f"cannot be read ({error.strerror})", remedy) from error
    except (OSError, ValueError) as error:
        raise UserError(path, f"cannot be read ({_reason(error)})", remedy) from error


def refuse_irregular(path: Path, mode: int, remedy: str) -> None:
    """Raise UserError, ending in ``remedy``, unless ``mode`` (of ``os.stat``) is that of a regular file."""
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
    # ValueError: the name has a null byte or a character that the system's encoding lacks.
    return (error.strerror or str(error)) if isinstance(error, OSError) else "no file can have this name"


def read_bytes(path: Path, limit: int = LARGEST, remedy: str = "give a regular file") -> bytes:
    """Return the content of a regular file. Raises as ``open_regular`` does, and UserError above ``limit``
    bytes."""
    with open_regular(path, remedy) as stream, errors_of(path, remedy):
        # read(n) allocates n bytes, however short the file is.
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
        problem = str(error) if "has two values" in str(error) else f"no JSON ({error})"
        raise UserError(path, problem, remedy) from error


def parse_json(text: str) -> Any:
    """Return the value of a JSON text with finite numbers, at most ``DEEPEST`` levels deep. Raises ValueError
    for other text, and for a name with two values."""
    depth = 0
    for part in _NESTING.finditer(text):
        if part[0][0] != '"':
            depth += 1 if part[1] else -1
        if depth > DEEPEST:
            raise ValueError(f"nested deeper than {DEEPEST} levels")
    return _DECODER.decode(text)


def one_value_each(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. Raises ValueError for a name with two values; Python would take the last."""
    members = dict(pairs)
    for name, value in pairs if len(members) < len(pairs) else ():
        if value != members[name]:
            raise ValueError(f"{excerpt(name)!r} has two values")
    return members


def integer(digits: str) -> int:
    """Return a whole number of JSON. Raises ValueError for a long one: the time to parse it grows with the
    square of its length."""
    if len(digits.lstrip("-")) > _LONGEST_INTEGER:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]}")
    return number


_DECODER = json.JSONDecoder(
    parse_int=integer, parse_float=_finite, parse_constant=_finite, object_pairs_hook=one_value_each
)


def table_beside(module: str, name: str) -> list[list[str]]:
    """Return the rows of a CSV file that lies beside a ``module``, without its headings."""
    with pathlib.Path(module).with_name(name).open(newline="", encoding="utf-8") as table:
        _, *rows = csv.reader(table)
    return rows


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
    """Write a file atomically; characters that UTF-8 cannot encode are written as escapes.

    ``may_replace`` is NOTHING, OURS or ANY. For OURS ``content`` has ``MARK`` in its first lines. A file's
    kind is read from its content.

    Raises UserError, ending in ``remedy``, if the file cannot be written or an existing one may not be
    replaced. A result log, a file of another kind and anything but a regular file are never replaced.
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
                os.link(temporary, path)  # unlike a rename, a link never replaces a file that came meanwhile
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
    """Make a folder, if there is none. Raises UserError, ending in ``remedy``, if that is impossible."""
    with errors_of(folder, remedy, "cannot be made"):
        folder.mkdir(parents=True, exist_ok=True)


def discard_unfinished() -> None:
    """Remove what ``write`` has begun in other threads, before ``os._exit`` ends them."""
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
    """Raise UserError if ``write`` would refuse to replace the existing file by one of ``kind``, or if it is
    one of ``inputs``, the files that the command reads; with ``needs_room`` also if a page or a picture
    cannot be written into its folder, as on a full disk. Called before hours of work on the new file."""
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
        begins = stream.read(_LOG_WITHIN)
    line = _LOG_LINE.search(begins)  # our reports may quote log lines, further down
    ours = _MARK in begins[: min(_MARKED_WITHIN, line.start() if line else _MARKED_WITHIN)]
    if _LOG_NAME.fullmatch(path.name) or line and not ours:
        raise UserError(path, "is a result log, which nothing replaces", remedy)
    if may_replace == OURS and begins and not ours:
        raise UserError(path, "exists, and rn50 did not write it", f"{remedy}, or move it away")
    if begins and _kind_of(begins) != kind:
        raise UserError(path, f"is {_kind_of(begins)}, and would become {kind}", remedy)


def _kind_of(content: bytes) -> str:
    return next((kind for pattern, kind in _KINDS if pattern.match(content[:_MARKED_WITHIN])), BINARY)


def path_part(name: object) -> str:
    """Return a safe file or folder name made from untrusted text.

    It has no separator, space or control character, no leading dot or dash, and is never too long or empty.
    """
    kept = re.sub(r"[^\w.+-]+", "_", str(name)).encode()[:_LONGEST_NAME].decode(errors="ignore")
    return kept.lstrip("_.-").rstrip("_.") or "unnamed"


@contextlib.contextmanager
def only_process(folder: pathlib.Path, doing: str) -> Iterator[int]:
    """Lock ``folder`` for this process, and those that inherit the descriptor. Raises UserError if another
    process holds the lock."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(folder, f"another process is {doing} there", "wait for it") from error
        yield descriptor
    finally:
        os.close(descriptor)

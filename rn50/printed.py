"""Records that verbs print with ``--json``: dataclasses and NamedTuples.

A record says once what is printed: its fields, or what ``prints`` names. docs/reference/json.md is made of
their types and docstrings.
"""

import ast
import dataclasses
import functools
import inspect
import math
import pathlib
import textwrap
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_NAMES: dict[type, list[str]] = {}
"""Classes under ``prints`` -> what they print."""

INLINE = "inline"
"""Mark of a field whose own fields are printed in its place."""
IF_KNOWN = "if known"
"""Mark of a field that is left out where it is None."""
HIDDEN = "hidden"
"""Mark of a field that is not printed."""

Minutes = Annotated[float, 4]
Hundredths = Annotated[float, 2]
Tenths = Annotated[float, 1]
Share = Annotated[float, 6]
"""Numbers, and the decimals to which they are rounded."""


class Field(NamedTuple):
    """A printed field."""

    path: str
    """Attribute that has its value, or attribute of an attribute, with dots."""
    owner: type
    """Class of the last attribute."""
    kinds: tuple[Any, ...]
    """Types of the value."""
    marks: tuple[Any, ...]


def prints(names: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator that makes a class a record whose ``names`` are printed: names of attributes, or
    name=path where the two differ. A name with dots is that of a field in an inner dictionary."""

    def named(record: type[T]) -> type[T]:
        _NAMES[record] = names.split(", ")
        return record

    return named


def is_record(kind: Any) -> bool:
    """Return whether a type is a dataclass, a NamedTuple, or a class under ``prints``."""
    if not isinstance(kind, type):
        return False
    return kind in _NAMES or dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")


def members(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the one type; those of a field as they are."""
    if isinstance(kind, tuple):
        return kind
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


@functools.cache
def fields(record: type) -> dict[str, Field]:
    """Return the printed fields of a record by name: those under ``prints``, else all of its own."""
    printed = {}
    for entry in _NAMES.get(record) or get_type_hints(record):
        name, _, path = entry.partition("=")
        printed[name] = _field(record, path or name)
    return {name: field for name, field in printed.items() if HIDDEN not in field.marks}


def _field(record: type, path: str) -> Field:
    owner: Any = record
    *above, last = path.split(".")
    null: set[Any] = set()
    for attribute in above:
        kinds, _ = _types(owner, attribute)
        null |= {type(None)} & set(kinds)
        (owner,) = set(kinds) - null
    kinds, marks = _types(owner, last)
    return Field(path, owner, tuple(dict.fromkeys((*kinds, *null))), marks)


def _types(owner: type, attribute: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the types of an attribute or a property without its marks, and the marks."""
    hints = get_type_hints(owner, include_extras=True)
    if attribute not in hints:
        getter = inspect.getattr_static(owner, attribute).fget
        hints = {attribute: get_type_hints(getter, include_extras=True)["return"]}
    kinds = members(hints[attribute])
    marks = tuple(mark for kind in kinds for mark in getattr(kind, "__metadata__", ()))
    plain = (kind.__origin__ if get_origin(kind) is Annotated else kind for kind in kinds)
    return tuple(member for kind in plain for member in members(kind)), marks


@functools.cache
def meanings(record: type) -> dict[str, str]:
    """Return what the attributes and properties of a class are, by their docstrings: small at the beginning,
    without a full stop."""
    body = ast.parse(textwrap.dedent(inspect.getsource(record))).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for statement, below in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(statement, ast.FunctionDef):
            texts[statement.name] = ast.get_docstring(statement)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = below.value if isinstance(below, ast.Expr) else None
            texts[statement.target.id] = str(text.value) if isinstance(text, ast.Constant) else None
    return {name: _plain(text or words(name)) for name, text in texts.items()}


def words(name: str) -> str:
    """Return the name of an attribute in words."""
    return name.replace("_", " ")


def _plain(text: str) -> str:
    text = " ".join(text.split()).replace("``", "`").removesuffix(".")
    word = text.partition(" ")[0]
    return text if word[1:2].isupper() else text[:1].lower() + text[1:]


def as_json(value: Any) -> Any:
    """Return a value as plain data: a record as a dictionary, a path as text, numbers rounded as their types
    say. NaN and infinity, which JSON does not know, become None."""
    if isinstance(value, Mapping):
        return {str(name): as_json(member) for name, member in value.items()}
    if isinstance(value, pathlib.Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    kind: Any = type(value)
    if not is_record(kind):
        return [as_json(member) for member in value] if isinstance(value, (list, tuple)) else value
    plain: dict[str, Any] = {}
    for names, field in fields(kind).items():
        *outer, name = names.split(".")
        member, inner = value, plain
        for key in outer:
            inner = inner.setdefault(key, {})
        for attribute in field.path.split("."):
            member = None if member is None else getattr(member, attribute)
        decimals = [mark for mark in field.marks if isinstance(mark, int)]
        if INLINE in field.marks:
            inner.update(as_json(member))
        elif member is not None or IF_KNOWN not in field.marks:
            inner[name] = as_json(round(member, *decimals) if decimals and member is not None else member)
    return plain

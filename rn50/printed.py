"""Records that verbs print with ``--json``: dataclasses and NamedTuples.

All fields of a record are printed under their names, but where ``prints`` says which of its attributes are.
docs/reference/json.md is made of their types and docstrings.
"""

import dataclasses
import enum
import functools
import inspect
import math
import pathlib
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class Mark(enum.Enum):
    """How a field is printed."""

    INLINE = "its own fields are printed in its place"
    IF_KNOWN = "it is left out where it is None"
    HIDDEN = "it is not printed"


class Decimals(NamedTuple):
    """Rounding of a printed number."""

    places: int


Inline = Annotated[T, Mark.INLINE]
IfKnown = Annotated[T | None, Mark.IF_KNOWN]
Hidden = Annotated[T, Mark.HIDDEN]
Minutes = Annotated[float, Decimals(4)]
Hundredths = Annotated[float, Decimals(2)]
Tenths = Annotated[float, Decimals(1)]
Share = Annotated[float, Decimals(6)]


class Field(NamedTuple):
    """A printed field."""

    path: tuple[str, ...]
    """Attribute that has its value, or attribute of an attribute."""
    owner: type
    """Class of the last attribute."""
    kinds: tuple[Any, ...]
    """Types of the value."""
    marks: tuple[Any, ...]


class _Path:
    """Stand-in for a record that remembers which attribute of which attribute is taken."""

    def __init__(self, *names: str):
        self.names = names

    def __getattr__(self, name: str) -> "_Path":
        return _Path(*self.names, name)


_CHOSEN: dict[type, tuple[Callable[[Any], Any], ...]] = {}
"""Classes under ``prints`` -> functions that take what is printed."""


def prints(record: type[T], *chosen: Callable[[T], Any]) -> None:
    """Let ``--json`` print the attributes that the functions ``chosen`` take from a record ``r``, in their
    order, each under its own name, or under the key of a dictionary:

    prints(Plan, lambda r: (r.cautions, r.rate.unit), lambda r: {"low": r.interval.least})

    A key with dots is that of a field in an inner dictionary.
    """
    _CHOSEN[record] = chosen


def is_record(kind: Any) -> bool:
    """Return whether a type is a dataclass, a NamedTuple, or a class of ``prints``."""
    if not isinstance(kind, type):
        return False
    return kind in _CHOSEN or dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")


def members(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the one type; those of a field as they are."""
    if isinstance(kind, tuple):
        return kind
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


@functools.cache
def fields(record: type) -> dict[str, Field]:
    """Return the printed fields of a record by name."""
    paths: dict[str, _Path] = {}
    for choose in _CHOSEN.get(record, ()):
        taken = choose(_Path())
        for one in taken if isinstance(taken, tuple) else (taken,):
            paths.update(one if isinstance(one, dict) else {one.names[-1]: one})
    paths = paths or {name: _Path(name) for name in get_type_hints(record)}
    printed = {name: _field(record, path.names) for name, path in paths.items()}
    return {name: field for name, field in printed.items() if Mark.HIDDEN not in field.marks}


def _field(record: type, path: tuple[str, ...]) -> Field:
    owner: Any = record
    null: set[Any] = set()
    for attribute in path[:-1]:
        kinds, _ = _types(owner, attribute)
        null |= {type(None)} & set(kinds)
        (owner,) = set(kinds) - null
    kinds, marks = _types(owner, path[-1])
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
        for attribute in field.path:
            member = None if member is None else getattr(member, attribute)
        if Mark.INLINE in field.marks:
            inner.update(as_json(member))
        elif member is not None or Mark.IF_KNOWN not in field.marks:
            decimals = [mark.places for mark in field.marks if isinstance(mark, Decimals)]
            inner[name] = as_json(round(member, *decimals) if decimals and member is not None else member)
    return plain

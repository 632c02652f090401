"""Records that verbs print with ``--json``: dataclasses and NamedTuples.

All fields of a record are printed under their names, but where ``prints`` says which of its attributes are.
The page JSON output is made of their types and docstrings (docs/records.py).
"""

import dataclasses
import enum
import functools
import inspect
import itertools
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


class _Path:
    """Stand-in for a record that remembers which attribute of which attribute is taken."""

    def __init__(self, *names: str):
        self._names = names

    def __getattr__(self, name: str) -> "_Path":
        return _Path(*self._names, name)


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
    """Return the types of a union, or the one type."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


@functools.cache
def paths(record: type) -> dict[str, tuple[str, ...]]:
    """Return the printed names of a record, and the path to each value: an attribute, or an attribute of an
    attribute."""
    chosen: dict[str, _Path] = {}
    for choose in _CHOSEN.get(record, ()):
        values = choose(_Path())
        for value in values if isinstance(values, tuple) else (values,):
            chosen.update(value if isinstance(value, dict) else {value._names[-1]: value})
    if chosen:
        return {name: path._names for name, path in chosen.items()}
    return {name: (name,) for name in get_type_hints(record) if Mark.HIDDEN not in marks(record, name)}


def kind(owner: type, attribute: str) -> Any:
    """Return the type of an attribute or a property, with its marks."""
    hints = get_type_hints(owner, include_extras=True)
    if attribute in hints:
        return hints[attribute]
    getter = inspect.getattr_static(owner, attribute).fget
    return get_type_hints(getter, include_extras=True)["return"]


@functools.cache
def marks(owner: type, attribute: str) -> tuple[Any, ...]:
    """Return the marks of an attribute, or of a member of its union."""
    kinds = members(kind(owner, attribute))
    return tuple(itertools.chain(*(getattr(member, "__metadata__", ()) for member in kinds)))


def as_json(value: Any) -> Any:
    """Return a value as plain data: a record as a dictionary, a path as text, numbers rounded as their types
    say. NaN and infinity, which JSON does not know, become None."""
    if isinstance(value, Mapping):
        return {str(name): as_json(member) for name, member in value.items()}
    if isinstance(value, pathlib.Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    record: Any = type(value)
    if not is_record(record):
        return [as_json(member) for member in value] if isinstance(value, (list, tuple)) else value
    plain: dict[str, Any] = {}
    for names, path in paths(record).items():
        *outer, name = names.split(".")
        how: tuple[Any, ...] = ()
        inner, member, owner = plain, value, record
        for key in outer:
            inner = inner.setdefault(key, {})
        for attribute in path:
            if member is not None:
                member, how = getattr(member, attribute), marks(owner, attribute)
                owner = type(member)
        if Mark.INLINE in how:
            inner.update(as_json(member))
        elif member is not None or Mark.IF_KNOWN not in how:
            decimals = [mark.places for mark in how if isinstance(mark, Decimals)]
            inner[name] = as_json(round(member, *decimals) if decimals and member is not None else member)
    return plain


def of_json(record: type[T], plain: Any) -> T:
    """Return a NamedTuple of the plain data that ``as_json`` makes of it; fields that are not printed take
    their defaults. Raises KeyError or TypeError where a value is missing."""
    values = {}
    for name, hint in get_type_hints(record).items():
        if name in plain:
            inner = next(filter(is_record, members(hint)), None)
            values[name] = of_json(inner, plain[name]) if inner else plain[name]
    return record(**values)

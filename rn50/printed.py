"""Records that verbs print with ``--json``: dataclasses and NamedTuples, which ``as_json`` turns into plain
data.

By default all fields of a record are printed under their names. ``prints`` chooses other attributes for a
record, and a ``Mark`` in the type of a field changes how it is printed. docs/records.py makes the page on
JSON output from the types and docstrings of the fields.
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
    """Rounding of a printed number, a mark in the type of a field."""

    places: int
    """Digits behind the decimal point."""


# Types of fields with a mark.
Inline = Annotated[T, Mark.INLINE]
IfKnown = Annotated[T | None, Mark.IF_KNOWN]
Hidden = Annotated[T, Mark.HIDDEN]
Minutes = Annotated[float, Decimals(4)]
Hundredths = Annotated[float, Decimals(2)]
Tenths = Annotated[float, Decimals(1)]
Share = Annotated[float, Decimals(6)]


class _Path:
    """Stand-in for a record, which records the attributes that a function takes: ``_Path().rate.unit`` has
    the path ("rate", "unit")."""

    def __init__(self, *names: str):
        self._names = names

    def __getattr__(self, name: str) -> "_Path":
        return _Path(*self._names, name)


_CHOSEN: dict[type, tuple[Callable[[Any], Any], ...]] = {}
"""Class for which ``prints`` was called -> the functions that choose its printed attributes."""


def prints(record: type[T], *chosen: Callable[[T], Any]) -> None:
    """Choose what ``--json`` prints of a class of records, in this order. Each function of ``chosen`` takes a
    record and returns attributes of it, to be printed under their own names, or a dictionary key ->
    attribute:

    prints(Plan, lambda r: (r.cautions, r.rate.unit), lambda r: {"low": r.interval.least})

    A key with dots puts the attribute into inner dictionaries: "a.b" prints {"a": {"b": ...}}.
    """
    _CHOSEN[record] = chosen


def is_record(hint: Any) -> bool:
    """Return whether a type is a dataclass, a NamedTuple (which has ``_fields``), or a class for which
    ``prints`` was called."""
    if not isinstance(hint, type):
        return False
    return hint in _CHOSEN or dataclasses.is_dataclass(hint) or hasattr(hint, "_fields")


def members(hint: Any) -> tuple[Any, ...]:
    """Return the types that a union consists of; for any other type a tuple of this type alone."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


@functools.cache
def paths(record: type) -> dict[str, tuple[str, ...]]:
    """Return printed name -> path, for each value that is printed of a record. A path has the names of the
    attributes that lead to the value: ("rate", "unit") to ``record.rate.unit``."""
    chosen: dict[str, _Path] = {}
    for choose in _CHOSEN.get(record, ()):
        values = choose(_Path())  # one path, a tuple of paths and dictionaries, or a dictionary
        for value in values if isinstance(values, tuple) else (values,):
            # An attribute without a key has the last name of its path: ``r.rate.unit`` is printed as "unit".
            chosen.update(value if isinstance(value, dict) else {value._names[-1]: value})
    if chosen:
        return {name: path._names for name, path in chosen.items()}
    return {name: (name,) for name in get_type_hints(record) if Mark.HIDDEN not in marks(record, name)}


def kind(owner: type, attribute: str) -> Any:
    """Return the type of a field or a property of a class, with its marks."""
    hints = get_type_hints(owner, include_extras=True)
    if attribute in hints:
        return hints[attribute]
    getter = inspect.getattr_static(owner, attribute).fget
    return get_type_hints(getter, include_extras=True)["return"]


@functools.cache
def marks(owner: type, attribute: str) -> tuple[Any, ...]:
    """Return the marks in the type of a field or a property. If the type is a union, these are the marks of
    its members."""
    kinds = members(kind(owner, attribute))
    return tuple(itertools.chain(*(getattr(member, "__metadata__", ()) for member in kinds)))


def as_json(value: Any) -> Any:
    """Return a value as plain data: dictionaries, lists, texts and numbers. A record becomes a dictionary,
    whose numbers are rounded as the marks of their types say. NaN and infinity, which JSON does not have,
    become None."""
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
    for key, path in paths(record).items():
        # Find the dictionary that gets the value: that of the record, or an inner one for a key with dots.
        *outer_names, name = key.split(".")
        target = plain
        for outer_name in outer_names:
            target = target.setdefault(outer_name, {})
        # Follow the path to the value; if an attribute on the way is None, that is the value. The marks are
        # those of the last attribute.
        member = value
        member_marks: tuple[Any, ...] = ()
        for attribute in path:
            if member is not None:
                owner: Any = type(member)
                member_marks = marks(owner, attribute)
                member = getattr(member, attribute)
        if Mark.INLINE in member_marks:
            target.update(as_json(member))
        elif member is not None or Mark.IF_KNOWN not in member_marks:
            decimals = [mark.places for mark in member_marks if isinstance(mark, Decimals)]
            target[name] = as_json(round(member, *decimals) if decimals and member is not None else member)
    return plain


def of_json(record: type[T], plain: Any) -> T:
    """Return the NamedTuple from which ``as_json`` made the data ``plain``. Fields that are not printed take
    their defaults. Raises KeyError or TypeError if a value is missing."""
    values = {}
    for name, hint in get_type_hints(record).items():
        if name in plain:
            inner = next(filter(is_record, members(hint)), None)
            values[name] = of_json(inner, plain[name]) if inner else plain[name]
    return record(**values)

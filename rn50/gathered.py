"""Group values by key, and compare two dictionaries: helpers that all rooms share."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def gathered(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return key -> list of the values that stand beside it in ``pairs``. Keys and values keep their
    order."""
    by_key: dict[Key, list[Value]] = {}
    for key, value in pairs:
        by_key.setdefault(key, []).append(value)
    return by_key


def differing(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield (name, value of ``first``, value of ``second``) where the values differ; "-" for no value."""
    for name in {**first, **second}:
        if first.get(name) != second.get(name):
            yield name, first.get(name, "-"), second.get(name, "-")

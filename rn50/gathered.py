"""Values by key."""

from collections.abc import Iterable
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def gathered(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, keys and values in the order of the pairs."""
    by_key: dict[Key, list[Value]] = {}
    for key, value in pairs:
        by_key.setdefault(key, []).append(value)
    return by_key

"""Group values by key: a helper that all rooms share."""

from collections.abc import Iterable
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

"""The fields of ``--json`` that the documentation has, to compare with those that a verb prints."""

import functools
from collections.abc import Iterator
from typing import Any

from docs import generate, records

TYPES: dict[str, Any] = {
    "text": str, "integer": int, "number": (int, float), "true or false": bool, "list": list, "object": dict,
    "number or text": (int, float, str)}


@functools.cache
def verbs() -> dict[str, dict[str, str]]:
    """Return verb -> path of a field -> its type; a type of the page's own, such as "rate", is a verb too."""
    sections = {section.name: section for section in records.sections(generate.every_verb())}
    return {
        name: {path: type_ for each in (*section.others, name) for path, type_, _ in sections[each].rows}
        for name, section in sections.items()}


def differences(verb: str, value: Any) -> list[str]:
    """Return a line for every field that is printed or documented alone, and for every wrong type."""
    tree: dict[str, Any] = {}
    for path, type_ in verbs()[verb].items():
        node = tree
        for part in path.replace("[]", ".[]").lstrip(".").split("."):
            node = node.setdefault(part, {})
        node[":"] = type_
    return list(_compare(tree, value, verb))


def _compare(node: dict[str, Any], value: Any, where: str) -> Iterator[str]:
    types = node.get(":", "list" if "[]" in node else "object").replace(", if known", "").split(" or null")
    if value is None:
        if len(types) == 1:
            yield f"{where} is null"
        return
    if types[0] not in TYPES:
        yield from (f"{where}: {each}" for each in differences(types[0], value))
        return
    if not isinstance(value, TYPES[types[0]]) or isinstance(value, bool) != (types[0] == "true or false"):
        yield f"{where} is {type(value).__name__}, documented as {types[0]}"
    elif isinstance(value, list):
        for each in value:
            yield from _compare(node.get("[]", {":": "text"}), each, f"{where}[]")
    elif isinstance(value, dict):
        names = {name for name in node if name not in (":", "[]")}
        pattern = next((name for name in names if name.startswith("<")), None)
        if pattern:
            names = set(value)
        yield from (f"{where}.{name} is not documented" for name in set(value) - names)
        optional = {name for name in names if not pattern and "if known" in node[name].get(":", "")}
        yield from (f"{where}.{name} is missing" for name in names - set(value) - optional)
        for name in names & set(value):
            yield from _compare(node[pattern or name], value[name], f"{where}.{name}")

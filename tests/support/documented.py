"""The fields of ``--json`` that docs/reference/json.md documents, to compare with those that a verb
prints."""

import re
from collections.abc import Iterator
from typing import Any

from rn50.files import ROOT

PAGE = ROOT / "docs" / "reference" / "json.md"
TYPES: dict[str, Any] = {
    "text": str, "integer": int, "number": (int, float), "true or false": bool, "list": list, "object": dict,
    "number or text": (int, float, str)}


def verbs() -> dict[str, dict[str, str]]:
    """Return verb -> path of a field -> its type; a type of the page's own, such as "rate", is a verb too."""
    of_page: dict[str, dict[str, str]] = {}
    others: dict[str, str] = {}
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        fields = dict(re.findall(r"^\| `([^`]+)` \| ([^|]+?) \|", section, re.MULTILINE))
        other = re.search(r"^The fields of `([^`]+)`(?:\.|, and:)$", section, re.MULTILINE)
        for name in re.findall("`([^`]+)`", section.splitlines()[0]):
            of_page[name] = fields
            others.update({name: other[1]} if other else {})
    return {name: {**of_page.get(others.get(name, ""), {}), **fields} for name, fields in of_page.items()}


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

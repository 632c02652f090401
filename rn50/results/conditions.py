"""Software, hardware and settings of the runs: the ``result_<N>.json`` beside each log, the description of a
published system."""

import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rn50 import files
from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.results import sidecar

Section = tuple[str, list[tuple[str, str]]]
"""A heading and its (name, value) rows."""


def saved(log: pathlib.Path) -> dict[str, str]:
    """Return the values of a log's ``result_<N>.json`` by names like ``config / run / device``; empty where
    there is none. Its ``variables`` are left out, because they repeat ``config``."""
    return {name: value for name, value in flat(sidecar.read(log)) if not name.startswith("variables / ")}


def sections(folder: pathlib.Path, logs: Sequence[pathlib.Path]) -> list[Section]:
    """Return everything known of the runs of a folder; a value that differs between runs is listed run by
    run."""
    facts = {log.name: fact for log, fact in ((log, saved(log)) for log in logs) if fact}
    by_heading: dict[str, list[tuple[str, str]]] = {}
    for key in dict.fromkeys(key for fact in facts.values() for key in fact):
        values = {name: fact.get(key, "-") for name, fact in facts.items()}
        same = len(set(values.values())) == 1
        value = (
            next(iter(values.values()))
            if same
            else "; ".join(f"{name}: {value}" for name, value in values.items())
        )
        heading, _, name = key.rpartition(" / ")
        by_heading.setdefault(heading or "run", []).append((name, value))
    if folder.name == rules.BENCHMARK:  # a published tree: <organisation>/results/<system>/resnet
        system = folder.resolve().parent
        description = system.parent.parent / "systems" / f"{system.name}.json"
        rows = [(name, value) for name, value in flat(_read(description)) if value]
        if rows:
            by_heading[f"system description, {description.name}"] = rows
    return list(by_heading.items())


def flat(value: Any, above: str = "") -> Iterator[tuple[str, str]]:
    """Yield the values of a nested JSON object with names like ``config / run / device``."""
    if isinstance(value, Mapping):
        for key, member in value.items():
            yield from flat(member, f"{above} / {key}" if above else str(key))
    elif above:
        yield above, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read(file: pathlib.Path) -> Any:
    """Read a JSON file. Return an empty object where it is missing or not JSON, because the report is about
    the logs."""
    try:
        return files.read_json(file)
    except UserError:
        return {}

"""Read the sidecar file ``result_<N>.json``, which ``rn50.run.provenance`` saves beside the log of a run."""

import json
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rn50 import files
from rn50.errors import UserError
from rn50.settings.fields import RUNS_OWN_NAMES, VARIABLES
from rn50.settings.libraries import HARMLESS
from rn50.settings.writing import is_name

LARGEST = 8 << 20
"""Bytes; files that we write have some tens of thousands."""
_TEXTS = ("commit", "python", "machine", "rn50", "precision", "precision_reason", "input_library")
_TABLES = ("packages", "system", "variables", "environment")
_SECTIONS = ("hyperparameters", "run", "data", "input_pipeline")
_COUNTS = ("ranks_per_node", "nodes")
_NAMES = ("framework", "device", "system")
_COMMIT = re.compile(r"\w[\w./+-]*")  # neither an option of git nor several words


def path(log: pathlib.Path) -> pathlib.Path:
    """Return the path of a log's sidecar file, which need not exist."""
    return log.with_suffix(".json")


def read(log: pathlib.Path) -> Mapping[str, Any]:
    """Return the contents of a log's sidecar file; empty where there is none or rn50 did not write it."""
    try:
        saved = files.read_json(path(log), LARGEST)
    except UserError:
        return {}
    return saved if _is_ours(saved) else {}


def _is_ours(saved: Any) -> bool:
    """Return True if ``saved`` has the structure that ``provenance.save`` writes, so that no other code
    checks it again. Texts may be anything."""
    config = saved.get("config", {}) if isinstance(saved, dict) else None
    if not isinstance(config, dict):
        return False
    tables = [saved.get(name, {}) for name in _TABLES]
    if not all(isinstance(part, dict) for part in (*tables, *(config.get(name, {}) for name in _SECTIONS))):
        return False
    run = section(saved, "run")
    texts = [
        *(saved[name] for name in _TEXTS if saved.get(name) is not None),
        *(run[name] for name in _NAMES if name in run),
        *(value for table in tables for value in table.values()),
    ]
    return (
        all(isinstance(text, str) and "\0" not in text for text in texts)
        and all(type(run[name]) is int and run[name] > 0 for name in _COUNTS if name in run)
        and all(is_name(name) for table in tables[2:] for name in table)
        and _COMMIT.fullmatch(saved.get("commit") or "unknown") is not None
    )


def is_whole(saved: Mapping[str, Any]) -> bool:
    """Return True if ``saved`` has all fields on the run's devices and framework that packaging needs."""
    run = section(saved, "run")
    return all(name in run for name in (*_COUNTS, *_NAMES))


def section(saved: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a section of the saved configuration; empty where it is missing."""
    fields: dict[str, Any] = saved.get("config", {}).get(name, {})
    return fields


def variables(saved: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that may become a configuration: those that rn50 reads and that are not of one run
    alone, and harmless ones of libraries. Any other could run what came with the result."""
    ours = saved.get("variables", {})
    taken = (VARIABLES.keys() | HARMLESS) - RUNS_OWN_NAMES
    settings = {**ours, **saved.get("environment", {}), **ours}
    return {name: value for name, value in settings.items() if name in taken and value.isprintable()}


def left_out(saved: Mapping[str, Any]) -> list[str]:
    """Return the names of the other variables, but for those of one run alone."""
    settings = {**saved.get("variables", {}), **saved.get("environment", {})}
    return [name for name in settings if name not in variables(saved) and name not in RUNS_OWN_NAMES]


def named(saved: Mapping[str, Any]) -> dict[str, str]:
    """Return the saved values by names like ``config / run / device``; without ``variables``, which repeat
    ``config``."""
    return {name: value for name, value in flat(saved) if not name.startswith("variables / ")}


def flat(value: Any, above: str = "") -> Iterator[tuple[str, str]]:
    """Yield the values of a nested JSON object with names like ``config / run / device``."""
    if isinstance(value, Mapping):
        for key, member in value.items():
            yield from flat(member, f"{above} / {key}" if above else str(key))
    elif above:
        yield above, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

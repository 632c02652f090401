"""What a run saves beside its log: ``result_<N>.json``, of ``rn50.run.provenance``."""

import pathlib
import re
from typing import Any, Dict, Mapping

from rn50 import files
from rn50.errors import UserError

LARGEST = 8 << 20
"""Bytes; what we write has some tens of thousands."""
_TEXTS = ("commit", "python", "machine", "rn50")
_TABLES = ("packages", "system", "variables", "environment")
_SECTIONS = ("hyperparameters", "run", "data", "input_pipeline")
_COUNTS = ("ranks_per_node", "nodes")
_NAMES = ("framework", "device", "system")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMMIT = re.compile(r"\w[\w./+-]*")  # no option of git, and no two words


def path(log: pathlib.Path) -> pathlib.Path:
    """The file beside a log, whether it is there or not."""
    return log.with_suffix(".json")


def read(log: pathlib.Path) -> Mapping[str, Any]:
    """What was saved beside a log; empty where nothing is, or not what rn50 saves."""
    try:
        saved = files.read_json(path(log), LARGEST)
    except UserError:
        return {}
    return saved if _is_ours(saved) else {}


def _is_ours(saved: Any) -> bool:
    """Whether it has the shape of what ``provenance.save`` writes, so that nobody else has to look; its words may be anything."""
    if not isinstance(saved, dict) or not isinstance(saved.get("config", {}), dict):
        return False
    sections = [saved.get("config", {}).get(name, {}) for name in _SECTIONS]
    tables = [saved.get(name, {}) for name in _TABLES]
    if not all(isinstance(each, dict) for each in (*sections, *tables)):
        return False
    run = section(saved, "run")
    texts = [saved[name] for name in _TEXTS if saved.get(name) is not None] + [run[name] for name in _NAMES if name in run]
    texts += [value for table in tables for value in table.values()]
    return (
        all(isinstance(text, str) and "\0" not in text for text in texts)
        and all(type(run[name]) is int and run[name] > 0 for name in _COUNTS if name in run)
        and all(_VARIABLE.fullmatch(name) for table in tables[2:] for name in table)
        and _COMMIT.fullmatch(saved.get("commit") or "unknown") is not None
    )


def is_whole(saved: Mapping[str, Any]) -> bool:
    """Whether it says what a run was made with, so that it can be packaged."""
    run = section(saved, "run")
    return all(name in run for name in (*_COUNTS, *_NAMES))


def section(saved: Mapping[str, Any], name: str) -> Dict[str, Any]:
    """A section of the configuration that was saved; empty where it is not there."""
    found: Dict[str, Any] = saved.get("config", {}).get(name, {})
    return found

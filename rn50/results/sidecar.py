"""Read the sidecar file ``result_<N>.json`` of a log ``result_<N>.txt``: the configuration, environment,
packages and machine of the run, as ``rn50.run.provenance`` saves them.

``read`` checks the structure of the file, which may come from a stranger. The other functions take ``saved``,
the contents that ``read`` has returned, and need no checks.
"""

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
"""Bytes of the largest sidecar file that is read; a file that rn50 writes has some tens of thousands."""
_TEXTS = ("commit", "python", "machine", "rn50", "precision", "precision_reason", "input_library")
"""Fields of the file that are text."""
_TABLES = ("packages", "system", "variables", "environment")
"""Fields of the file that are objects of texts. The names in the last two, ``variables`` and ``environment``,
are names of variables."""
_SECTIONS = ("hyperparameters", "run", "data", "input_pipeline")
"""Objects in the field ``config``."""
_COUNTS = ("ranks_per_node", "nodes")
"""Fields of the section ``run`` that are whole numbers above 0."""
_NAMES = ("framework", "device", "system")
"""Fields of the section ``run`` that are text."""
_COMMIT = re.compile(r"\w[\w./+-]*")  # git would take a commit that begins with a dash for an option


def path(log: pathlib.Path) -> pathlib.Path:
    """Return the path of the sidecar file of a log; the file may be missing."""
    return log.with_suffix(".json")


def read(log: pathlib.Path) -> Mapping[str, Any]:
    """Return the contents of the sidecar file of a log; empty if the file is missing or rn50 cannot have
    written it."""
    try:
        saved = files.read_json(path(log), LARGEST)
    except UserError:
        return {}
    return saved if _is_ours(saved) else {}


def _is_ours(saved: Any) -> bool:
    """Return True if ``saved`` has the structure that ``provenance.save`` writes: the types are right and no
    text has a null character. Texts may otherwise be anything."""
    config = saved.get("config", {}) if isinstance(saved, dict) else None
    if not isinstance(config, dict):
        return False
    tables = [saved.get(name, {}) for name in _TABLES]
    sections = [config.get(name, {}) for name in _SECTIONS]
    if not all(isinstance(part, dict) for part in (*tables, *sections)):
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
        # Not the names of packages and of facts about the system.
        and all(is_name(name) for name in (*saved.get("variables", {}), *saved.get("environment", {})))
        # A file without a commit is accepted, like a file with the commit "unknown".
        and _COMMIT.fullmatch(saved.get("commit") or "unknown") is not None
    )


def is_whole(saved: Mapping[str, Any]) -> bool:
    """Return True if ``saved`` has every field of ``_COUNTS`` and ``_NAMES``, which packaging needs."""
    return all(name in section(saved, "run") for name in (*_COUNTS, *_NAMES))


def section(saved: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a section of the saved configuration; empty where it is missing."""
    return dict(saved.get("config", {}).get(name, {}))


def data_set(saved: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the data set, from the certificate that the run has saved; "" without one."""
    digest = dict(flat(saved.get("data certificate"))).get("set_sha256", "")
    return digest if re.fullmatch("[0-9a-f]{64}", digest) else ""


def variables(saved: Mapping[str, Any]) -> dict[str, str]:
    """Return the saved variables that may become part of a configuration: variables that rn50 reads, except
    those that belong to a single run, and harmless variables of libraries. Any other variable could make a
    process run code that came with a stranger's result."""
    of_rn50 = saved.get("variables", {})
    accepted = (VARIABLES.keys() | HARMLESS) - RUNS_OWN_NAMES
    # ``of_rn50`` stands first, so that its variables come first, and last, so that its values win.
    settings = {**of_rn50, **saved.get("environment", {}), **of_rn50}
    return {name: value for name, value in settings.items() if name in accepted and value.isprintable()}


def left_out(saved: Mapping[str, Any]) -> list[str]:
    """Return the names of the saved variables that ``variables`` leaves out, except those that belong to a
    single run."""
    settings = {**saved.get("variables", {}), **saved.get("environment", {})}
    return [name for name in settings if name not in variables(saved) and name not in RUNS_OWN_NAMES]


def named(saved: Mapping[str, Any]) -> dict[str, str]:
    """Return all saved values as text, by names like ``config / run / device``, without the table
    ``variables``, which repeats the values of ``config``."""
    return {name: value for name, value in flat(saved) if not name.startswith("variables / ")}


def flat(value: Any, above: str = "") -> Iterator[tuple[str, str]]:
    """Yield (name like ``config / run / device``, value as text) of a nested JSON object. ``above`` is the
    name of the object itself; it is empty for the outermost one."""
    if isinstance(value, Mapping):
        for key, member in value.items():
            yield from flat(member, f"{above} / {key}" if above else str(key))
    elif above:
        yield above, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

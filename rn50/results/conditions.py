"""What the runs of a result were made with: the ``result_<N>.json`` beside each log, the description of a published system."""

import json
import pathlib
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from rn50 import files
from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.results import sidecar

Section = Tuple[str, List[Tuple[str, str]]]
"""A heading and its (name, value) rows."""


def saved(log: pathlib.Path) -> Dict[str, str]:
    """The ``result_<N>.json`` of a log by name, as ``config / run / device``; empty where there is none. Its ``variables``, which
    say what ``config`` says, are left out."""
    return {name: value for name, value in flat(sidecar.read(log)) if not name.startswith("variables / ")}


def sections(folder: pathlib.Path, logs: Sequence[pathlib.Path]) -> List[Section]:
    """All that is known of the runs of a folder; a value that is not the same in all of them is given run by run."""
    facts = {log.name: fact for log, fact in ((log, saved(log)) for log in logs) if fact}
    found: Dict[str, List[Tuple[str, str]]] = {}
    for key in dict.fromkeys(key for fact in facts.values() for key in fact):
        values = {name: fact.get(key, "-") for name, fact in facts.items()}
        same = len(set(values.values())) == 1
        value = next(iter(values.values())) if same else "; ".join(f"{name}: {value}" for name, value in values.items())
        heading, _, name = key.rpartition(" / ")
        found.setdefault(heading or "run", []).append((name, value))
    if folder.name == rules.BENCHMARK:  # a published tree: <organisation>/results/<system>/resnet
        description = folder.parents[2] / "systems" / f"{folder.parent.name}.json"
        rows = [(name, value) for name, value in flat(_read(description)) if value]
        if rows:
            found[f"system description, {description.name}"] = rows
    return list(found.items())


def flat(value: Any, above: str = "") -> Iterator[Tuple[str, str]]:
    """The values of a JSON object by the names that lead to them, as ``config / run / device``."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from flat(each, f"{above} / {key}" if above else str(key))
    elif above:
        yield above, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read(file: pathlib.Path) -> Any:
    """A JSON file; an empty object where it is absent or no JSON: the report is about the logs."""
    try:
        return files.read_json(file)
    except UserError:
        return {}

"""Read the comment at the top of a configuration file: its purpose, in lines of (name, text)."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rn50.errors import UserError
from rn50.settings.config import Config, of_document
from rn50.settings.document import Document, file_of, systems
from rn50.settings.fields import RUNS_OWN_NAMES, VARIABLES

_ENTRY = re.compile(r"#   (\S+) +(.*)")
_MORE = re.compile(r"# {4,}(\S.*)")
_EPOCH_AND_MINUTES = re.compile(r"epoch (\d+)[^;]*; (.* minutes\b.*?)(?:\. .*)?")
_NO_LIMIT = re.compile(r"not measured|estimate|and more")
_NUMBER = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w.])")
EXPECTATION = re.compile(r"^#   (?:expected|curve) .*\n(?:# {4,}\S.*\n)*", re.MULTILINE)
"""Entries of a header on what to expect of a run."""
_OF_NO_EFFECT = RUNS_OWN_NAMES | {"DATADIR", "DGXSYSTEM", "LAUNCHER"}
_OF_NO_EFFECT |= {name for name in VARIABLES if name.startswith("SUBMISSION_")}
"""Variables that change neither the convergence nor the time of a run much."""
_POINT = re.compile(r"(\d+): (0\.\d+)-(0\.\d+)")


def read(document: Document) -> dict[str, str]:
    """Return the entries of a file's header by name, with continuation lines joined."""
    entries: dict[str, list[str]] = {}
    name = ""
    for line in document.text.splitlines():
        if not line.startswith("#"):
            break
        entry, more = _ENTRY.fullmatch(line), _MORE.fullmatch(line)
        if entry:
            name = entry[1]
            entries[name] = [entry[2].strip()]
        elif more and name:
            entries[name].append(more[1].strip())
    return {name: " ".join(texts) for name, texts in entries.items()}


def of(config: Config) -> dict[str, str]:
    """Return the header of a configuration's file, if it still tells of its runs."""
    return of_run(config.run.system, config.as_environment(), config.document)


def of_run(system: str, variables: Mapping[str, Any], document: Document | None = None) -> dict[str, str]:
    """Return the header of a system's file in ``configs/``, else that of ``document``, if nothing that
    changes convergence or time differs between it and ``variables`` of a run."""
    try:
        document = Document(file_of(system)) if system in systems() else document
        current = of_document(document).as_environment() if document else {}
    except UserError:
        return {}
    telling = VARIABLES.keys() & variables.keys() - _OF_NO_EFFECT
    if current.get("DALI_THREADS") == "0":  # a run saves how many it took
        telling -= {"DALI_THREADS"}
    same = all(current.get(name) == variables[name] for name in telling)
    return read(document) if document and same else {}


def curve(entries: dict[str, str]) -> dict[int, tuple[float, float]]:
    """Return epoch -> lowest and highest top-1 of the runs of the entry "curve"; empty without that entry."""
    points = _POINT.findall(entries.get("curve", ""))
    return {int(epoch): (float(low), float(high)) for epoch, low, high in points}


class Expected(NamedTuple):
    """Epochs and most minutes of a measured run, by the entry "expected"."""

    epoch: int
    minutes: float


def expected(entries: dict[str, str]) -> Expected | None:
    """Return what is expected of a run; None where the minutes were not measured or have no upper end. Of
    several machines the slowest counts."""
    text = entries.get("expected", "")
    match = None if _NO_LIMIT.search(text) else _EPOCH_AND_MINUTES.fullmatch(text)
    return Expected(int(match[1]), max(map(float, _NUMBER.findall(match[2])))) if match else None

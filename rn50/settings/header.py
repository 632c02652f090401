"""Read the comment at the top of a configuration file: its purpose, in lines of (name, text)."""

import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rn50.settings import config_file
from rn50.settings.rewrite import GROUP
from rn50.settings.shell import assignments

_ENTRY = re.compile(r"#   (\S+) +(.*)")
_MORE = re.compile(r"# {4,}(\S.*)")
_EPOCH_AND_MINUTES = re.compile(r"epoch (\d+)[^;]*; (.* minutes\b.*?)(?:\. .*)?")
_NO_LIMIT = re.compile(r"not measured|estimate|and more")
_NUMBER = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w.])")
_POINT = re.compile(r"(\d+): (0\.\d+)-(0\.\d+)")


def read(file: pathlib.Path) -> dict[str, str]:
    """Return the entries of a file's header by name, with continuation lines joined.

    Raises UserError if the file cannot be read.
    """
    entries: dict[str, list[str]] = {}
    name = ""
    for line in assignments.text_of(file).splitlines():
        if not line.startswith("#"):
            break
        entry, more = _ENTRY.fullmatch(line), _MORE.fullmatch(line)
        if entry:
            name = entry[1]
            entries[name] = [entry[2].strip()]
        elif more and name:
            entries[name].append(more[1].strip())
    return {name: " ".join(texts) for name, texts in entries.items()}


def of_run(system: str, variables: Mapping[str, Any]) -> dict[str, str]:
    """Return the header of a system's file in ``configs/``, if its hyperparameters still equal those in
    ``variables`` of a run."""
    if system not in config_file.systems():
        return {}
    file = config_file.file_of(system)
    current = assignments.read(file).values
    common = [name for name in GROUP if name in current and name in variables]
    same = all(_comparable(current[name]) == _comparable(variables[name]) for name in common)
    return read(file) if same else {}


def _comparable(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


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

"""Read the header of a configuration file, the comment at its top: its entries ``#   NAME  TEXT``.

The entries "expected" and "curve" say what earlier runs of the file have measured. Displays of a new run show
them, if its configuration is that of the file.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rn50.errors import UserError
from rn50.settings.config import Config, of_document
from rn50.settings.document import Document, file_of, systems
from rn50.settings.fields import RUNS_OWN_NAMES, VARIABLES

_ENTRY = re.compile(r"#   (\S+) +(.*)")
"""Name and text: "#   expected    epoch 5; 0.43 to 0.65 minutes on two cores. They train at ..."."""
_CONTINUATION = re.compile(r"# {4,}(\S.*)")
"""Text of a line that continues an entry: "#               at least 600 images/s", indented further than a
name."""
_EPOCH_AND_MINUTES = re.compile(r"epoch (\d+)[^;]*; (.* minutes\b.*?)(?:\. .*)?")
"""Epoch, and the words on minutes up to a full stop, in an entry "expected": 5, and "0.43 to 0.65 minutes on
two cores", in the example above."""
_NO_LIMIT = re.compile(r"not measured|estimate|and more")
"""Words by which an entry "expected" says that its minutes are no upper limit."""
_NUMBER = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w.])")
"""A number that is no part of a name: not the 100 of "H100"."""
EXPECTATION = re.compile(r"^#   (?:expected|curve) .*\n(?:# {4,}\S.*\n)*", re.MULTILINE)
"""Entries "expected" and "curve" with their continuation lines."""
_NEUTRAL = RUNS_OWN_NAMES | {"DATADIR", "DGXSYSTEM", "LAUNCHER"}
_NEUTRAL |= {name for name in VARIABLES if name.startswith("SUBMISSION_")}
"""Variables that do not change the convergence of a run, and hardly its time."""
_POINT = re.compile(r"(\d+): (0\.\d+)-(0\.\d+)")
"""Epoch, lowest and highest top-1, in an entry "curve": "1: 0.19-0.37, 5: 0.77-0.94 (top-1 of 50 runs)"."""


def read(document: Document) -> dict[str, str]:
    """Return name -> text of the entries in a file's header, with continuation lines joined."""
    entries: dict[str, list[str]] = {}
    name = ""
    for line in document.text.splitlines():
        if not line.startswith("#"):
            break
        if entry := _ENTRY.fullmatch(line):
            name = entry[1]
            entries[name] = [entry[2].strip()]
        elif name and (continuation := _CONTINUATION.fullmatch(line)):
            entries[name].append(continuation[1].strip())
    return {name: " ".join(texts) for name, texts in entries.items()}


def of(config: Config) -> dict[str, str]:
    """Return the header of the file of a configuration; empty if it does not apply to a run of ``config``, as
    in ``of_run``."""
    return of_run(config.run.system, config.as_environment(), config.document)


def of_run(system: str, variables: Mapping[str, Any], document: Document | None = None) -> dict[str, str]:
    """Return name -> text of the entries in the header of the system's file in ``configs/``; if there is no
    such file, in that of ``document``.

    ``variables`` are the variables of a run, by name. If one that affects convergence or time differs from
    the file, or the file cannot be read, the result is empty.
    """
    try:
        file = Document(file_of(system)) if system in systems() else document
        current = of_document(file).as_environment() if file else {}
    except UserError:
        return {}
    compared = (VARIABLES.keys() & variables.keys()) - _NEUTRAL
    if current.get("DALI_THREADS") == "0":  # 0 lets the run choose, and the run saves its choice
        compared -= {"DALI_THREADS"}
    is_same = all(current.get(name) == variables[name] for name in compared)
    return read(file) if file and is_same else {}


def curve(entries: dict[str, str]) -> dict[int, tuple[float, float]]:
    """Return epoch -> (lowest, highest) top-1 of several runs, from the entry "curve"; empty if there is no
    such entry."""
    points = _POINT.findall(entries.get("curve", ""))
    return {int(epoch): (float(low), float(high)) for epoch, low, high in points}


class Expected(NamedTuple):
    """Epoch at which a run should reach the target, and the most minutes that it should take, from the entry
    "expected"."""

    epoch: int
    minutes: float


def expected(entries: dict[str, str]) -> Expected | None:
    """Return the expectation in the entry "expected"; None if it has no minutes, or they were not measured or
    have no upper limit. If it has the minutes of several machines, the slowest machine counts."""
    text = entries.get("expected", "")
    match = _EPOCH_AND_MINUTES.fullmatch(text)
    minutes = [float(number) for number in _NUMBER.findall(match[2])] if match else []
    if not match or not minutes or _NO_LIMIT.search(text):
        return None
    return Expected(int(match[1]), max(minutes))

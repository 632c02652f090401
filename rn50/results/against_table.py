"""``rn50 score --against``: hold a table of results against the scores of their logs.

The table is the CSV of the official summarizer (``mlperf_logging.result_summarizer``), or another one with
columns for submitter, system and minutes, as ``rn50 score --csv`` and the table of published results have.
Minutes are equal if they round to the digits of the table, of which four count.
"""

import csv
import io
import math
import pathlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from rn50 import files
from rn50.errors import UserError, excerpt
from rn50.printed import Minutes
from rn50.results import tree
from rn50.results.score import SystemScore
from rn50.terminal import Terminal, counted, minutes

_REMEDY = "give the official summarizer's CSV, or one with columns submitter, system and resnet (minutes)"
_MINUTES = ("resnet", "scaled_minutes", "olympic_minutes")


class Row(NamedTuple):
    """A row of a table, with its minutes as written."""

    submitter: str
    system: str
    minutes: str

    def equals(self, of_logs: float | None) -> bool:
        """Return whether minutes round to those of the row."""
        digits = min(len(self.minutes.partition(".")[2]), 4)
        return of_logs is not None and abs(of_logs - float(self.minutes)) < 0.51 / 10**digits


class Held(NamedTuple):
    """Result of the logs, or row of the table."""

    name: str
    """Submitter and system."""
    logs: Minutes | None
    """Minutes of the logs, scaled by reference convergence where the round scales; null: no logs, or no
    score."""
    table: float | None
    """Minutes of the table; null: it has no such row."""
    difference: str | None
    """Difference, in words; null: none."""
    refusal: str | None
    """Why the logs make no valid result; null: they do, or there are none."""


class Against(NamedTuple):
    """A table and the logs."""

    table: pathlib.Path
    """The table."""
    differences: int
    """Results and rows that differ."""
    results: Sequence[Held]
    """Every result of the logs, then the rows without logs."""


def hold(scores: Sequence[SystemScore], table: pathlib.Path) -> Against:
    """Hold a table against scores. Where several rows have the name of a result, or several results that of
    a row, those of the nearest minutes belong together.

    Raises:
        UserError: the table cannot be read or has no minutes of ResNet-50.
    """
    rows, row_of, times = _rows(table), dict[int, Row](), []
    pairs = []
    for i, system in enumerate(scores):
        submitters, systems = _names(system)
        times.append(system.scaled_minutes or system.olympic_minutes)
        fitting = (r for r in rows if _folded(r.submitter) in submitters and _folded(r.system) in systems)
        pairs += [(abs(float(row.minutes) - (times[i] or 0)), i, row) for row in fitting]
    for _, i, row in sorted(pairs):
        if i not in row_of and row in rows:
            row_of[i] = row
            rows.remove(row)
    held = [_held(system, times[i], row_of.get(i)) for i, system in enumerate(scores)]
    held += [Held(_name(*row[:2]), None, float(row.minutes), "no logs", None) for row in rows]
    return Against(table, sum(row.difference is not None for row in held), held)


def _rows(table: pathlib.Path) -> list[Row]:
    """Return the rows of a table that have minutes, each once."""
    text = files.read_text(table, remedy=_REMEDY, errors="replace").removeprefix("\ufeff")
    lines, rows = csv.DictReader(io.StringIO(text)), dict[Row, None]()
    try:
        lines.fieldnames = [_folded(name) for name in lines.fieldnames or ()]
        if "system" not in lines.fieldnames or not {*_MINUTES} & {*lines.fieldnames}:
            raise UserError(table, "no columns system and resnet in its first line", _REMEDY)
        for cells in lines:
            value = next((cells[name].strip() for name in _MINUTES if cells.get(name)), "")
            submitter = _name(cells.get("round"), cells.get("submitter") or cells.get("organisation"))
            # Several descriptions may have one system_name, which the column system has.
            described = re.search(r"/systems/([^/]+)\.json", cells.get("details_url") or "")
            if value not in ("", "-") and math.isfinite(float(value)):
                rows[Row(submitter, described[1] if described else cells["system"] or "", value)] = None
    except (csv.Error, ValueError) as error:
        raise UserError(table, f"line {lines.line_num}: {excerpt(str(error))}", _REMEDY) from error
    return list(rows)


def _name(*parts: str | None) -> str:
    return "/".join(part.strip() for part in parts if part)


def _folded(text: Any) -> str:
    return "".join(str(text or "").split()).casefold()


def _names(system: SystemScore) -> tuple[set[str], set[str]]:
    """Return the submitters and the systems that a row may name for a result; a table may have none."""
    log, described = system.runs[0].log, tree.described(system.runs[0].file.parent)
    by = (system.submitter or "").rpartition("/")[2]
    submitters = ("", system.submitter, by, log.org, described.get("submitter"))
    systems = (system.system, system.name, log.platform, described.get("system_name"))
    return {*map(_folded, submitters)}, {*map(_folded, systems)}


def _held(system: SystemScore, of_logs: float | None, row: Row | None) -> Held:
    difference = "not in the table" if of_logs and not row else None
    if row and not row.equals(of_logs):
        scaled, unscaled = minutes(of_logs), minutes(system.olympic_minutes)
        without = f" ({unscaled} unscaled)" * (scaled != unscaled)
        difference = f"{scaled} minutes by the logs{without}, {row.minutes} in the table"
    of_table = float(row.minutes) if row else None
    return Held(_name(system.submitter, system.name), of_logs, of_table, difference, system.refusal)


def print_differences(outcome: Against, console: Terminal) -> None:
    """Print a line for each difference, and a summary."""
    for row in outcome.results:
        if texts := [text for text in (row.difference, row.refusal) if text]:
            console.print(f"{row.name}: {'; '.join(texts)}")
    differ, every = counted(outcome.differences, "difference"), counted(len(outcome.results), "result")
    console.print(f"{outcome.table}: {differ} in {every}")

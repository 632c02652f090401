"""``rn50 score --against``: compare a table of results with the scores of their logs. ``hold`` compares,
``print_differences`` prints.

The table is the CSV of the official summarizer (``mlperf_logging.result_summarizer``), or another CSV with
columns for submitter, system and minutes, such as the output of ``rn50 score --csv`` or the table of
published results. Minutes are equal if those of the logs, rounded to the decimals of the table (four at
most), are those of the table.
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
"""Columns of minutes, in small letters. The first one with a value counts."""


class Row(NamedTuple):
    """A row of a table."""

    submitter: str
    system: str
    minutes: str
    """Minutes as written in the table."""

    def equals(self, logged_minutes: float | None) -> bool:
        """Return True if the minutes of logs round to those of the row. The limit is 0.51 of the last
        decimal, and not 0.5, because of rounding errors."""
        decimals = min(len(self.minutes.partition(".")[2]), 4)
        return logged_minutes is not None and abs(logged_minutes - float(self.minutes)) < 0.51 / 10**decimals


class Held(NamedTuple):
    """A result of the logs compared with its row of the table, or one of the two without the other."""

    name: str
    """Submitter and system."""
    logs: Minutes | None
    """Minutes of the logs, scaled by reference convergence in rounds that scale scores; null: there are no
    logs, or they have no score."""
    table: float | None
    """Minutes of the table; null: it has no such row."""
    difference: str | None
    """Difference between logs and table, in words; null: there is none."""
    refusal: str | None
    """Reason why the logs make no valid result; null: they do, or there are none."""


class Against(NamedTuple):
    """Comparison of a table with the results of logs."""

    table: pathlib.Path
    """File of the table."""
    differences: int
    """Number of ``results`` with a difference."""
    results: Sequence[Held]
    """Every result of the logs, then the rows without logs."""


def hold(scores: Sequence[SystemScore], table: pathlib.Path) -> Against:
    """Compare a table with the scores of logs. If several rows have the name of a result, or several results
    have the name of a row, the pairs with the nearest minutes belong together.

    Raises:
        UserError: the table cannot be read or has no minutes of ResNet-50.
    """
    rows = _rows(table)
    row_of: dict[int, Row] = {}  # index of a result -> its row
    times = [system.scaled_minutes or system.olympic_minutes for system in scores]
    pairs = []  # (difference in minutes, index of the result, row) for each row that may be of the result
    for i, system in enumerate(scores):
        submitters, systems = _names(system)
        for row in rows:
            if _folded(row.submitter) in submitters and _folded(row.system) in systems:
                pairs.append((abs(float(row.minutes) - (times[i] or 0)), i, row))
    # The nearest pair first; each result and each row is in one pair at most.
    for _, i, row in sorted(pairs):
        if i not in row_of and row in rows:
            row_of[i] = row
            rows.remove(row)
    results = [_held(system, times[i], row_of.get(i)) for i, system in enumerate(scores)]
    # The rows that are left have no logs.
    results += [Held(_name(r.submitter, r.system), None, float(r.minutes), "no logs", None) for r in rows]
    return Against(table, sum(result.difference is not None for result in results), results)


def _rows(table: pathlib.Path) -> list[Row]:
    """Return the rows of a table that have minutes, equal rows once."""
    text = files.read_text(table, remedy=_REMEDY, errors="replace").removeprefix("\ufeff")
    lines = csv.DictReader(io.StringIO(text))
    rows: dict[Row, None] = {}
    try:
        lines.fieldnames = [_folded(name) for name in lines.fieldnames or ()]
        if "system" not in lines.fieldnames or not {*_MINUTES} & {*lines.fieldnames}:
            raise UserError(table, "no columns system and resnet in its first line", _REMEDY)
        for cells in lines:
            value = next((cells[name].strip() for name in _MINUTES if cells.get(name)), "")
            submitter = _name(cells.get("round"), cells.get("submitter") or cells.get("organisation"))
            # Several systems may have the name in the column "system". The column "details_url", such as
            # https://.../ORG/systems/SYSTEM.json, tells which of them it is.
            in_url = re.search(r"/systems/([^/]+)\.json", cells.get("details_url") or "")
            # "" and "-": a system without minutes of ResNet-50.
            if value not in ("", "-") and math.isfinite(float(value)):
                rows[Row(submitter, in_url[1] if in_url else cells["system"] or "", value)] = None
    except (csv.Error, ValueError) as error:
        raise UserError(table, f"line {lines.line_num}: {excerpt(str(error))}", _REMEDY) from error
    return list(rows)


def _name(*parts: str | None) -> str:
    """Return the parts of a name that are not empty, joined by slashes."""
    return "/".join(part.strip() for part in parts if part)


def _folded(text: Any) -> str:
    """Return a name for comparison: without spaces, in small letters."""
    return "".join(str(text or "").split()).casefold()


def _names(system: SystemScore) -> tuple[set[str], set[str]]:
    """Return the submitters and the systems, both ``_folded``, that a row of the table may name if it is of
    this result. The submitter may be empty, because a table may have no such column."""
    log = system.runs[0].log
    description = tree.described(system.runs[0].file.parent)
    organisation = (system.submitter or "").rpartition("/")[2]
    submitters = ("", system.submitter, organisation, log.org, description.get("submitter"))
    systems = (system.system, system.name, log.platform, description.get("system_name"))
    return {*map(_folded, submitters)}, {*map(_folded, systems)}


def _held(system: SystemScore, logged_minutes: float | None, row: Row | None) -> Held:
    """Compare a result with its row of the table; ``row`` is None if the table has none. A result without
    minutes need not be in the table."""
    difference = "not in the table" if logged_minutes and not row else None
    if row and not row.equals(logged_minutes):
        scaled, unscaled = minutes(logged_minutes), minutes(system.olympic_minutes)
        remark = f" ({unscaled} unscaled)" if scaled != unscaled else ""
        difference = f"{scaled} minutes by the logs{remark}, {row.minutes} in the table"
    table_minutes = float(row.minutes) if row else None
    name = _name(system.submitter, system.name)
    return Held(name, logged_minutes, table_minutes, difference, system.refusal)


def print_differences(outcome: Against, console: Terminal) -> None:
    """Print a line for each difference, and a summary."""
    for row in outcome.results:
        if texts := [text for text in (row.difference, row.refusal) if text]:
            console.print(f"{row.name}: {'; '.join(texts)}")
    differences = counted(outcome.differences, "difference")
    console.print(f"{outcome.table}: {differences} in {counted(len(outcome.results), 'result')}")

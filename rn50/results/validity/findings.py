"""Findings on a result, one sentence each: place, message, broken rule and remedy."""

import itertools
import pathlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from rn50.terminal import Terminal

ERROR, WARNING = "error", "warning"
_MOST_OF_A_KIND = 5


@dataclass(frozen=True)
class Finding:
    """One fault."""

    severity: str
    """error where the rule is broken, warning where a reviewer will ask."""
    file: pathlib.Path
    """File or folder."""
    line: int | None
    """Line, from 1; null: something is missing, or the fault is not in a line of the file."""
    rule: str
    """The rule."""
    message: str
    """Fault."""
    remedy: str
    """The remedy."""

    @property
    def where_and_what(self) -> str:
        """File name, line and message, like "result_3.txt, line 12: seed 5 is that of result_0.txt too"."""
        return f"{self.file.name}{'' if self.line is None else f', line {self.line}'}: {self.message}"


def print_findings(findings: Iterable[Finding], console: Terminal) -> None:
    """Print a line for each finding: severity, file and line, message, the rule in brackets, remedy.

    Findings that differ only in their file are printed once. So are more than ``_MOST_OF_A_KIND`` that differ
    only in numbers.
    """
    kinds: dict[tuple[str, ...], dict[str, list[Finding]]] = {}
    for finding in findings:
        kind = (finding.severity, finding.rule, re.sub(r"\d+", "#", finding.message), finding.remedy)
        kinds.setdefault(kind, {}).setdefault(finding.message, []).append(finding)
    for (severity, rule, _, remedy), alike in kinds.items():
        many = len(alike) > _MOST_OF_A_KIND
        for first, *others in [list(itertools.chain(*alike.values()))] if many else alike.values():
            place = str(first.file) if first.line is None else f"{first.file}:{first.line}"
            more = f" and {len(others)} more{' with other numbers' if many else ''}" if others else ""
            style = "red" if severity == ERROR else "yellow"
            console.print(f"{severity}: {place}{more}: {first.message} [{rule}]; {remedy}", style=style)

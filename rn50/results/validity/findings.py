"""``Finding``, the record in which every rule reports a fault of a result, and how findings are printed."""

import itertools
import pathlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from rn50.terminal import Terminal

ERROR, WARNING = "error", "warning"
_MOST_OF_A_KIND = 5
"""Most lines printed for findings that differ only in numbers."""


@dataclass(frozen=True)
class Finding:
    """A fault of a result."""

    severity: str
    """error if the rule is broken, warning if a reviewer will ask."""
    file: pathlib.Path
    """File or folder with the fault."""
    line: int | None
    """Line of the file, from 1; null: something is missing, or the fault is not in one line."""
    rule: str
    """Rule that is broken, as a sentence that is true of a good result; or the name of the official checker
    that refuses the result, with the rulesets by which it does."""
    message: str
    """Fault, in words."""
    remedy: str
    """Advice on how to mend the fault."""

    @property
    def where_and_what(self) -> str:
        """File name, line and message, like "result_3.txt, line 12: seed 5 is that of result_0.txt too"."""
        return f"{self.file.name}{'' if self.line is None else f', line {self.line}'}: {self.message}"


def print_findings(findings: Iterable[Finding], console: Terminal) -> None:
    """Print a line for each finding: severity, file and line, message, the rule in brackets, remedy.

    Findings that differ only in their file or line share one printed line. If more than ``_MOST_OF_A_KIND``
    printed lines would differ only in numbers, their findings share one, too.
    """
    # (severity, rule, message without its numbers, remedy) -> message -> findings
    kinds: dict[tuple[str, ...], dict[str, list[Finding]]] = {}
    for finding in findings:
        kind = (finding.severity, finding.rule, re.sub(r"\d+", "#", finding.message), finding.remedy)
        kinds.setdefault(kind, {}).setdefault(finding.message, []).append(finding)
    for (severity, rule, _, remedy), by_message in kinds.items():
        groups = list(by_message.values())  # a printed line for each group
        more_what = "more"
        if len(groups) > _MOST_OF_A_KIND:
            groups, more_what = [list(itertools.chain(*groups))], "more with other numbers"
        for first, *others in groups:
            place = str(first.file) if first.line is None else f"{first.file}:{first.line}"
            more = f" and {len(others)} {more_what}" if others else ""
            style = "red" if severity == ERROR else "yellow"
            console.print(f"{severity}: {place}{more}: {first.message} [{rule}]; {remedy}", style=style)

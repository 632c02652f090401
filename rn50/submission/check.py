"""``rn50 check``: everything that is wrong with results, from the official checkers and from our own.

Of any file the compliance checker and the checks that are true of any run; of a system in a published tree or a package
(``<organisation>/results/<system>/resnet``) also what needs the whole: seeds, reference convergence, description, package.
"""

import pathlib
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from rich.console import Console

from rn50 import rules
from rn50.errors import UserError
from rn50.submission import compliance, explain, own_checks, package_checks, tree
from rn50.submission.findings import ERROR, Finding, print_findings, to_json
from rn50.submission.parse import ResultLog, find_result_files, read_log

DEFAULT_RULESETS = ("1.0.0", "1.1.0", "2.0.0", "4.0.0")
"""Each of them refuses something that the others let pass."""


@dataclass(frozen=True)
class Report:
    """The compliance checker's verdicts, and every finding; ``ok`` where no finding is an error."""

    verdicts: Tuple[compliance.Verdict, ...]
    findings: Tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return all(verdict.ok for verdict in self.verdicts) and not any(f.severity == ERROR for f in self.findings)


def check(
    paths: Sequence[pathlib.Path], rulesets: Sequence[str] = (), progress: Callable[[int, int], None] = lambda done, total: None
) -> Report:
    """Checks every result file that ``paths`` mean. Without ``rulesets`` those of the round that a folder of a published tree
    names, else ``DEFAULT_RULESETS``. ``progress(done, total)`` counts the official checkers.

    Raises:
        UserError: an unknown ruleset, or a path that does not exist or holds no result file.
    """
    tree.refuse_unknown(rulesets)
    folders: Dict[pathlib.Path, List[pathlib.Path]] = {}
    for file in find_result_files(paths):
        folders.setdefault(file.parent.resolve(), []).append(file)
    verdicts: List[compliance.Verdict] = []
    findings: List[Finding] = []
    todo: List[Tuple[Optional[tree.Place], List[ResultLog], Sequence[str]]] = []
    for folder, files in folders.items():
        place = tree.place(folder)
        chosen = rulesets or ((place.ruleset,) if place and place.ruleset else DEFAULT_RULESETS)
        todo.append((place, _read(files, findings), chosen))
    count = _Count(progress, sum(_checkers(*each) for each in todo))
    for place, logs, chosen in todo:
        of_folder = compliance.check([log.path for log in logs], chosen, count) if logs else []
        verdicts += of_folder
        for log in logs:
            findings += explain.explain([verdict for verdict in of_folder if verdict.file == log.path], log)
            findings += own_checks.check(log)
        findings += own_checks.check_seeds(logs)
        if place and logs:
            findings += package_checks.check_tree(place, logs, chosen, count)
    return Report(tuple(verdicts), tuple(findings))


class _Count:
    """Tells how many checkers have ended; called once for each."""

    def __init__(self, progress: Callable[[int, int], None], total: int):
        self._progress, self._done, self._total = progress, 0, total

    def __call__(self) -> None:
        self._done += 1
        self._progress(self._done, self._total)


def _checkers(place: Optional[tree.Place], logs: Sequence[ResultLog], rulesets: Sequence[str]) -> int:
    of_tree = package_checks.checkers(place) if place and logs else 0
    return len(set(rulesets)) * len(logs) + len(rulesets) * of_tree


def _read(files: Sequence[pathlib.Path], findings: List[Finding]) -> List[ResultLog]:
    """The logs of this benchmark; a file that is none becomes a finding."""
    logs = []
    for file in files:
        try:
            log = read_log(file)
        except UserError as error:
            message, remedy = str(error).split(": ", 1)[1].split("; ", 1)
            findings.append(Finding(ERROR, file, None, "a result file is the log of a run", message, remedy))
            continue
        if log.benchmark not in (None, rules.BENCHMARK):
            line = next(event.line for event in log.events if event.key == "submission_benchmark")
            message = f"a log of {log.benchmark}; only {rules.BENCHMARK} is checked here"
            findings.append(Finding(ERROR, file, line, "the benchmark is ResNet", message, "leave this file out"))
            continue
        logs.append(log)
    return logs


def to_json_report(report: Report) -> Dict[str, Any]:
    """The report as JSON values."""
    return {"ok": report.ok, "findings": to_json(report.findings), "verdicts": compliance.to_json(report.verdicts)["verdicts"]}


def print_report(report: Report, console: Console) -> None:
    """Prints the compliance verdicts as a table a folder, then every finding, then the verdict on the whole."""
    compliance.print_table(report.verdicts, console)
    print_findings(report.findings, console)
    errors = sum(finding.severity == ERROR for finding in report.findings)
    warnings = len(report.findings) - errors
    counts = f"{errors} {'error' if errors == 1 else 'errors'}, {warnings} {'warning' if warnings == 1 else 'warnings'}"
    console.print("everything holds" if report.ok else "not everything holds", f"({counts})", highlight=False, style="bold")

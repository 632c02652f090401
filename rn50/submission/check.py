"""``rn50 check``: report everything wrong with results, by the official checkers and our own rules.

The files of a folder are the runs of a result; the compliance checker and the rules of a result are applied
to them. A system in a published tree or a package (``<organisation>/results/<system>/resnet``) also goes
through the checkers of a whole submission: seeds, reference convergence, description, package.
"""

import itertools
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

from rn50.benchmark import rules
from rn50.errors import UserError, excerpt
from rn50.gathered import gathered
from rn50.printed import prints
from rn50.progress import Progress, silent
from rn50.results import chips, power, published, run, sidecar, tree
from rn50.results.result_files import find_result_files
from rn50.results.run import Run
from rn50.results.validity import checkers, compliance, explain, log_rules, result_rules
from rn50.results.validity.findings import ERROR, WARNING, Finding, print_findings
from rn50.submission import package_checks
from rn50.terminal import Terminal, counted

DEFAULT_RULESETS = ("1.0.0", "1.1.0", "2.0.0", "4.0.0")
"""Rulesets that each refuse something the others accept."""


@dataclass(frozen=True)
class CheckReport:
    """Verdicts of the compliance checker, and every finding."""

    verdicts: tuple[compliance.CheckerVerdict, ...]
    findings: tuple[Finding, ...]
    excused: tuple[pathlib.Path, ...] = ()
    """Runs that may miss the benchmark's target, which the checker fails: one of five, and those that have a
    target of their own."""
    labels: tuple[str, ...] = ()
    """Labels of what is not the benchmark."""

    @property
    def ok(self) -> bool:
        """True if there is no error."""
        passed = all(verdict.ok or verdict.file in self.excused for verdict in self.verdicts)
        return passed and not any(finding.severity == ERROR for finding in self.findings)

    @property
    def has_another_target(self) -> bool:
        """True if the checker fails runs only because they have a target of their own."""
        failed = any(not verdict.ok and verdict.file in self.excused for verdict in self.verdicts)
        return failed and any(rules.OTHER_TARGET in label for label in self.labels)


prints(CheckReport, lambda r: (r.ok, r.labels, r.findings, r.verdicts))


@checkers.started()
def check(
    paths: Sequence[pathlib.Path], rulesets: Sequence[str] = (), progress: Progress = silent
) -> CheckReport:
    """Check every result file below ``paths``. Without ``rulesets``, use the round that a folder of a
    published tree names, else ``DEFAULT_RULESETS``. ``progress(done, total)`` counts the official checkers.

    Raises:
        UserError: an unknown ruleset, or a path that does not exist or holds no result file.
    """
    tree.refuse_unknown(rulesets)
    folders = gathered((file.parent.resolve(), file) for file in find_result_files(paths))
    verdicts: list[compliance.CheckerVerdict] = []
    findings: list[Finding] = []
    judgements, excused = [], list[pathlib.Path]()
    todo: list[tuple[tree.Place | None, list[Run], Sequence[str]]] = []
    total = 0
    for folder, files in folders.items():
        place = tree.place(folder)
        chosen = rulesets or ((place.ruleset,) if place and place.ruleset else DEFAULT_RULESETS)
        if runs := _read(files, findings):
            todo.append((place, runs, chosen))
            total += len(set(chosen)) * len(runs) + len(package_checks.official_checks(place, chosen))
    numbers = itertools.count(1)

    def count() -> None:
        progress(next(numbers), total)

    for place, runs, chosen in todo:
        judged = result_rules.judge(runs, chosen, tree.accelerators(runs[0].file.parent))
        logs = [timed_run.log for timed_run in runs]
        of_folder = compliance.check([log.path for log in logs], chosen, count)
        verdicts += of_folder
        by_file = gathered((verdict.file, verdict) for verdict in of_folder)
        explained = (explain.explain(by_file.get(log.path, ()), log) for log in logs)
        findings += _said_once(judged.findings, [*itertools.chain(*explained)])
        findings += power.judge(logs)[1]
        findings += _incomplete(runs, paths)
        findings += _not_published(place, runs[0])
        judgements.append(judged)
        excused += [run.file for run in runs if run.converged and rules.OTHER_TARGET in run.logged_labels]
        if place:
            findings += package_checks.check_tree(place, logs, chosen, judged.label, count)
    excused += [judged.excused for judged in judgements if judged.excused]
    labels = tuple(dict.fromkeys(judged.label for judged in judgements if judged.label))
    return CheckReport(tuple(verdicts), tuple(findings), tuple(excused), labels)


def _said_once(own_findings: Sequence[Finding], official: Sequence[Finding]) -> list[Finding]:
    """Return all findings by file, without duplicates between our rules and the compliance checker. On a
    record, keep the checker's, because it shows the test; elsewhere ours, because it knows whether the run is
    excused."""
    ours = {(finding.file, finding.message) for finding in own_findings}
    errors = (finding for finding in official if finding.severity == ERROR and finding.line)
    theirs = {(finding.file, finding.line) for finding in errors}
    common = (log_rules.REQUIRED, log_rules.VALUES)
    kept = [
        fault for fault in own_findings if fault.rule not in common or (fault.file, fault.line) not in theirs
    ]
    kept += [finding for finding in official if (finding.file, finding.message) not in ours]
    return sorted(kept, key=lambda finding: (finding.file, finding.line or 0))


def _incomplete(runs: Sequence[Run], paths: Sequence[pathlib.Path]) -> list[Finding]:
    """Return a warning where a folder holds too few runs for a result; none for files, because they are
    checked one by one."""
    if len(runs) >= rules.RUNS or runs[0].log.path in paths:
        return []
    message = f"{counted(len(runs), 'run')} of {rules.RUNS}: no score yet"
    rule = f"a result is of {rules.RUNS} runs"
    return [Finding(WARNING, runs[0].log.path.parent, None, rule, message, "make the others")]


def _not_published(place: tree.Place | None, first: Run) -> list[Finding]:
    """Return a warning for each accelerator with which nobody published a result, with the name nearest to
    its own; none for a run without accelerators."""
    described = tree.described(first.file.parent)
    fields = described or first.saved.get("system", {})
    text = str(fields.get("accelerator_model_name") or "")
    ran_without = sidecar.section(first.saved, "run").get("device") == "cpu"
    if ran_without or text.upper() in ("", "N/A") or (tree.counts(fields) or (1, 1))[1] == 0:
        return []
    file = place.description if place and described else first.file
    rule = "an accelerator has the name under which others published it"
    names = chips.known(published.results())
    findings = []
    for model in text.split(" + "):
        near = chips.nearest(model, names)
        if chips.among(names, model) is None:
            remedy = f"write {near} if it is that" if near else "correct its name"
            message = f"accelerator {excerpt(model)}: {chips.NOBODY}"
            findings.append(Finding(WARNING, file, None, rule, message, f"{remedy}; nothing if it is new"))
    return findings


def _read(files: Sequence[pathlib.Path], findings: list[Finding]) -> list[Run]:
    """Return the runs of this benchmark; add a finding for each other file."""
    runs = []
    for file in files:
        try:
            timed_run = run.read_run(file)
        except UserError as error:
            rule = "a result file is the log of a run"
            findings.append(Finding(ERROR, file, None, rule, error.problem, error.remedy))
            continue
        if timed_run.log.benchmark in (None, rules.BENCHMARK):
            runs.append(timed_run)
            continue
        line = timed_run.log.by_key["submission_benchmark"][0].line
        message = f"a log of {timed_run.log.benchmark}; only {rules.BENCHMARK} is checked here"
        findings.append(Finding(ERROR, file, line, "the benchmark is ResNet", message, "leave this file out"))
    return runs


def summary(report: CheckReport) -> str:
    """Return the verdict on the whole, the numbers of findings, and the labels."""
    errors = sum(finding.severity == ERROR for finding in report.findings)
    warnings = len(report.findings) - errors
    counts = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    holds = "no errors, but read the warnings" if warnings else "everything holds"
    verdict = f"{holds if report.ok else 'not everything holds'} ({counts})"
    return verdict + "".join(f" [{label}]" for label in report.labels)


def print_report(report: CheckReport, console: Terminal) -> None:
    """Print the compliance verdicts as one table per folder, then every finding, then the verdict on the
    whole."""
    compliance.print_table(report.verdicts, console)
    print_findings(report.findings, console)
    console.print(summary(report), style="bold")
    if report.ok and report.excused:
        why = "the runs have a target of their own" if report.has_another_target else rules.ONE_MAY_MISS
        console.print(f"FAILED above: {why}")

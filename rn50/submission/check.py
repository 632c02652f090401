"""``rn50 check``: report everything wrong with results, by the official checkers and our own rules
(``check``).

The files of a folder are the runs of a result. The compliance checker and the rules of a result are applied
to them. A result in a published tree or a package (``<organisation>/results/<system>/resnet``) is also
checked by the official checkers of a whole submission: seeds, reference convergence, description, package.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
"""Rulesets of which each refuses something that the others accept."""


@dataclass(frozen=True)
class CheckReport:
    """Verdicts of the compliance checker, and all findings."""

    verdicts: tuple[compliance.CheckerVerdict, ...]
    findings: tuple[Finding, ...]
    excused: tuple[Path, ...] = ()
    """Logs of runs that may miss the benchmark's target, although the checker then refuses them: one of five
    runs, and runs with a target of their own."""
    labels: tuple[str, ...] = ()
    """Labels of the runs that are not of the benchmark."""

    @property
    def ok(self) -> bool:
        """True if there is no error."""
        passed = all(verdict.ok or verdict.file in self.excused for verdict in self.verdicts)
        return passed and not any(finding.severity == ERROR for finding in self.findings)

    @property
    def has_another_target(self) -> bool:
        """True if the checker refuses excused runs and some runs have a target of their own."""
        failed = any(not verdict.ok and verdict.file in self.excused for verdict in self.verdicts)
        return failed and any(rules.OTHER_TARGET in label for label in self.labels)


# What ``--json`` prints of it.
prints(CheckReport, lambda r: (r.ok, r.labels, r.findings, r.verdicts))


@checkers.started()  # starts the process of the official checkers for the time of a call
def check(paths: Sequence[Path], rulesets: Sequence[str] = (), progress: Progress = silent) -> CheckReport:
    """Check every result file below ``paths``. Without ``rulesets``, check by the ruleset of the round that a
    folder of a published tree names, else by ``DEFAULT_RULESETS``. ``progress(done, total)`` counts the calls
    of official checkers.

    Raises:
        UserError: an unknown ruleset, or a path that does not exist or holds no result file.
    """
    tree.refuse_unknown(rulesets)
    folders = gathered((file.parent.resolve(), file) for file in find_result_files(paths))
    verdicts: list[compliance.CheckerVerdict] = []
    findings: list[Finding] = []
    judgements = []
    excused: list[Path] = []
    # Place in a published tree (None: in none), runs and rulesets of each folder.
    todo: list[tuple[tree.Place | None, list[Run], Sequence[str]]] = []
    total = 0  # calls of official checkers
    # Read all runs first, because the first call of ``progress`` needs the total.
    for folder, files in folders.items():
        place = tree.place(folder)
        folder_rulesets = rulesets or ((place.ruleset,) if place and place.ruleset else DEFAULT_RULESETS)
        if runs := _read(files, findings):
            todo.append((place, runs, folder_rulesets))
            # The compliance checker is called for each run and ruleset, the other checkers for each folder.
            total += len(set(folder_rulesets)) * len(runs)
            total += len(package_checks.official_checks(place, folder_rulesets))
    numbers = itertools.count(1)

    def count() -> None:
        progress(next(numbers), total)

    for place, runs, folder_rulesets in todo:
        judged = result_rules.judge(runs, folder_rulesets, tree.accelerators(runs[0].file.parent))
        logs = [timed_run.log for timed_run in runs]
        folder_verdicts = compliance.check([log.path for log in logs], folder_rulesets, count)
        verdicts += folder_verdicts
        by_file = gathered((verdict.file, verdict) for verdict in folder_verdicts)
        # Findings that say, log by log, what the verdicts of the compliance checker mean.
        explained = (explain.explain(by_file.get(log.path, ()), log) for log in logs)
        findings += _without_duplicates(judged.findings, [*itertools.chain(*explained)])
        _, power_findings = power.judge(logs)
        findings += [*power_findings, *_incomplete(runs, paths), *_unknown_accelerators(place, runs[0])]
        judgements.append(judged)
        # The compliance checker refuses these runs, which reached a target of their own.
        excused += [run.file for run in runs if run.converged and rules.OTHER_TARGET in run.logged_labels]
        if place:
            findings += package_checks.check_tree(place, logs, folder_rulesets, judged.label, count)
    excused += [judged.excused for judged in judgements if judged.excused]
    labels = tuple(dict.fromkeys(judged.label for judged in judgements if judged.label))
    return CheckReport(tuple(verdicts), tuple(findings), tuple(excused), labels)


def _without_duplicates(ours: Sequence[Finding], official: Sequence[Finding]) -> list[Finding]:
    """Return the findings of our rules and of the compliance checker, sorted by file and line, without
    duplicates. Of two findings on the same record, keep the checker's, because it shows the test that failed.
    Of two findings with the same message, keep ours, because our rules know whether the run is excused."""
    messages = {(finding.file, finding.message) for finding in ours}
    errors = (finding for finding in official if finding.severity == ERROR and finding.line)
    lines = {(finding.file, finding.line) for finding in errors}
    # Rules of ours that the compliance checker tests too.
    common = (log_rules.REQUIRED, log_rules.VALUES)
    kept = [fault for fault in ours if fault.rule not in common or (fault.file, fault.line) not in lines]
    kept += [finding for finding in official if (finding.file, finding.message) not in messages]
    return sorted(kept, key=lambda finding: (finding.file, finding.line or 0))


def _incomplete(runs: Sequence[Run], paths: Sequence[Path]) -> list[Finding]:
    """Return a warning if a folder holds too few runs for a result. Return none if the first run's file is
    one of ``paths``, because files may be checked one by one."""
    if len(runs) >= rules.RUNS or runs[0].log.path in paths:
        return []
    message = f"{counted(len(runs), 'run')} of {rules.RUNS}: no score yet"
    rule = f"a result is of {rules.RUNS} runs"
    return [Finding(WARNING, runs[0].log.path.parent, None, rule, message, "make the others")]


def _unknown_accelerators(place: tree.Place | None, first: Run) -> list[Finding]:
    """Return a warning for each accelerator with which nobody published a result, because its name may be
    misspelled; its remedy has the nearest name. Return none for a run without accelerators."""
    described = tree.described(first.file.parent)
    fields = described or first.saved.get("system", {})
    # The field has one name, or several joined by " + ".
    text = str(fields.get("accelerator_model_name") or "")
    on_cpu = sidecar.section(first.saved, "run").get("device") == "cpu"
    # (nodes, accelerators per node); without a number in the description, assume that there are some.
    _, accelerators_per_node = tree.counts(fields) or (1, 1)
    if on_cpu or text.upper() in ("", "N/A") or accelerators_per_node == 0:
        return []
    file = place.description if place and described else first.file
    rule = "an accelerator has the name under which others published it"
    names = chips.known(published.results())
    findings = []
    for model in text.split(" + "):
        nearest = chips.nearest(model, names)
        if chips.among(names, model) is None:
            remedy = f"write {nearest} if it is that" if nearest else "correct its name"
            message = f"accelerator {excerpt(model)}: {chips.NOBODY}"
            findings.append(Finding(WARNING, file, None, rule, message, f"{remedy}; nothing if it is new"))
    return findings


def _read(files: Sequence[Path], findings: list[Finding]) -> list[Run]:
    """Return the runs of this benchmark among ``files``; add a finding to ``findings`` for each other
    file."""
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
    """Return a line with the verdict on the whole, the numbers of errors and warnings, and the labels."""
    errors = sum(finding.severity == ERROR for finding in report.findings)
    warnings = len(report.findings) - errors
    counts = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    holds = "no errors, but read the warnings" if warnings else "everything holds"
    verdict = f"{holds if report.ok else 'not everything holds'} ({counts})"
    return verdict + "".join(f" [{label}]" for label in report.labels)


def print_report(report: CheckReport, console: Terminal) -> None:
    """Print the verdicts of the compliance checker as one table per folder, then every finding, then the
    verdict on the whole."""
    compliance.print_table(report.verdicts, console)
    print_findings(report.findings, console)
    console.print(summary(report), style="bold")
    if report.ok and report.excused:
        why = "the runs have a target of their own" if report.has_another_target else rules.ONE_MAY_MISS
        console.print(f"FAILED above: {why}")

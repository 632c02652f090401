"""Audit sets of runs: every test of each set, what it can and cannot show, and a verdict in words.

Nothing here accuses anybody: a set that stands out may have a reason that logs do not tell.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rn50 import files
from rn50.audit import clock, convergence, curves, launches
from rn50.audit.run_set import Evidence, RunSet
from rn50.benchmark import rules
from rn50.errors import UserError, excerpt
from rn50.gathered import gathered
from rn50.progress import Progress, silent
from rn50.results import published, run, significance
from rn50.results.result_files import find_result_files
from rn50.results.validity import log_rules, result_rules
from rn50.terminal import Terminal, counted, table

NOTHING, NO_RUN = "nothing stands out", "nothing to test"
FEW = 3
"""Runs from which on most tests apply."""


@dataclass(frozen=True)
class Test:
    """A test."""

    name: str
    """Name of the test."""
    shows: str
    """Facts that it can show."""
    cannot_show: str
    """Facts that it cannot."""
    false_alarms: str
    """Published sets of rounds v0.7 to v3.1 in which it stands out."""
    statistic: str
    """Meaning of its statistic."""


TESTS = tuple(Test(*row) for row in files.table_beside(__file__, "tests.csv"))
ORDER = [test.name for test in TESTS]
LONGEST = 300
"""Characters of a difference between runs that are shown."""


@dataclass(frozen=True)
class Audit:
    """Findings on a set of runs."""

    name: str
    """Round, organisation and system, or the folder."""
    folder: pathlib.Path
    """Folder of the runs."""
    runs: int
    """Runs that took time from start to stop."""
    verdict: str
    """Verdict: nothing stands out, what to look at, or nothing to test."""
    notes: tuple[str, ...]
    """Facts beside the tests: other submissions of the same logs, runs without times, labels."""
    evidence: tuple[Evidence, ...]
    """Findings of the tests that apply."""

    @property
    def stands_out(self) -> list[Evidence]:
        """The evidence that a reviewer should look at."""
        return [evidence for evidence in self.evidence if evidence.stands_out]


@dataclass(frozen=True)
class Report:
    """Audits of all sets."""

    audits: tuple[Audit, ...]
    tests: tuple[Test, ...] = TESTS
    """All tests, with what each can show."""

    @property
    def stands_out(self) -> bool:
        """True if anything does."""
        return any(audit.stands_out for audit in self.audits)


_Files = Sequence[pathlib.Path]
_Unread = list[UserError] | None
_Alone = tuple[Audit, range, frozenset[int | None], list[str]]
"""Audit of a set without others, the rows of its curves, when its runs began, and published results of
these runs."""


def audit(paths: _Files, progress: Progress = silent, unread: _Unread = None) -> Report:
    """Audit every set of runs below ``paths``, one after the other: of each its findings are kept, and what
    others are compared with. ``progress(done, total)`` counts sets, and ``unread``, where given, takes the
    errors of files, whose sets are left out.

    Raises:
        UserError: as ``run.read_folders``, or no run has a time.
    """
    folders = gathered((file.parent.resolve(), file) for file in find_result_files(paths))
    alone: list[_Alone] = []
    every = curves.Curves()
    progress(0, len(folders))
    for done, files_of_set in enumerate(folders.values(), 1):
        alone += _each(files_of_set, unread, every)
        progress(done, len(folders))
    if alone and not any(begun for _, _, begun, _ in alone):
        what = "no run took time from run_start to run_stop"
        raise UserError(alone[0][0].folder, what, "give finished runs")
    names = gathered((begun, audit.name) for audit, _, begun, _ in alone)
    audits = [
        _beside_others(audit, every.alike(rows), [*names[begun], *again]) if begun else audit
        for audit, rows, begun, again in alone
    ]
    return Report(tuple(_adjusted(audits)))


def _each(files_of_set: _Files, unread: _Unread, every: curves.Curves) -> Iterator[_Alone]:
    """Yield what is found of a set without others, unless a file cannot be read; its logs are then let go."""
    for folder, read in run.read_folders(files_of_set, unread=unread).items():
        runs = RunSet.of(folder, read)
        again = [row.name for row in published.results() if runs.are_of(row)]
        yield _alone(runs), every.add(runs), frozenset(log.run_start_ms for log in runs.logs), again


def _alone(runs: RunSet) -> Audit:
    notes = []
    if names := [run.file.name for run in runs.unfinished]:
        more = f" and {len(names) - rules.RUNS} more" if len(names) > rules.RUNS else ""
        notes.append(f"no time from start to stop: {', '.join(names[: rules.RUNS])}{more}")
    if rest := launches.not_here(runs):
        notes.append(f"the script's own count: {rest} are not here")
    if 0 < len(runs.logs) < FEW:
        notes.append(f"most tests take {FEW} to {rules.RUNS} runs")
    if runs.label:
        notes.append(runs.label)
    every = sorted((*runs.runs, *runs.unfinished), key=lambda run: run.file)
    if refusal := result_rules.judge_in(runs.folder, every).refusal:
        notes.append(refusal)
    tests = (_setup, *launches.TESTS, *curves.TESTS, *convergence.TESTS, *clock.TESTS) if runs.runs else ()
    evidence = tuple(row for test in tests if (row := test(runs)))
    return Audit(runs.name, runs.folder, len(runs.logs), NO_RUN, tuple(notes), evidence)


def _beside_others(audit: Audit, alike: Evidence, same: Sequence[str]) -> Audit:
    """Return an audit with what its runs have in common with others; ``same`` names sets of the same logs."""
    again = ", ".join(name for name in dict.fromkeys(same) if name != audit.name)
    evidence = {row.test: row for row in (alike, *audit.evidence)}  # a copy in the set comes first
    in_order = tuple(sorted(evidence.values(), key=lambda row: ORDER.index(row.test)))
    names = [row.test for row in in_order if row.stands_out]
    verdict = f"look at: {', '.join(names)}" if names else NOTHING
    notes = (f"the same logs: {again}", *audit.notes) if again else audit.notes
    return dataclasses.replace(audit, verdict=verdict, notes=notes, evidence=in_order)


def _setup(runs: RunSet) -> Evidence | None:
    """Look for runs that differ in what those of one result have in common, as the rules of a result do."""
    if len(runs.logs) < 2:
        return None
    mixed = [excerpt(finding.message, LONGEST) for finding in result_rules.configuration(runs.runs)]
    odd = [(run, finding.message) for run in runs.runs for finding in log_rules.accuracies(run)]
    if len(odd) < len(runs.runs):
        mixed += [f"{log.file.name}: {excerpt(text, LONGEST)}; others are" for log, text in odd]
    text = "; ".join(mixed) or "one configuration"
    if len(odd) == len(runs.runs):
        text += f"; every log has accuracies that are no multiples of 1/{rules.EVAL_SAMPLES:,}"
    return Evidence("setup", bool(mixed), text, len(mixed))


def _adjusted(audits: Sequence[Audit]) -> Iterator[Audit]:
    """Yield the audits with the p-values of all adjusted for their number."""
    values = [evidence.p for audit in audits for evidence in audit.evidence if evidence.p is not None]
    adjusted = iter(significance.adjusted(values) if values else [])
    for audit in audits:
        rows = audit.evidence
        evidence = (row if row.p is None else dataclasses.replace(row, q=next(adjusted)) for row in rows)
        yield dataclasses.replace(audit, evidence=tuple(evidence))


def print_report(report: Report, console: Terminal, left_out: int = 0) -> None:
    """Print every test of a single set; of several sets their verdicts, what stands out, and how many logs
    left a set out."""
    single = len(report.audits) == 1 and not left_out
    for audit in report.audits:
        console.print(f"{audit.name}: {counted(audit.runs, 'run')}, {audit.verdict}")
        for note in audit.notes:
            console.print(f"  {note}")
        for evidence in () if single else audit.stands_out:
            p = f" (p {_figure(evidence.p)}, q {_figure(evidence.q)})" if evidence.p is not None else ""
            console.print(f"  {evidence.test}: {evidence.found}{p}")
    if single:
        rows = table(("test", "found", "p", "q"), ("test", "found"))
        rows.columns[1].overflow = "fold"  # a long name of a file stays whole
        for evidence in report.audits[0].evidence:
            mark = "! " if evidence.stands_out else ""
            rows.add_row(evidence.test, mark + evidence.found, _figure(evidence.p), _figure(evidence.q))
        console.print(rows)
        standing = {evidence.test for evidence in report.audits[0].stands_out}
        for test in report.tests:
            if test.name in standing:
                console.print(f"{test.name} can show {test.shows}; not {test.cannot_show}.")
                console.print(f"  It stands out in published sets: {test.false_alarms}.")
    else:
        count = sum(bool(audit.stands_out) for audit in report.audits)
        rest = f"; {counted(left_out, 'unreadable log')}, sets with one left out" if left_out else ""
        console.print(f"{count} of {counted(len(report.audits), 'set')} to look at{rest}")
    console.print("What each test can and cannot show: docs/reviewing.md. What stands out is no accusation.")


def _figure(value: float | None) -> str:
    return "" if value is None else "<0.0001" if value < 1e-4 else f"{value:.2g}"

"""``rn50 audit``: look for runs that were selected, copied or edited (``audit``).

The runs in one folder are a set, and get one verdict. ``launches``, ``curves``, ``convergence`` and ``clock``
have the tests. A test is a function from a ``RunSet`` to its ``Evidence``, which also says why a test is not
possible. ``tests.csv`` says what a test can and cannot show. Nothing here accuses anybody: a set that stands
out may have a reason that logs do not tell.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rn50 import files
from rn50.audit import clock, convergence, curves, launches
from rn50.audit.run_set import Evidence, RunSet, not_tested
from rn50.benchmark import rules
from rn50.errors import UserError, excerpt
from rn50.gathered import gathered
from rn50.progress import Progress, counting, silent
from rn50.results import published, run, significance
from rn50.results.result_files import find_result_files
from rn50.results.validity import log_rules, result_rules
from rn50.results.validity.findings import WARNING, Finding
from rn50.results.validity.result_rules import NOT_VALID
from rn50.terminal import Terminal, counted, table

NOTHING, NO_RUN = "nothing stands out", "nothing to test"
"""Verdicts on a set in which no test stands out, and on a set without a timed run."""


@dataclass(frozen=True)
class Test:
    """Description of a test: a row of ``tests.csv``."""

    name: str
    """Name of the test."""
    shows: str
    """Facts that the test can show."""
    cannot_show: str
    """Facts that the test cannot show."""
    false_alarms: str
    """Number of published sets of rounds v0.7 to v3.1 in which the test stands out."""
    statistic: str
    """Meaning of the statistic of the test."""


TESTS = tuple(Test(*row) for row in files.table_beside(__file__, "tests.csv"))
ORDER = [test.name for test in TESTS]
"""Names of the tests in the order in which evidence is printed."""
LONGEST = 300
"""Most characters shown of a difference between runs."""


@dataclass(frozen=True)
class Audit:
    """Findings on a set of runs."""

    name: str
    """Round, organisation and system in a published tree; elsewhere the folder."""
    folder: pathlib.Path
    """Folder of the runs."""
    runs: int
    """Number of runs with a run_start and a later run_stop."""
    verdict: str
    """Verdict: nothing stands out in so many of the tests, what to look at, or nothing to test."""
    notes: tuple[str, ...]
    """Facts other than the evidence of tests: other submissions of the same logs, runs without times, labels,
    broken rules."""
    evidence: tuple[Evidence, ...]
    """Evidence of all tests; empty if there is nothing to test."""
    look_at: tuple[str, ...] = ()
    """Names of the tests in which the set stands out."""

    @property
    def stands_out(self) -> list[Evidence]:
        """The evidence that a reviewer should look at."""
        return [evidence for evidence in self.evidence if evidence.stands_out]

    @property
    def lines(self) -> list[str]:
        """The verdict, and a line for each evidence that stands out."""
        return [self.verdict, *(f"{evidence.test}: {evidence.found}" for evidence in self.stands_out)]

    @property
    def not_possible(self) -> dict[str, list[str]]:
        """Reason -> names of the tests that could not be made for this reason."""
        return gathered((row.found, row.test) for row in self.evidence if not row.possible)


@dataclass(frozen=True)
class Report:
    """Audits of all sets."""

    audits: tuple[Audit, ...]
    tests: tuple[Test, ...] = TESTS
    """Descriptions of all tests."""

    @property
    def stands_out(self) -> bool:
        """True if a test stands out in a set."""
        return any(audit.stands_out for audit in self.audits)


_Files = Sequence[pathlib.Path]
_Unread = list[UserError] | None
"""List to which the errors of unreadable files are appended; None: raise them."""
_SetAlone = tuple[Audit, range, list[str]]
"""(audit, rows, published_as): audit of a set without comparison to other sets, the rows of its runs in
``curves.Curves``, and the names of the published results that its runs are."""


def audit(paths: _Files, progress: Progress = silent, unread: _Unread = None) -> Report:
    """Audit every set of runs below ``paths``, and compare the sets with each other.

    The logs of a set are dropped before those of the next are read, so that memory grows only with findings
    and curves. ``progress(done, total)`` counts sets. If ``unread`` is a list, the errors of files that
    cannot be read are appended to it, and their sets are left out.

    Raises:
        UserError: as ``run.read_folders``, or no run has a time.
    """
    folders = gathered((file.parent.resolve(), file) for file in find_result_files(paths))
    sets: list[_SetAlone] = []
    all_curves = curves.Curves()
    progress(0, len(folders))
    for done, files_of_set in enumerate(folders.values(), 1):
        sets += _audit_alone(files_of_set, unread, all_curves)
        progress(done, len(folders))
    if sets and not any(rows for _, rows, _ in sets):
        what = "no run took time from run_start to run_stop"
        raise UserError(sets[0][0].folder, what, "give finished runs")
    # Sets whose runs have the same times, seeds and accuracies are submissions of the same logs.
    contents = all_curves.contents
    names = gathered((contents(rows), audit.name) for audit, rows, _ in sets)
    # A set without rows has no timed run: it keeps the verdict NO_RUN.
    audits = [
        _with_others(audit, all_curves.alike(rows), [*names[contents(rows)], *also_as]) if rows else audit
        for audit, rows, also_as in sets
    ]
    return Report(tuple(_adjusted(audits)))


def of_folders(paths: _Files) -> dict[pathlib.Path, Audit]:
    """Return folder -> audit of the sets below ``paths``, for verbs that carry what an audit finds. Sets with
    unreadable logs and paths without a timed run are left out: these verbs say themselves what they need.
    With many files the progress is shown."""
    with contextlib.suppress(UserError):
        takes_long = len(find_result_files(paths)) >= run.MANY_FILES
        with counting("auditing", takes_long) as progress:
            return {result.folder: result for result in audit(paths, progress, unread=[]).audits}
    return {}


def warnings(audits: Iterable[Audit], findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield a warning for each evidence that stands out, unless ``findings``, those of ``rn50 check``, have
    it. They have all that the test "setup" finds."""
    rule, remedy = "audit", "rn50 audit says what it can show; it accuses nobody"
    messages = {finding.message for finding in findings}
    for result in audits:
        for evidence in result.stands_out:
            # "result_3.txt: 9 of its 9 accuracies are ..." begins with the file of the finding.
            if evidence.test != "setup" and evidence.found.split(": ", 1)[-1] not in messages:
                message = f"{evidence.test}: {evidence.found}"
                yield Finding(WARNING, files.relative(result.folder), None, rule, message, remedy)


def _audit_alone(files_of_set: _Files, unread: _Unread, all_curves: curves.Curves) -> Iterator[_SetAlone]:
    """Yield the audit of one set without comparison to other sets, and add its curves to ``all_curves``.
    Yield nothing if a file cannot be read and ``unread`` takes its error."""
    for folder, folder_runs in run.read_folders(files_of_set, unread=unread).items():
        runs = RunSet.in_folder(folder, folder_runs)
        same = (row for row in published.results() if runs.are_of(row) and runs.reached_as(row))
        yield _tested(runs), all_curves.add(runs), [row.name for row in same]


def _tested(runs: RunSet) -> Audit:
    """Return the audit of a set with the evidence of all tests that need no other set. Its verdict is still
    NO_RUN."""
    notes = []
    if names := [run.file.name for run in runs.unfinished]:
        more = f" and {len(names) - rules.RUNS} more" if len(names) > rules.RUNS else ""
        notes.append(f"no time from start to stop: {', '.join(names[: rules.RUNS])}{more}")
    # A log may count the runs of its script, as "trial 2 of 5"; for some of the last trials there is no log.
    if missing := launches.not_here(runs):
        notes.append(f"the script's own count: {missing} are not here")
    if runs.label:
        notes.append(runs.label)
    all_runs = sorted((*runs.runs, *runs.unfinished), key=lambda run: run.file)
    if refusal := result_rules.judge_in(runs.folder, all_runs).refusal:
        notes.append(refusal)
    tests = (_setup, *launches.TESTS, *curves.TESTS, *convergence.TESTS, *clock.TESTS) if runs.runs else ()
    evidence = tuple(filter(None, (test(runs) for test in tests)))
    return Audit(runs.name, runs.folder, len(runs.logs), NO_RUN, tuple(notes), evidence)


def _with_others(audit: Audit, alike: Evidence, same: Sequence[str]) -> Audit:
    """Return an audit with its verdict. ``alike`` is the evidence on copies of its runs in other sets,
    ``same`` are the names of the sets and published results with the same logs, perhaps its own too."""
    again = ", ".join(name for name in dict.fromkeys(same) if name != audit.name)
    # Evidence on a copy within the set comes from a test of the same name, and replaces ``alike``.
    evidence = {row.test: row for row in (alike, *audit.evidence)}
    in_order = tuple(sorted(evidence.values(), key=lambda row: ORDER.index(row.test)))
    names = tuple(row.test for row in in_order if row.stands_out)
    made = f"in {sum(row.possible for row in in_order)} of {len(TESTS)} tests"
    verdict = f"look at: {', '.join(names)}" if names else f"{NOTHING} {made}"
    notes = (f"the same logs: {again}", *audit.notes) if again else audit.notes
    return dataclasses.replace(audit, verdict=verdict, notes=notes, evidence=in_order, look_at=names)


def _setup(runs: RunSet) -> Evidence:
    """Test "setup": look for different settings of the runs, and for impossible accuracies in some runs but
    not in all. Not possible for fewer than two runs."""
    if len(runs.logs) < 2:
        return not_tested("setup", "a single run")
    mixed = [excerpt(finding.message, LONGEST) for finding in result_rules.configuration(runs.runs)]
    impossible = [(run, finding.message) for run in runs.runs for finding in log_rules.accuracies(run)]
    # If every run has impossible accuracies, they are no difference between the runs.
    if len(impossible) < len(runs.runs):
        mixed += [f"{run.file.name}: {excerpt(text, LONGEST)}; others are" for run, text in impossible]
    text = "; ".join(mixed) or "one configuration"
    if len(impossible) == len(runs.runs):
        text += f"; every log has accuracies that are no multiples of 1/{rules.EVAL_SAMPLES:,}"
    return Evidence("setup", bool(mixed), text, len(mixed))


def _adjusted(audits: Sequence[Audit]) -> Iterator[Audit]:
    """Yield the audits with the field q of each evidence: its p-value, adjusted for the number of tests in
    all audits."""
    values = [evidence.p for audit in audits for evidence in audit.evidence if evidence.p is not None]
    adjusted = iter(significance.adjusted(values) if values else [])
    for audit in audits:
        rows = audit.evidence
        evidence = (row if row.p is None else dataclasses.replace(row, q=next(adjusted)) for row in rows)
        yield dataclasses.replace(audit, evidence=tuple(evidence))


def print_report(report: Report, console: Terminal, left_out: int = 0) -> None:
    """Print the report. For a single set print the evidence of every test; for several sets print their
    verdicts and the evidence that stands out. ``left_out`` is the number of unreadable logs, whose sets are
    left out."""
    single = len(report.audits) == 1 and not left_out
    for audit in report.audits:
        refused = f"; {NOT_VALID}" * any(note.startswith(NOT_VALID) for note in audit.notes)
        console.print(f"{audit.name}: {counted(audit.runs, 'run')}, {audit.verdict}{refused}")
        for note in audit.notes:
            console.print(f"  {note}")
        listed = [] if single else audit.stands_out  # a table below lists the evidence of a single set
        for evidence in listed:
            p = f" (p {_figure(evidence.p)}, q {_figure(evidence.q)})" if evidence.p is not None else ""
            console.print(f"  {evidence.test}: {evidence.found}{p}")
    if single:
        rows = table(("test", "found", "p", "q"), ("test", "found"))
        rows.columns[1].overflow = "fold"  # a long name of a file stays whole
        for evidence in (evidence for evidence in report.audits[0].evidence if evidence.possible):
            mark = "! " if evidence.stands_out else ""
            rows.add_row(evidence.test, mark + evidence.found, _figure(evidence.p), _figure(evidence.q))
        console.print(rows)
        reasons = (f"{', '.join(tests)} ({why})" for why, tests in report.audits[0].not_possible.items())
        if not_possible := "; ".join(reasons):
            console.print(f"not possible: {not_possible}")
        names = {evidence.test for evidence in report.audits[0].stands_out}
        for test in report.tests:
            if test.name in names:
                console.print(f"{test.name} can show {test.shows}; not {test.cannot_show}.")
                console.print(f"  It stands out in published sets: {test.false_alarms}.")
    else:
        count = sum(bool(audit.stands_out) for audit in report.audits)
        rest = f"; {counted(left_out, 'unreadable log')}, sets with one left out" if left_out else ""
        console.print(f"{count} of {counted(len(report.audits), 'set')} to look at{rest}")
    console.print("What each test can and cannot show: docs/reviewing.md. What stands out is no accusation.")


def _figure(value: float | None) -> str:
    """Return a p-value as text; "" for None."""
    if value is None:
        return ""
    return "<0.0001" if value < 1e-4 else f"{value:.2g}"

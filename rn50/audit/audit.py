"""Audit sets of runs: every test of each set, what it can and cannot show, and a verdict in words.

Nothing here accuses anybody: a set that stands out may have a reason that logs do not tell.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rn50 import files
from rn50.audit import clock, convergence, curves, launches
from rn50.audit.run_set import Evidence, RunSet
from rn50.benchmark import rules
from rn50.errors import UserError, excerpt
from rn50.progress import Progress, silent
from rn50.results import published, run, significance
from rn50.results.parse import ResultLog
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
        return [one for one in self.evidence if one.stands_out]


@dataclass(frozen=True)
class Report:
    """Audits of all sets."""

    audits: tuple[Audit, ...]
    tests: tuple[Test, ...] = TESTS
    """All tests, with what each can show."""

    @property
    def stands_out(self) -> bool:
        """True if anything does."""
        return any(one.stands_out for one in self.audits)


def audit(paths: Sequence[pathlib.Path]) -> Report:
    """Audit every set of runs below ``paths``.

    Raises:
        UserError: as ``run.read_folders`` and ``of_folders``.
    """
    return of_folders(run.read_folders(paths))


def of_folders(folders: Mapping[pathlib.Path, Sequence[run.Run]], progress: Progress = silent) -> Report:
    """Audit the runs of each folder. ``progress(done, total)`` counts folders.

    Raises:
        UserError: no run has a time.
    """
    sets = [RunSet.of(folder, runs) for folder, runs in folders.items()]
    if not any(one.runs for one in sets):
        raise UserError(
            next(iter(folders)), "no run took time from run_start to run_stop", "give finished runs"
        )
    audits = []
    progress(0, len(sets))
    for done, one in enumerate(sets, 1):
        audits.append(_of(one, sets))
        progress(done, len(sets))
    return Report(tuple(_adjusted(audits)))


def _of(runs: RunSet, sets: Sequence[RunSet]) -> Audit:
    others = [other for other in sets if other is not runs]
    begun = {log.run_start_ms for log in runs.logs}
    strangers = [log for other in others for log in other.logs if log.run_start_ms not in begun]
    evidence = tuple(_tests(runs, strangers)) if runs.runs else ()
    again = [other.name for other in others if begun and begun == {log.run_start_ms for log in other.logs}]
    again += [
        row.name for row in published.results() if runs.are_of(row) and row.name not in (runs.name, *again)
    ]
    notes = [f"the same logs: {', '.join(again)}"] if again else []
    if names := [run.file.name for run in runs.unfinished]:
        more = f" and {len(names) - rules.RUNS} more" if len(names) > rules.RUNS else ""
        notes.append(f"no time from start to stop: {', '.join(names[: rules.RUNS])}{more}")
    if rest := launches.not_here(runs):
        notes.append(f"the script's own count: {rest} are not here")
    if 0 < len(runs.logs) < FEW:
        notes.append(f"most tests take {FEW} to {rules.RUNS} runs")
    if runs.label:
        notes.append(runs.label)
    names = [one.test for one in evidence if one.stands_out]
    verdict = f"look at: {', '.join(names)}" if names else NOTHING if runs.runs else NO_RUN
    return Audit(runs.name, runs.folder, len(runs.logs), verdict, tuple(notes), evidence)


def _setup(runs: RunSet) -> Evidence | None:
    """Look for runs that differ in what those of one result have in common."""
    of_runs: dict[str, Sequence[int | str | None]] = {
        "batch sizes": [log.global_batch_size for log in runs.logs],
        "systems": [log.platform for log in runs.logs],
    }
    mixed = []
    for what, values in of_runs.items():
        if len(different := {value for value in values if value is not None}) > 1:
            listed = ", ".join(excerpt(str(value)) for value in sorted(different)[: rules.RUNS])
            mixed.append(f"runs of {len(different)} {what}, tested as if of one: {listed}")
    text = "; ".join(mixed) or "one batch size, one system"
    return Evidence("setup", bool(mixed), text, len(mixed)) if len(runs.logs) > 1 else None


def _tests(runs: RunSet, strangers: Sequence[ResultLog]) -> Iterator[Evidence]:
    yield from filter(None, (_setup(runs),))
    yield from launches.tests(runs)
    yield from curves.tests(runs, strangers)
    yield from convergence.tests(runs)
    yield from clock.tests(runs)


def _adjusted(audits: Sequence[Audit]) -> Iterator[Audit]:
    """Yield the audits with the p-values of all adjusted for their number."""
    values = [one.p for audit in audits for one in audit.evidence if one.p is not None]
    adjusted = iter(significance.adjusted(values) if values else [])
    for audit in audits:
        evidence = tuple(
            one if one.p is None else dataclasses.replace(one, q=next(adjusted)) for one in audit.evidence
        )
        yield dataclasses.replace(audit, evidence=evidence)


def print_report(report: Report, console: Terminal, left_out: int = 0) -> None:
    """Print every test of a single set; of several sets their verdicts, what stands out, and how many logs
    left a set out."""
    single = len(report.audits) == 1 and not left_out
    for one in report.audits:
        console.print(f"{one.name}: {counted(one.runs, 'run')}, {one.verdict}")
        for note in one.notes:
            console.print(f"  {note}")
        for evidence in () if single else one.stands_out:
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
        count = sum(bool(one.stands_out) for one in report.audits)
        rest = f"; {counted(left_out, 'unreadable log')}, sets with one left out" if left_out else ""
        console.print(f"{count} of {counted(len(report.audits), 'set')} to look at{rest}")
    console.print("What each test can and cannot show: docs/reviewing.md. What stands out is no accusation.")


def _figure(value: float | None) -> str:
    return "" if value is None else "<0.0001" if value < 1e-4 else f"{value:.2g}"

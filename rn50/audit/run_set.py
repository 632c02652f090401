"""The runs of one result as an audit looks at them: in the order of their clocks."""

import functools
import math
import pathlib
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rn50.results import tree
from rn50.results.parse import ResultLog
from rn50.results.published import PublishedResult
from rn50.results.run import Run

_LONGEST_START = 3_600_000
"""Milliseconds of initialisation beyond which ``init_start`` is of another clock or job."""
_LONGEST_END = 600_000
"""The same of records after ``run_stop``."""
_LONGER = 0.1
"""Lengths of a run by which either takes more than the least of the set, beyond which that is a gap."""


@dataclass(frozen=True)
class RunSet:
    """The runs of a folder that took time from start to stop, by their start."""

    folder: pathlib.Path
    runs: tuple[Run, ...]
    unfinished: tuple[Run, ...] = ()
    """The others, which are there: no test may call them missing."""

    @classmethod
    def of(cls, folder: pathlib.Path, runs: Sequence[Run]) -> "RunSet":
        """Return the set of ``runs``."""
        timed = [run for run in runs if run.log.minutes]
        others = tuple(run for run in runs if not run.log.minutes)
        return cls(folder, tuple(sorted(timed, key=lambda run: run.log.run_start_ms or 0)), others)

    @functools.cached_property
    def name(self) -> str:
        """Round, organisation and system in a published tree, else the folder, from here if it is below."""
        place, here = tree.place(self.folder), pathlib.Path.cwd()
        below = self.folder.relative_to(here) if self.folder.is_relative_to(here) else self.folder
        return f"{place.submitter}/{place.system}" if place else str(below)

    @property
    def logs(self) -> list[ResultLog]:
        """The logs of the runs."""
        return [run.log for run in self.runs]

    @functools.cached_property
    def beside(self) -> list[tuple[float, float]]:
        """Seconds of initialisation and of records after ``run_stop`` of each run, as its log says."""
        beside = []
        for log in self.logs:
            before = (log.run_start_ms or 0) - (log.first("init_start") or log.events[0]).time_ms
            after = log.events[-1].time_ms - (log.run_stop_ms or 0)
            within = 0 <= before <= _LONGEST_START, 0 <= after <= _LONGEST_END
            beside.append((before / 1000 * within[0], after / 1000 * within[1]))
        return beside

    @functools.cached_property
    def least(self) -> tuple[float, float]:
        """The least of these; of initialisations the least that a log tells."""
        before, after = zip(*self.beside, strict=True)
        return min(filter(None, before), default=0.0), min(after)

    @functools.cached_property
    def length(self) -> float:
        """Median seconds of a run with these, at least a millisecond."""
        pairs = zip(self.logs, self.beside, strict=True)
        return max(0.001, statistics.median(60 * (log.minutes or 0) + sum(beside) for log, beside in pairs))

    @functools.cached_property
    def spans(self) -> list[tuple[float, float]]:
        """Begin and end of each run in seconds, with initialisation and the records after ``run_stop`` where
        these take about as long as in the others."""
        spans, most = [], [least + _LONGER * self.length for least in self.least]
        for log, beside in zip(self.logs, self.beside, strict=True):
            before, after = (total if total <= most[i] else self.least[i] for i, total in enumerate(beside))
            spans.append(((log.run_start_ms or 0) / 1000 - before, (log.run_stop_ms or 0) / 1000 + after))
        return spans

    @functools.cached_property
    def gaps(self) -> list[float]:
        """Seconds between the end of each run and the begin of the next, in lengths of a run."""
        pairs = zip(self.spans, self.spans[1:], strict=False)
        return [(after[0] - before[1]) / self.length for before, after in pairs]

    def are_of(self, result: PublishedResult) -> bool:
        """Return whether a row of the published table is of these very runs, by their minutes."""
        return result.is_of(log.minutes for log in self.logs)

    @functools.cached_property
    def numbers(self) -> list[int]:
        """The numbers in the names of the files; empty where one has none."""
        numbers = [number_of(run) for run in self.runs]
        return [] if None in numbers else [number for number in numbers if number is not None]

    @functools.cached_property
    def label(self) -> str | None:
        """Label of runs that are not the benchmark's."""
        return next((run.label for run in self.runs if run.label), None)

    @property
    def batch_size(self) -> int | None:
        """Global batch size, if a log has one above 0."""
        return next((log.global_batch_size for log in self.logs if (log.global_batch_size or 0) > 0), None)

    @property
    def is_closed(self) -> bool:
        """True for the benchmark as the closed division has it."""
        return not self.label and "open" not in {str(log.division).lower() for log in self.logs}


@dataclass(frozen=True)
class Evidence:
    """Finding of one test of a set."""

    test: str
    """Name of the test."""
    stands_out: bool
    """True if a reviewer should look."""
    found: str
    """Finding, in words."""
    statistic: float | None = None
    """Its meaning depends on the test: `tests`; null: nothing to compute it from."""
    p: float | None = None
    """p-value, or a bound of it; null: the finding is a fact, or there is nothing to compare with."""
    q: float | None = None
    """p adjusted by Benjamini and Hochberg for all tests of the audit."""


def not_tested(test: str, why: str) -> Evidence:
    """Return what is said of a test that could not be made."""
    return Evidence(test, False, f"not tested: {why}")


def number_of(run: Run) -> int | None:
    """Return the last number in the name of a run's file; None without one."""
    match = re.search(r"(\d+)\D*$", run.file.name)
    return int(match.group(1)) if match else None


def ratio_of(logarithm: float) -> float:
    """Return the likelihood ratio of a logarithm, from 1e-130 to 1e130."""
    return math.exp(max(-300.0, min(300.0, logarithm)))

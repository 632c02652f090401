"""``RunSet``, the runs of one result in the order of their clocks, and ``Evidence``, the finding of a test on
them."""

import functools
import math
import pathlib
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rn50 import files
from rn50.results import tree
from rn50.results.parse import ResultLog
from rn50.results.published import PublishedResult
from rn50.results.run import Run

_LONGEST_INITIALISATION = 3_600_000
"""If ``init_start`` is more than so many milliseconds before ``run_start``, it is of another clock or job."""
_LONGEST_ENDING = 600_000
"""If the last record is more than so many milliseconds after ``run_stop``, it is of another clock or job."""
_LONGER = 0.1
"""Lengths of a run by which the initialisation or the ending of a run may exceed the shortest of the set. If
it exceeds it by more, the excess counts as a gap between two runs."""

FEWER_THAN_3 = "fewer than 3 runs"
NOT_OF_BENCHMARK, NOT_CLOSED = "not runs of the benchmark", "not of the closed division"
"""Reasons why a test is not possible."""


@dataclass(frozen=True)
class RunSet:
    """The runs in one folder. A length of a run, ``length``, is the unit of times between runs."""

    folder: pathlib.Path
    runs: tuple[Run, ...]
    """Runs with a run_start and a later run_stop, in the order of run_start."""
    unfinished: tuple[Run, ...] = ()
    """The other runs. They have files, so that no test may call them missing."""

    @classmethod
    def in_folder(cls, folder: pathlib.Path, runs: Sequence[Run]) -> "RunSet":
        """Return the set of the ``runs`` in a folder."""
        timed = [run for run in runs if run.log.minutes]
        others = tuple(run for run in runs if not run.log.minutes)
        return cls(folder, tuple(sorted(timed, key=lambda run: run.log.run_start_ms or 0)), others)

    @functools.cached_property
    def name(self) -> str:
        """Round, organisation and system in a published tree; elsewhere the path of the folder, relative to
        the working folder if it is below that."""
        if place := tree.place(self.folder):
            return f"{place.submitter}/{place.system}"  # submitter: round/organisation
        return str(files.relative(self.folder))

    @property
    def logs(self) -> list[ResultLog]:
        """Logs of ``runs``."""
        return [run.log for run in self.runs]

    @functools.cached_property
    def outside_clock(self) -> list[tuple[float, float]]:
        """(seconds of initialisation, seconds of ending) of each run: the times before ``run_start`` and
        after ``run_stop`` that its log tells; 0 if the log does not tell."""
        times = []
        for log in self.logs:
            before_ms = (log.run_start_ms or 0) - (log.first("init_start") or log.events[0]).time_ms
            after_ms = log.events[-1].time_ms - (log.run_stop_ms or 0)
            before_ms = before_ms if 0 <= before_ms <= _LONGEST_INITIALISATION else 0
            after_ms = after_ms if 0 <= after_ms <= _LONGEST_ENDING else 0
            times.append((before_ms / 1000, after_ms / 1000))
        return times

    @functools.cached_property
    def shortest_outside(self) -> tuple[float, float]:
        """(shortest initialisation, shortest ending) of the set, in seconds. An initialisation of 0 is not
        known, and does not count; 0 if none is known."""
        before, after = zip(*self.outside_clock, strict=True)
        return min(filter(None, before), default=0.0), min(after)

    @functools.cached_property
    def length(self) -> float:
        """Median seconds of a run with its initialisation and ending, at least a millisecond."""
        pairs = zip(self.logs, self.outside_clock, strict=True)
        return max(0.001, statistics.median(60 * (log.minutes or 0) + sum(outside) for log, outside in pairs))

    @functools.cached_property
    def spans(self) -> list[tuple[float, float]]:
        """(begin, end) of each run in seconds since 1970, with its initialisation and ending. An
        initialisation or ending that exceeds the shortest by more than ``_LONGER`` counts as if it were the
        shortest; the rest of it falls into the gap beside the run."""
        spans = []
        shortest = self.shortest_outside
        # Largest initialisation and largest ending that count as they are.
        most = [seconds + _LONGER * self.length for seconds in shortest]
        for log, (initialisation, ending) in zip(self.logs, self.outside_clock, strict=True):
            before = initialisation if initialisation <= most[0] else shortest[0]
            after = ending if ending <= most[1] else shortest[1]
            spans.append(((log.run_start_ms or 0) / 1000 - before, (log.run_stop_ms or 0) / 1000 + after))
        return spans

    @functools.cached_property
    def gaps(self) -> list[float]:
        """Times between the end of each run and the begin of the next, in lengths of a run."""
        pairs = zip(self.spans, self.spans[1:], strict=False)
        return [(after[0] - before[1]) / self.length for before, after in pairs]

    def are_of(self, result: PublishedResult) -> bool:
        """Return True if ``result``, a row of the published table, is of these very runs: it has their
        minutes."""
        return result.is_of(log.minutes for log in self.logs)

    def reached_as(self, result: PublishedResult) -> bool:
        """Return True if at least half of the last accuracies of the runs are those of ``result``, to five
        decimals. In three published results one or two logs have another than the table."""
        ends = {round(log.decisive.accuracy, 5) for log in self.logs if log.decisive}
        common = ends & {round(accuracy, 5) for accuracy in result.accuracy if accuracy is not None}
        return 2 * len(common) >= len(ends)

    @functools.cached_property
    def numbers(self) -> list[int]:
        """The numbers in the names of the files of ``runs``; empty if a name has none."""
        numbers = [number_of(run) for run in self.runs]
        return [] if None in numbers else [number for number in numbers if number is not None]

    @functools.cached_property
    def label(self) -> str | None:
        """Label of the first run that is not of the benchmark; None if all are."""
        return next((run.label for run in self.runs if run.label), None)

    @property
    def batch_size(self) -> int | None:
        """Global batch size of the first log that has one above 0; None if none has."""
        return next((log.global_batch_size for log in self.logs if (log.global_batch_size or 0) > 0), None)

    @property
    def not_closed(self) -> str | None:
        """Reason why the runs are none of the closed division of the benchmark; None if they are."""
        if self.label:
            return NOT_OF_BENCHMARK
        return NOT_CLOSED if "open" in {str(log.division).lower() for log in self.logs} else None


@dataclass(frozen=True)
class Evidence:
    """Finding of one test on a set."""

    test: str
    """Name of the test."""
    stands_out: bool
    """True if a reviewer should look at it."""
    found: str
    """Finding, in words."""
    statistic: float | None = None
    """Statistic of the test; `tests` says what it means. null: there is nothing to compute it from."""
    p: float | None = None
    """p-value, or an upper bound of it; null: the finding is a fact, or there is nothing to compare with."""
    q: float | None = None
    """p adjusted by Benjamini and Hochberg for all tests of the audit; null as `p`."""
    possible: bool = True
    """False if the test could not be made; `found` then says why."""


def not_tested(test: str, why: str) -> Evidence:
    """Return the evidence for a test that could not be made."""
    return Evidence(test, False, why, possible=False)


def number_of(run: Run) -> int | None:
    """Return the last number in the name of the file of a run; None without one."""
    # result_12.txt has 12.
    match = re.search(r"(\d+)\D*$", run.file.name)
    return int(match.group(1)) if match else None


def ratio_of(logarithm: float) -> float:
    """Return the likelihood ratio whose natural logarithm this is, limited to about 1e-130 to 1e130."""
    return math.exp(max(-300.0, min(300.0, logarithm)))

"""Read the runs of a result and select those that count.

Source: MLPerf Training rules, section "Benchmark Results": the fastest and the slowest of five runs are
dropped; one run that did not converge may count as the slowest. Among more than five runs, every five
consecutive ones are a set, and the set with the median score is the result, so that submitters cannot choose
their runs.
"""

import functools
import math
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rn50.benchmark import rules
from rn50.results import sidecar
from rn50.results.parse import ResultLog, read_log
from rn50.results.validity import label


@dataclass(frozen=True)
class Run:
    """A log and the contents of its sidecar file, ``saved``, which is empty where there is none."""

    log: ResultLog
    saved: Mapping[str, Any]

    @functools.cached_property
    def label(self) -> str | None:
        """The label (``rules.LABELS``) of a run that is not a result of the benchmark, else None."""
        return label.of_run(self.log, self.saved)

    @property
    def converged(self) -> bool:
        """True for a run that reached the target and logged success and both ends of its clock."""
        return self.log.status == "success" and self.log.reached is not None and self.log.minutes is not None

    @property
    def accelerators(self) -> int | None:
        """Number of ranks according to the sidecar file, or None."""
        run = sidecar.section(self.saved, "run")
        return run["ranks_per_node"] * run.get("nodes", 1) if "ranks_per_node" in run else None


def read(file: pathlib.Path) -> Run:
    """Read a log and its sidecar file.

    Raises:
        UserError: as in ``read_log``.
    """
    return Run(read_log(file), sidecar.read(file))


def median_set(runs: Sequence[Run]) -> list[int]:
    """Return the indices of the runs that make the score: all of up to five, else the five consecutive ones
    whose score is the median of all such sets. An even number of sets takes the slower of the middle two.
    Runs are ordered by ``run_start``."""
    if len(runs) <= rules.RUNS:
        return list(range(len(runs)))
    in_time = sorted(range(len(runs)), key=lambda i: runs[i].log.run_start_ms or 0)
    sets = [in_time[first : first + rules.RUNS] for first in range(len(runs) - rules.RUNS + 1)]
    return sorted(sets, key=lambda chosen: _minutes(chosen, runs))[len(sets) // 2]


def _minutes(chosen: Sequence[int], runs: Sequence[Run]) -> float:
    if sum(not runs[i].converged for i in chosen) > 1:
        return math.inf
    return sum(runs[i].log.minutes or 0.0 for i in kept(chosen, runs))


def kept(chosen: Sequence[int], runs: Sequence[Run]) -> list[int]:
    """Return the set without its fastest and its slowest run. A run that did not converge is the slowest
    whatever its clock says, because it may have stopped early."""
    return sorted(chosen, key=lambda i: (not runs[i].converged, runs[i].log.minutes or 0.0))[1:-1]

"""Read the runs of a result, tell those that are not of the benchmark, and select those that count.

A run is labelled if it used other data, another network, trained weights or only part of its steps, or was
resumed. Its log says so, or its saved configuration, data certificate or checkpoint epoch does. Any one of
them is enough. A number of samples is not a label: see ``log_rules``.

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
from rn50.errors import UserError
from rn50.progress import Progress, silent
from rn50.results import sidecar
from rn50.results.parse import ResultLog, read_log
from rn50.results.result_files import find_result_files
from rn50.settings import header

MANY_FILES = 100
"""Number of files from which reading takes long enough to show progress."""
_OUR_WRITER = "rn50/run/mlperf_log.py"
"""Source file that each record of our logs names."""


@dataclass(frozen=True)
class Run:
    """A log and the contents of its sidecar file, ``saved``, which is empty where there is none."""

    log: ResultLog
    saved: Mapping[str, Any]

    @property
    def file(self) -> pathlib.Path:
        """Path of the log."""
        return self.log.path

    @functools.cached_property
    def label(self) -> str | None:
        """The ``rules.LABELS`` of a run that is not a result of the benchmark in one text, else None."""
        saved, certificate = self.saved, self.saved.get("data certificate")
        # ``imagenet`` is true in a certificate where the numbers are ImageNet's and no fault was found.
        certified_other = isinstance(certificate, dict) and certificate.get("imagenet") is False
        labels = {
            *self.logged_labels,
            *rules.labels(sidecar.section(saved, "data"), sidecar.section(saved, "run")),
            *([rules.NOT_A_RESULT] if certified_other else []),
            *([rules.RESUMED] if saved.get("resumed_after") else []),
        }
        return "; ".join(label for label in rules.LABELS if label in labels) or None

    @property
    def logged_labels(self) -> list[str]:
        """The labels that the log itself has."""
        platforms = "\n".join(str(event.value) for event in self.log.by_key.get("submission_platform", ()))
        has = {rules.CUT: self.is_cut, rules.OTHER_TARGET: self.log.target != rules.TARGET_ACCURACY}
        return [label for label in rules.LABELS if label in platforms or has.get(label)]

    @functools.cached_property
    def header(self) -> dict[str, str]:
        """The header of the configuration that it was made with; empty if it is not in ``configs/``, or the
        run changed what its header tells."""
        system = str(sidecar.section(self.saved, "run").get("system", ""))
        return header.of_run(system, self.saved.get("variables", {}))

    @property
    def is_cut(self) -> bool:
        """True if BENCHMARK_STEPS cut its epochs short, so that it is no result of any task."""
        return self.log.epoch_samples != self.log.train_samples

    @property
    def is_ours(self) -> bool:
        """True if this package made the run."""
        writers = (event.metadata.get("file") for event in self.log.events[:1])
        return bool(self.saved) or _OUR_WRITER in writers

    @property
    def converged(self) -> bool:
        """True for a run that reached the target and logged success and both ends of its clock."""
        return self.log.status == "success" and self.log.reached is not None and self.log.minutes is not None

    @property
    def accelerators(self) -> int | None:
        """Number of ranks according to the sidecar file, or None."""
        run = sidecar.section(self.saved, "run")
        return run["ranks_per_node"] * run.get("nodes", 1) if "ranks_per_node" in run else None


def read_run(file: pathlib.Path) -> Run:
    """Read a log and its sidecar file.

    Raises:
        UserError: as in ``read_log``.
    """
    return Run(read_log(file), sidecar.read(file))


def read_folders(
    paths: Sequence[pathlib.Path], progress: Progress = silent, unread: list[UserError] | None = None
) -> dict[pathlib.Path, list[Run]]:
    """Read the result files that ``paths`` mean; return the runs of each folder. ``progress(done, total)``
    counts the files, from ``MANY_FILES`` on. ``unread``, where given, takes the errors of files, whose
    folders are left out.

    Raises:
        UserError: a path does not exist, holds no result file, or holds one that is not a log of this
            benchmark.
    """
    folders: dict[pathlib.Path, list[Run]] = {}
    broken: set[pathlib.Path] = set()
    files = find_result_files(paths)
    for done, file in enumerate(files, 1):
        folder = file.parent.resolve()
        try:
            folders.setdefault(folder, []).append(_read_of_benchmark(file))
        except UserError as error:
            if unread is None:
                raise
            unread.append(error)
            broken.add(folder)
        if len(files) >= MANY_FILES:
            progress(done, len(files))
    return {folder: runs for folder, runs in folders.items() if folder not in broken}


def _read_of_benchmark(file: pathlib.Path) -> Run:
    timed_run = read_run(file)
    if timed_run.log.benchmark not in (None, rules.BENCHMARK):
        remedy = f"give logs of {rules.BENCHMARK} alone, leave this file out"
        raise UserError(file, f"a log of {timed_run.log.benchmark}", remedy)
    return timed_run


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

"""Read the runs of a result, label runs that are not of the benchmark, and select the runs that count.

A run is labelled if it used other data, another network, trained weights or only part of its steps, or if it
was resumed. One source is enough for a label: the log, the saved configuration, the saved data certificate or
the saved epoch of a checkpoint. A wrong number of samples makes no label; ``log_rules`` has a rule for it.

Source of the selection: MLPerf Training rules, section "Benchmark Results". The fastest and the slowest of
five runs are dropped; one run that did not converge may count as the slowest. Among more than five runs,
every five consecutive ones are a set, and the set with the median score is the result, so that submitters
cannot choose their runs.
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
from rn50.results import sidecar, tree
from rn50.results.parse import ResultLog, read_log
from rn50.results.result_files import find_result_files
from rn50.settings import header

MANY_FILES = 100
"""Number of files from which reading takes long enough to show progress."""
_OUR_WRITER = "rn50/run/mlperf_log.py"
"""Source file that each record of our logs names."""


@dataclass(frozen=True)
class Run:
    """A run: its log and the contents of its sidecar file."""

    log: ResultLog
    saved: Mapping[str, Any]
    """Contents of the sidecar file; empty if the run has none, or one that rn50 did not write."""

    @property
    def file(self) -> pathlib.Path:
        """Path of the log."""
        return self.log.path

    @functools.cached_property
    def label(self) -> str | None:
        """All ``rules.LABELS`` that apply to the run, joined by "; "; None for a run of the benchmark."""
        certificate = self.saved.get("data certificate")
        # A certificate has ``imagenet: true`` if the numbers of images are ImageNet's and no fault was found.
        certified_other = isinstance(certificate, dict) and certificate.get("imagenet") is False
        applying = {
            *self.logged_labels,
            *rules.labels(sidecar.section(self.saved, "data"), sidecar.section(self.saved, "run")),
            *([rules.NOT_A_RESULT] if certified_other else []),
            *([rules.RESUMED] if self.saved.get("resumed_after") else []),
        }
        return "; ".join(label for label in rules.LABELS if label in applying) or None

    @property
    def logged_labels(self) -> list[str]:
        """The labels that the log alone tells: from the text of ``submission_platform``, the number of
        samples of an epoch, and the target."""
        platforms = "\n".join(str(event.value) for event in self.log.by_key.get("submission_platform", ()))
        applies = {rules.CUT: self.is_cut, rules.OTHER_TARGET: self.log.target != rules.TARGET_ACCURACY}
        return [label for label in rules.LABELS if label in platforms or applies.get(label)]

    @property
    def organisation(self) -> str | None:
        """Organisation as logged; if the log has none or a placeholder, that of the published tree."""
        if self.log.org and rules.PLACEHOLDER not in self.log.org:
            return self.log.org
        place = tree.place(self.file.parent)
        return place.organisation.name if place else self.log.org

    @functools.cached_property
    def header(self) -> dict[str, str]:
        """The fields of the header comment of the configuration file that the run was made with, by name.
        Empty if the file is not in ``configs/``, or if the run changed variables that the header
        describes."""
        system = str(sidecar.section(self.saved, "run").get("system", ""))
        return header.of_run(system, self.saved.get("variables", {}))

    @property
    def is_cut(self) -> bool:
        """True if BENCHMARK_STEPS cut the epochs of the run short, so that it is no result of any task."""
        return self.log.epoch_samples != self.log.train_samples

    @property
    def is_ours(self) -> bool:
        """True if rn50 made the run."""
        writers = (event.metadata.get("file") for event in self.log.events[:1])
        return bool(self.saved) or _OUR_WRITER in writers

    @property
    def converged(self) -> bool:
        """True for a run that reached the target and logged success and both ends of its clock."""
        return self.log.status == "success" and self.log.reached is not None and self.log.minutes is not None

    @property
    def accelerators(self) -> int | None:
        """Number of ranks on all nodes according to the sidecar file; None if it does not say."""
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
    """Read the result files that ``paths`` mean; return the runs of each folder.

    ``progress(done, total)`` counts the files if there are at least ``MANY_FILES``. If ``unread`` is a list,
    the error of a file that is not a log of this benchmark is appended to it, and the file's folder is left
    out of what is returned.

    Raises:
        UserError: a path does not exist or holds no result file; if ``unread`` is None, also a file that is
            not a log of this benchmark.
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
    """Read a run. Raise UserError, as ``read_log`` does, also for a run of another benchmark."""
    timed_run = read_run(file)
    # A log that does not name its benchmark (None) passes.
    if timed_run.log.benchmark not in (None, rules.BENCHMARK):
        remedy = f"give logs of {rules.BENCHMARK} alone, leave this file out"
        raise UserError(file, f"a log of {timed_run.log.benchmark}", remedy)
    return timed_run


def median_set(runs: Sequence[Run]) -> list[int]:
    """Return the indices of the runs that make the score: all runs if there are at most five, else the set of
    five consecutive runs with the median score. Of an even number of sets, the slower of the middle two
    counts. Runs are consecutive in the order of ``run_start``."""
    if len(runs) <= rules.RUNS:
        return list(range(len(runs)))
    in_time = sorted(range(len(runs)), key=lambda i: runs[i].log.run_start_ms or 0)
    # Every window of five in the order of time.
    sets = [in_time[first : first + rules.RUNS] for first in range(len(runs) - rules.RUNS + 1)]
    return sorted(sets, key=lambda indices: _minutes(indices, runs))[len(sets) // 2]


def _minutes(indices: Sequence[int], runs: Sequence[Run]) -> float:
    """Return the total minutes of a set without its fastest and slowest run; infinity if more than one of its
    runs did not converge."""
    if sum(not runs[i].converged for i in indices) > 1:
        return math.inf
    return sum(runs[i].log.minutes or 0.0 for i in kept(indices, runs))


def kept(indices: Sequence[int], runs: Sequence[Run]) -> list[int]:
    """Return the ``indices`` of a set of runs without those of its fastest and its slowest run. A run that
    did not converge is the slowest whatever its clock says, because it may have stopped early."""
    return sorted(indices, key=lambda i: (not runs[i].converged, runs[i].log.minutes or 0.0))[1:-1]

"""Read results for packaging: the runs of the score and their sidecar files (``read``). ``problems`` says why
a result cannot be packaged."""

import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rn50.benchmark import rules
from rn50.results import score, sidecar
from rn50.results.parse import ResultLog
from rn50.results.score import SystemScore
from rn50.settings.variables import UNNAMED_ORGANISATION

_MOST_REASONS = 20
"""Most broken rules that are listed of a result."""


@dataclass(frozen=True)
class OwnResult:
    """The result in one folder."""

    folder: pathlib.Path
    score: SystemScore
    logs: tuple[ResultLog, ...]
    """Logs of the runs that make the score, in the order of their numbers."""
    saved: tuple[Mapping[str, Any], ...]
    """Contents of the sidecar file of each log; empty if it is missing or incomplete."""

    @property
    def first_saved(self) -> Mapping[str, Any]:
        """Contents of the first sidecar file that is not empty; empty if there is none."""
        return next((saved for saved in self.saved if saved), {})

    @property
    def run(self) -> Mapping[str, Any]:
        """Section ``run`` of the saved configuration of ``first_saved``."""
        return sidecar.section(self.first_saved, "run")


def read(paths: Sequence[pathlib.Path]) -> list[OwnResult]:
    """Read the results below ``paths``, one per folder.

    Raises:
        UserError: a path does not exist, holds no result file, or holds one that is not a log of this
            benchmark.
    """
    results = []
    for system in score.score(paths):
        runs = [run for run in system.runs if run.in_set]
        saved = tuple(run.saved if sidecar.is_whole(run.saved) else {} for run in runs)
        results.append(OwnResult(runs[0].log.path.parent, system, tuple(run.log for run in runs), saved))
    return results


def made_elsewhere(result: OwnResult) -> bool:
    """Return True if no log of a result has a sidecar file, because another program than rn50 made the
    runs."""
    return not any(os.path.lexists(sidecar.path(log.path)) for log in result.logs)


def problems(result: OwnResult) -> Iterator[str]:
    """Yield the reasons why a result cannot be packaged, a line each, with the remedy."""
    folder = result.folder
    failed = [run.file.name for run in result.score.runs if run.in_set and not run.converged]
    if len(result.logs) < rules.RUNS:
        remedy = "the same rn50 run or ./run_experiments.sh again makes the others"
        yield f"{folder}: {len(result.logs)} of {rules.RUNS} runs; {remedy}"
    elif len(failed) > 1:
        problem = f"{len(failed)} runs did not reach the target ({', '.join(failed)}), and one may"
        rule = f"of NEXP={rules.RUNS + 1} or above the five consecutive ones with the median score count"
        yield f"{folder}: {problem}; make more: {rule}"
    for finding in result.score.errors[:_MOST_REASONS]:
        where = finding.file if finding.line is None else f"{finding.file}: line {finding.line}"
        yield f"{where}: {finding.message}; {finding.remedy}"
    if (more := len(result.score.errors) - _MOST_REASONS) > 0:
        yield f"{folder}: {more} more errors; rn50 check tells them"
    if made_elsewhere(result):
        text = "no log has the result_N.json beside it that rn50 run writes"
        yield f"{folder}: {text}; package what rn50 run made, and rn50 check the logs of others"
        return
    for log, saved in zip(result.logs, result.saved, strict=False):
        if not saved:
            remedy = "it says what the run was made with: put it back"
            yield f"{sidecar.path(log.path)}: not there, or not what rn50 saves; {remedy}"
    if result.logs[0].org == UNNAMED_ORGANISATION:
        text = f"submission_org is {UNNAMED_ORGANISATION!r}, and a log must stay as it was written"
        yield f"{folder}: {text}; set SUBMISSION_ORG and make the runs again"

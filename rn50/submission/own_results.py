"""Results of ours, read for packaging: the five runs that make the score, what was saved beside them, and what is amiss."""

import collections
import json
import pathlib
import re
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from rn50 import rules
from rn50.config_variables import UNNAMED_ORGANISATION
from rn50.submission import environment, score
from rn50.submission.parse import ResultLog, read_log
from rn50.submission.score import SystemScore

RUNS_OWN = ("seed", "result_file", "cache_cleared", "hosts", "walltime")
"""Of ``config / run`` what may differ from run to run, and is no part of the configuration."""
_THE_SAME = re.compile(r"config / .*|environment / .*|python|commit|packages / (mxnet|torch|paddlepaddle|nvidia|horovod|numpy).*")
"""What has to be the same in all runs; of the packages those that compute."""
_MOST_NAMED = 3


@dataclass(frozen=True)
class OwnResult:
    """One folder. ``logs`` are the runs of the score, in the order of their numbers; ``saved`` what lies beside each of them,
    empty where nothing does."""

    folder: pathlib.Path
    score: SystemScore
    logs: Tuple[ResultLog, ...]
    saved: Tuple[Mapping[str, Any], ...]

    @property
    def first(self) -> Mapping[str, Any]:
        """What was saved with the first of the runs beside which there is something."""
        return next((saved for saved in self.saved if saved), {})

    @property
    def run(self) -> Mapping[str, Any]:
        """The section ``run`` of its configuration."""
        found: Mapping[str, Any] = self.first.get("config", {}).get("run", {})
        return found

    @property
    def organisation(self) -> Optional[str]:
        return self.logs[0].org


def read(paths: Sequence[pathlib.Path]) -> List[OwnResult]:
    """The results that lie below some paths, a folder each.

    Raises:
        UserError: a path does not exist, holds no result file, or holds a log that is none or is of another benchmark.
    """
    results = []
    for each in score.score(paths):
        files = [run.file for run in each.runs if run.in_set]
        results.append(OwnResult(
            files[0].parent, each, tuple(map(read_log, files)), tuple(map(_saved, files)),
        ))
    return results


def _saved(log: pathlib.Path) -> Mapping[str, Any]:
    try:
        saved = json.loads(log.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    ours = isinstance(saved, dict) and isinstance(saved.get("config"), dict) and isinstance(saved["config"].get("run"), dict)
    return saved if ours else {}


def problems(result: OwnResult) -> Iterator[str]:
    """Why a result cannot be packaged, with the remedy, a line each."""
    yield from _runs(result)
    for log, saved in zip(result.logs, result.saved):
        if not saved:
            yield (f"{log.path.with_suffix('.json')}: not there, or not what rn50 saves; it says what the run was made with: put "
                   "it back")
    facts = [
        {"submission_org": log.org, "submission_division": log.division, "submission_status": log.submission_status}
        for log in result.logs
    ]
    unlogged = [f"{log.path}: {name} is not logged; make the run again"
                for log, fact in zip(result.logs, facts) for name, value in fact.items() if value is None]
    yield from unlogged
    different = "" if unlogged else differences(result, facts)
    if different:
        yield f"{result.folder}: {different}; make the runs again with one"
    if result.organisation == UNNAMED_ORGANISATION:
        yield (f"{result.folder}: submission_org is {UNNAMED_ORGANISATION!r}, and a log must stay as it was written; set "
               "SUBMISSION_ORG and make the runs again")
    yield from _one_configuration(result)


def _runs(result: OwnResult) -> Iterator[str]:
    failed = [run.file.name for run in result.score.runs if run.in_set and not run.converged]
    if len(result.logs) < rules.RUNS:
        yield (f"{result.folder}: {len(result.logs)} of {rules.RUNS} runs; the same ./run_experiments.sh again makes the others")
    if len(failed) > 1:
        yield (f"{result.folder}: {len(failed)} runs did not reach the target ({', '.join(failed)}), and one may; make more: "
               f"of NEXP={rules.RUNS + 1} or above the five consecutive ones with the median score count")
    elif not result.score.valid and len(result.logs) == rules.RUNS:
        yield f"{result.folder}: {result.score.reason}; make all runs with one configuration"


def _one_configuration(result: OwnResult) -> Iterator[str]:
    own = {f"config / run / {name}" for name in RUNS_OWN}
    facts = [
        {name: value for name, value in environment.saved(log.path).items() if _THE_SAME.fullmatch(name) and name not in own}
        for log in result.logs
    ]
    different = differences(result, facts)
    if different:
        yield f"{result.folder}: the runs are not of one configuration: {different}; make all of them with one"


def differences(result: OwnResult, facts: Sequence[Mapping[str, Any]]) -> str:
    """What ``facts``, those of each run, do not say alike; empty where there is nothing. A run without any says nothing."""
    telling = [(log, fact) for log, fact in zip(result.logs, facts) if fact]
    names = dict.fromkeys(name for _, fact in telling for name in fact)
    different = [name for name in names if len({fact.get(name) for _, fact in telling}) > 1]
    shown = []
    for name in different[:_MOST_NAMED]:
        values = [(log, fact.get(name, "not there")) for log, fact in telling]
        shown.append(f"{name} is {_by_run(values)}")
    if len(different) > _MOST_NAMED:
        shown.append(f"{len(different) - _MOST_NAMED} more differ")
    return "; ".join(shown)


def _by_run(values: Sequence[Tuple[ResultLog, Any]]) -> str:
    """ "closed in result_0.txt, open in result_1.txt, result_2.txt"."""
    files: Dict[Any, List[str]] = collections.defaultdict(list)
    for log, value in values:
        files[value].append(log.path.name)
    return ", ".join(f"{value} in {', '.join(names)}" for value, names in files.items())

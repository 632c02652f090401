"""Compute the score of a set of runs: the olympic mean of their minutes to target.

``score`` reads the results at some paths and scores each; ``score_runs`` scores runs that were read. Verbs
that need a result start here. Source: MLPerf Training rules, sections "Run Results" (the time of a run) and
"Benchmark Results" (the fastest and the slowest of five runs are dropped and the others averaged; one run
that did not converge may be the slowest, several make the result invalid). The mean is reported wherever it
can be computed; ``result_rules`` decides whether the result is valid.
"""

import dataclasses
import pathlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rn50.benchmark import rules
from rn50.printed import Hidden, Minutes, Share, Tenths, prints
from rn50.progress import Progress, silent
from rn50.results import power, rcp, run, tree
from rn50.results.parse import ResultLog
from rn50.results.run import Run
from rn50.results.validity import result_rules
from rn50.results.validity.findings import Finding
from rn50.terminal import counted


@dataclass(frozen=True)
class RunScore(Run):
    """A run and its part in the score of its result."""

    kept: bool
    """True if the run counts in the mean."""
    in_set: bool
    """True if the run is one of the five consecutive runs that make the result."""
    energy: power.Energy | None
    """null: the run has no power log, an error in one, or did not reach its target."""

    @property
    def epochs(self) -> float | None:
        """Epoch of the evaluation that decided the run: the first one at the target, or the last one if none
        reached the target."""
        return self.log.decisive.epoch if self.log.decisive else None

    @property
    def accuracy(self) -> float | None:
        """Top-1 accuracy, a fraction, of the evaluation that decided the run."""
        return self.log.decisive.accuracy if self.log.decisive else None

    @property
    def minutes(self) -> Minutes | None:
        """Minutes from run_start to run_stop."""
        return self.log.minutes


# Keys of --json, in this order.
prints(
    RunScore,
    lambda r: ({"file": r.log.path}, r.log.seed, r.epochs, r.accuracy, r.log.status),
    lambda r: (r.minutes, r.kept, r.in_set, r.log.findings, r.energy),
)


class Accuracy(NamedTuple):
    """Top-1 accuracy of runs with another target than the benchmark's. Their minutes are no score, so their
    accuracy is reported, as tables of recipes do."""

    mean: float
    """Mean top-1 of the runs' last evaluations, a fraction."""
    deviation: float | None
    """Standard deviation of the last evaluations over the runs; null: one run."""
    best_mean: float
    """Mean top-1 of the runs' best evaluations, a fraction."""
    best_deviation: float | None
    """Standard deviation of the best evaluations over the runs; null: one run."""
    runs: int
    """Number of runs that ended with success."""


@dataclass(frozen=True)
class SystemScore:
    """Score of one system: its runs and the mean of their minutes."""

    system: str
    """Name of the system: the logged SUBMISSION_PLATFORM; in a published tree, or if none is logged, the name
    of a folder."""
    valid: bool
    """True if the rules of a result allow the score."""
    olympic_minutes: Minutes | None
    """The score: mean minutes of the runs without the fastest and the slowest; null: there are too few runs,
    or too few reached the target."""
    reasons: tuple[str, ...]
    """Reasons why the score is not valid; empty if it is."""
    mean_minutes: Minutes | None
    """Mean minutes of fewer runs than a result has; null: there are enough, a run did not converge, or a rule
    is broken."""
    label: str | None
    """Label of runs that are not the benchmark; null: they are."""
    unverified: str | None
    """MLCommons' words for a result that it has not reviewed; null for demo data and published results."""
    division: str | None
    """Division as logged: closed or open."""
    convergence: rcp.Convergence | None
    """Comparison with the reference convergence points; null: there is nothing to compare with."""
    spread: Share | None
    """(slowest - fastest) / mean, of the minutes of the runs that converged."""
    accelerators: int | None
    """Number of accelerators of all nodes; null: there is no description of the system."""
    images_per_second: Tenths | None
    """Training images of the kept runs divided by their whole time from run_start to run_stop."""
    images_per_second_per_accelerator: Tenths | None
    """images_per_second divided by the number of accelerators."""
    accuracy: Accuracy | None
    """Accuracy of runs with another target; null: the runs have the benchmark's target, or none converged."""
    energy: power.Energy | None
    """Mean over the kept runs; null: not all of them were measured."""
    runs: tuple[RunScore, ...]
    errors: Hidden[tuple[Finding, ...]]
    """Broken rules, without those of runs that missed the target."""
    refusal: Hidden[str | None]
    """Verdict that the logs break a rule, for verbs that compute figures from them; None: they break none."""
    submitter: Hidden[str | None]
    """Round and organisation of a published tree; None elsewhere."""

    @property
    def scaled_minutes(self) -> float | None:
        """``convergence.scaled_minutes``; None without ``convergence``."""
        return self.convergence.scaled_minutes if self.convergence else None

    @property
    def name(self) -> str:
        """``system`` without the label, for displays that show the label separately."""
        return rules.without_labels(self.system) or self.system


def score(
    paths: Sequence[pathlib.Path], ruleset: str | None = None, progress: Progress = silent
) -> list[SystemScore]:
    """Score result files, folders of result files or published trees. The files of one folder are the runs of
    one system.

    ``ruleset`` selects the reference convergence points. None selects the ruleset of the round that a folder
    of a published tree names, else the newest ruleset. ``progress(done, total)`` counts the files read if
    there are at least ``run.MANY_FILES``.

    Raises:
        UserError: a path does not exist, holds no result file, or holds one that is not a log of this
            benchmark.
    """
    if ruleset is not None:
        tree.refuse_unknown([ruleset])
    return [score_runs(folder, runs, ruleset) for folder, runs in run.read_folders(paths, progress).items()]


def _system(folder: pathlib.Path, runs: Sequence[Run]) -> str:
    """Return the name of a system. In a published tree it is the folder above ``resnet/``: readers know that
    name, and the logs of one system may name several platforms. Elsewhere it is ``submission_platform``, or
    the folder's name if no log has a platform."""
    if folder.name == rules.BENCHMARK:
        return folder.parent.name
    return next((timed_run.log.platform for timed_run in runs if timed_run.log.platform), folder.name)


def score_runs(folder: pathlib.Path, runs: Sequence[Run], ruleset: str | None = None) -> SystemScore:
    """Return the score of the runs in a folder; ``ruleset`` as for ``score``."""
    place = tree.place(folder)
    ruleset = ruleset or tree.ruleset(folder)
    accelerators = tree.accelerators(folder)
    judged = result_rules.judge_in(folder, runs, ruleset)
    # The set that makes the result: five consecutive runs, or all if there are fewer.
    set_of_runs = [runs[i] for i in judged.chosen]
    reasons = _too_few(set_of_runs)
    # Indices of the runs whose minutes are averaged: the set without the fastest and the slowest.
    in_mean = [] if reasons else run.kept(judged.chosen, runs)
    # The findings on the power logs do not matter to the score; ``rn50/submission/check.py`` reports them.
    energies, _ = power.judge([timed_run.log for timed_run in runs])
    scores = tuple(
        RunScore(timed_run.log, timed_run.saved, i in in_mean, i in judged.chosen, energies[i])
        for i, timed_run in enumerate(runs)
    )
    kept = [scores[i] for i in in_mean]
    kept_minutes = [run_score.log.minutes or 0.0 for run_score in kept]
    mean = sum(kept_minutes) / len(kept) if kept else None  # the olympic mean
    # Minutes of the runs of the set that converged, and their mean.
    times = [timed_run.log.minutes or 0.0 for timed_run in set_of_runs if timed_run.converged]
    mean_time = sum(times) / len(times) if times else 0.0
    # ``judged.broken`` leaves out runs that missed the target: one may, and ``_too_few`` names several.
    reasons += [error.where_and_what for error in judged.broken]
    # Fewer runs than a result has, and no fault so far.
    good_so_far = len(runs) < rules.RUNS and len(times) == len(runs) and not judged.errors
    images = [(run_score.epochs or 0.0) * (run_score.log.epoch_samples or 0) for run_score in kept]
    rate = sum(images) / sum(kept_minutes) / 60 if all(images) and any(kept_minutes) else None
    # A place with a ruleset is in a published tree, whose results MLCommons has reviewed.
    unreviewed = any(timed_run.is_ours for timed_run in runs) and not (place and place.ruleset)

    return SystemScore(
        system=_system(folder, runs),
        valid=not reasons,
        olympic_minutes=mean,
        reasons=tuple(reasons),
        mean_minutes=mean_time if good_so_far else None,
        label=judged.label,
        unverified=rules.NOT_VERIFIED if unreviewed and not judged.label else None,
        division=next((timed_run.log.division for timed_run in runs if timed_run.log.division), None),
        convergence=None if mean is None or judged.label else _convergence(set_of_runs, ruleset, mean),
        spread=(max(times) - min(times)) / mean_time if len(times) > 1 and mean_time else None,
        accelerators=accelerators,
        images_per_second=rate,
        images_per_second_per_accelerator=rate / accelerators if rate and accelerators else None,
        energy=power.mean_of([run_score.energy for run_score in kept]),
        accuracy=_accuracy([timed_run.log for timed_run in runs if timed_run.converged]),
        runs=scores,
        errors=tuple(judged.broken),
        refusal=judged.refusal,
        submitter=place.submitter if place else None,
    )


def _accuracy(logs: Sequence[ResultLog]) -> Accuracy | None:
    """Return the accuracy of converged runs; None if there is no run or a run has the benchmark's target."""
    if not logs or any(log.target == rules.TARGET_ACCURACY for log in logs):
        return None
    last = [log.evaluations[-1].accuracy for log in logs]
    best = [max(evaluation.accuracy for evaluation in log.evaluations) for log in logs]
    deviation = statistics.stdev(last) if len(logs) > 1 else None
    best_deviation = statistics.stdev(best) if len(logs) > 1 else None
    return Accuracy(statistics.mean(last), deviation, statistics.mean(best), best_deviation, len(logs))


def _convergence(runs: Sequence[Run], ruleset: str, minutes: float) -> rcp.Convergence | None:
    """Compare the runs of a set with the reference convergence points; ``minutes`` is their score. Return
    None if the first log has no batch size or the ruleset has no points."""
    batch_size = runs[0].log.global_batch_size
    if ruleset not in rules.RCP_RULESETS or not batch_size or batch_size <= 0:
        return None
    logs = [timed_run.log for timed_run in runs if timed_run.converged]
    reached = [log.reached.epoch for log in logs if log.reached]
    # The epochs of every run to the target, None for a run that missed it.
    verdict = rcp.judge(ruleset, batch_size, (*sorted(reached), *[None] * (len(runs) - len(reached))))
    if not verdict.passed or ruleset not in rules.SCALED_RULESETS:
        return verdict
    return dataclasses.replace(verdict, scaled_minutes=minutes * verdict.factor)


def _too_few(runs: Sequence[Run]) -> list[str]:
    """Return a list of the one reason why these runs have no score; an empty list if they have a score."""
    if len(runs) != rules.RUNS:
        return [f"{counted(len(runs), 'run')} of {rules.RUNS}"]
    failed = [timed_run.file.name for timed_run in runs if not timed_run.converged]
    if len(failed) > 1:
        return [f"{len(failed)} runs did not converge ({', '.join(failed)}), and only one may"]
    return []

"""Compute the score of a set of runs: the olympic mean of their minutes to target.

Source: MLPerf Training rules, sections "Run Results" (the time of a run) and "Benchmark Results" (the fastest
and the slowest run are dropped and the rest averaged; one run that did not converge may be the slowest, more
make the result invalid). The mean is reported wherever it can be computed; ``result_rules`` decides whether
the result is valid.
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
    """One run."""

    kept: bool
    """True if it counts in the mean."""
    in_set: bool
    """True if it is one of the five consecutive runs that count."""
    energy: power.Energy | None
    """null: there is no power log, or none that covers the run."""

    @property
    def epochs(self) -> float | None:
        """Epoch of the evaluation that decided it: the first one at the target, or the last one where none
        reached it."""
        return self.log.decisive.epoch if self.log.decisive else None

    @property
    def accuracy(self) -> float | None:
        """Accuracy of that evaluation, a fraction."""
        return self.log.decisive.accuracy if self.log.decisive else None

    @property
    def minutes(self) -> Minutes | None:
        """From run_start to run_stop."""
        return self.log.minutes


prints(
    RunScore,
    lambda r: ({"file": r.log.path}, r.log.seed, r.epochs, r.accuracy, r.log.status),
    lambda r: (r.minutes, r.kept, r.in_set, r.log.findings, r.energy),
)


class Accuracy(NamedTuple):
    """Top-1 of runs towards another target than the benchmark's, as tables of recipes have it."""

    mean: float
    """Mean top-1 of the runs' last evaluations, a fraction."""
    deviation: float | None
    """Standard deviation over the runs; null: one run."""
    best_mean: float
    """The same of their best evaluations."""
    best_deviation: float | None
    """Standard deviation over the runs; null: one run."""
    runs: int
    """Runs that ended with success."""


@dataclass(frozen=True)
class SystemScore:
    """The runs of one system and their mean in minutes."""

    system: str
    """SUBMISSION_PLATFORM, or the folder."""
    valid: bool
    """True if the rules of a result allow the score."""
    olympic_minutes: Minutes | None
    """The score: mean of the runs without the fastest and the slowest; null: too few reached the target."""
    reasons: tuple[str, ...]
    """Why it is not valid."""
    mean_minutes: Minutes | None
    """Mean of fewer runs than a result has, where all converged and no rule is broken."""
    label: str | None
    """The label of what is not the benchmark."""
    unverified: str | None
    """MLCommons' words for a result that it has not reviewed; null for demo data and published results."""
    division: str | None
    """closed or open."""
    convergence: rcp.Convergence | None
    """null: nothing to compare with."""
    spread: Share | None
    """(slowest - fastest) / mean, of the runs that converged."""
    accelerators: int | None
    """From the description of the system."""
    images_per_second: Tenths | None
    """Training images of the kept runs over their whole time."""
    images_per_second_per_accelerator: Tenths | None
    """The same of each accelerator."""
    accuracy: Accuracy | None
    """null: the runs have the benchmark's target, so that their minutes count."""
    energy: power.Energy | None
    """Mean of the runs that count; null: not all of them were measured."""
    runs: tuple[RunScore, ...]
    errors: Hidden[tuple[Finding, ...]]
    refusal: Hidden[str | None]
    """Verdict of its rules, as in ``result_rules.Judgement``."""
    submitter: Hidden[str | None]
    """Who published it, in a published tree."""

    @property
    def scaled_minutes(self) -> float | None:
        """``convergence.scaled_minutes``, if there is a convergence."""
        return self.convergence.scaled_minutes if self.convergence else None

    @property
    def name(self) -> str:
        """``system`` without the label, for places that show the label apart."""
        return rules.without_labels(self.system) or self.system


def score(
    paths: Sequence[pathlib.Path], ruleset: str | None = None, progress: Progress = silent
) -> list[SystemScore]:
    """Score result files, folders of them or published trees; the files of one folder are the runs of one
    system.

    ``ruleset`` selects the reference convergence points. None selects the round that a folder of a published
    tree names, else the newest. ``progress(done, total)`` counts the files read, from ``MANY_FILES`` on.

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
    """Return the score of the runs of a folder."""
    place = tree.place(folder)
    ruleset = ruleset or tree.ruleset(folder)
    accelerators = tree.accelerators(folder)
    judged = result_rules.judge_in(folder, runs, ruleset)
    chosen = [runs[i] for i in judged.chosen]
    reasons = _too_few(chosen)
    in_mean = [] if reasons else run.kept(judged.chosen, runs)
    scores = tuple(
        RunScore(run.log, run.saved, i in in_mean, i in judged.chosen, energy)
        for i, (run, energy) in enumerate(zip(runs, power.judge([run.log for run in runs])[0], strict=True))
    )
    kept = [scores[i] for i in in_mean]
    minutes = [score.log.minutes or 0.0 for score in kept]
    mean = sum(minutes) / len(minutes) if minutes else None
    times = [timed_run.log.minutes or 0.0 for timed_run in chosen if timed_run.converged]
    mean_time = sum(times) / len(times) if times else 0.0
    reasons += [error.where_and_what for error in judged.broken]
    so_far = len(runs) < rules.RUNS and len(times) == len(runs) and not judged.errors
    images = [(score.epochs or 0.0) * (score.log.epoch_samples or 0) for score in kept]
    rate = sum(images) / sum(minutes) / 60 if all(images) and any(minutes) else None
    unreviewed = any(timed_run.is_ours for timed_run in runs) and not (place and place.ruleset)
    return SystemScore(
        system=_system(folder, runs),
        valid=not reasons,
        olympic_minutes=mean,
        reasons=tuple(reasons),
        mean_minutes=mean_time if so_far else None,
        label=judged.label,
        unverified=rules.NOT_VERIFIED if unreviewed and not judged.label else None,
        division=next((timed_run.log.division for timed_run in runs if timed_run.log.division), None),
        convergence=None if mean is None or judged.label else _convergence(chosen, ruleset, mean),
        spread=(max(times) - min(times)) / mean_time if len(times) > 1 and mean_time else None,
        accelerators=accelerators,
        images_per_second=rate,
        images_per_second_per_accelerator=rate / accelerators if rate and accelerators else None,
        energy=power.mean_of([score.energy for score in kept]),
        accuracy=_accuracy([timed_run.log for timed_run in runs if timed_run.converged]),
        runs=scores,
        errors=tuple(judged.broken),
        refusal=judged.refusal,
        submitter=place.submitter if place else None,
    )


def _accuracy(logs: Sequence[ResultLog]) -> Accuracy | None:
    """Return the accuracy of runs, None where one has the benchmark's target or none has ended."""
    if not logs or any(log.target == rules.TARGET_ACCURACY for log in logs):
        return None
    last = [log.evaluations[-1].accuracy for log in logs]
    best = [max(evaluation.accuracy for evaluation in log.evaluations) for log in logs]
    (mean, deviation), (best_mean, best_deviation) = (
        (statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None)
        for values in (last, best)
    )
    return Accuracy(mean, deviation, best_mean, best_deviation, len(logs))


def _convergence(runs: Sequence[Run], ruleset: str, minutes: float) -> rcp.Convergence | None:
    """Compare the runs of a set with the reference; None where the log has no batch size, or the ruleset no
    reference."""
    batch_size = runs[0].log.global_batch_size
    if ruleset not in rules.RCP_RULESETS or not batch_size or batch_size <= 0:
        return None
    reached = [run.log.reached.epoch for run in runs if run.converged and run.log.reached]
    verdict = rcp.judge(ruleset, batch_size, (*sorted(reached), *[None] * (len(runs) - len(reached))))
    if not verdict.passed or ruleset not in rules.SCALED_RULESETS:
        return verdict
    return dataclasses.replace(verdict, scaled_minutes=minutes * verdict.factor)


def _too_few(runs: Sequence[Run]) -> list[str]:
    """Return the reason why no mean can be computed, or nothing."""
    if len(runs) != rules.RUNS:
        return [f"{counted(len(runs), 'run')} of {rules.RUNS}"]
    failed = [timed_run.file.name for timed_run in runs if not timed_run.converged]
    if len(failed) > 1:
        return [f"{len(failed)} runs did not converge ({', '.join(failed)}), and only one may"]
    return []

"""Compute the score of a set of runs: the olympic mean of their minutes to target.

Source: MLPerf Training rules, sections "Run Results" (the time of a run) and "Benchmark Results" (the fastest
and the slowest run are dropped and the rest averaged; one run that did not converge may be the slowest, more
make the result invalid). The mean is reported wherever it can be computed; ``result_rules`` decides whether
the result is valid.
"""

import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.results import rcp, run, system_description, tree
from rn50.results.result_files import find_result_files
from rn50.results.run import Run
from rn50.results.validity import label, result_rules
from rn50.results.validity.findings import Finding

MANY_FILES = 100
"""Number of files from which reading takes long enough to show progress."""


@dataclass(frozen=True)
class RunScore:
    """One run. ``epochs`` and ``accuracy`` (a fraction) are those of the evaluation that decided it: the
    first one at the target, or the last one where none reached it. ``kept`` is True where its ``minutes`` are
    in the mean."""

    file: pathlib.Path
    seed: int | None
    epochs: float | None
    accuracy: float | None
    status: str
    minutes: float | None
    kept: bool
    in_set: bool
    """False for a run beyond the five that the score is made of."""
    findings: tuple[str, ...]
    converged: bool


@dataclass(frozen=True)
class SystemScore:
    """The runs of one system and their mean in minutes. ``olympic_minutes`` is None where too few runs
    reached the target. ``reasons`` say why the result is not ``valid``: too few runs, and the ``errors`` by
    the rules of a result. ``label`` is ``rules.NOT_A_RESULT`` for runs of anything but the benchmark's own
    task, else None.

    ``convergence`` compares the epochs to target on ImageNet with the reference. ``scaled_minutes`` is the
    published score where it passes, from round v2.1 on. ``images_per_second`` is the number of training
    images of the kept runs over their whole time. ``spread`` is (slowest - fastest) / mean of the runs of the
    set that converged, as a fraction. ``images_per_second_per_accelerator`` is None where the system
    description is missing or names no accelerators. ``submitter`` is who published it, in a published tree.
    """

    system: str
    valid: bool
    olympic_minutes: float | None
    reasons: tuple[str, ...]
    mean_minutes: float | None
    """Mean of fewer runs than a score takes, where all converged and no rule is broken: an estimate of the
    score."""
    label: str | None
    unverified: str | None
    """``rules.NOT_VERIFIED`` for a result that MLCommons has not reviewed, else None."""
    division: str | None
    convergence: rcp.Convergence | None
    spread: float | None
    accelerators: int | None
    images_per_second: float | None
    images_per_second_per_accelerator: float | None
    runs: tuple[RunScore, ...]
    errors: tuple[Finding, ...]
    scaled_minutes: float | None
    submitter: str | None

    @property
    def name(self) -> str:
        """``system`` without the label, for places that show the label once for all."""
        name = self.system
        for label_ in rules.LABELS:
            name = name.replace(f" ({label_})", "")
        return name or self.system


def score(
    paths: Sequence[pathlib.Path],
    ruleset: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
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
    folders: dict[pathlib.Path, list[Run]] = {}
    files = find_result_files(paths)
    for done, file in enumerate(files, 1):
        timed_run = run.read(file)
        if len(files) >= MANY_FILES:
            progress(done, len(files))
        if timed_run.log.benchmark not in (None, rules.BENCHMARK):
            remedy = f"only {rules.BENCHMARK} is scored, leave this file out"
            raise UserError(file, f"a log of {timed_run.log.benchmark}", remedy)
        folders.setdefault(file.parent.resolve(), []).append(timed_run)
    return [score_runs(folder, runs, ruleset) for folder, runs in folders.items()]


def _system(folder: pathlib.Path, runs: Sequence[Run]) -> str:
    """Return the name of a system. In a published tree it is the folder above ``resnet/``, because that name
    is the known one and the logs of one system may differ in theirs. Elsewhere it is ``submission_platform``,
    else the folder's name, because a folder can have any name."""
    if folder.name == rules.BENCHMARK:
        return folder.parent.name
    return next((timed_run.log.platform for timed_run in runs if timed_run.log.platform), folder.name)


def score_runs(folder: pathlib.Path, runs: Sequence[Run], ruleset: str | None = None) -> SystemScore:
    """Return the score of the runs of a folder."""
    place = tree.place(folder)
    ruleset = ruleset or (place.ruleset if place else None) or rules.RULESETS[-1]
    accelerators = system_description.accelerators(place)
    judged = result_rules.judge(runs, (ruleset,), accelerators)
    chosen = [runs[i] for i in judged.chosen]
    reasons = _too_few(chosen)
    in_mean = [] if reasons else run.kept(judged.chosen, runs)
    kept = [runs[i] for i in in_mean]
    minutes = [timed_run.log.minutes or 0.0 for timed_run in kept]
    mean = sum(minutes) / len(minutes) if minutes else None
    convergence = scaled_minutes = None
    if mean is not None and not judged.label and ruleset in rules.RCP_RULESETS:
        convergence = _convergence(chosen, ruleset)
    if mean is not None and convergence and convergence.passed and ruleset in rules.SCALED_RULESETS:
        scaled_minutes = mean * convergence.factor
    times = [timed_run.log.minutes or 0.0 for timed_run in chosen if timed_run.converged]
    mean_time = sum(times) / len(times) if times else 0.0
    # Where several runs missed the target there is no score, and ``_too_few`` has given the reason.
    errors = [error for error in judged.errors if error.rule != result_rules.MISSED]
    reasons += [error.where_and_what for error in errors]
    so_far = len(runs) < rules.RUNS and len(times) == len(runs) and not judged.errors
    images = [_epochs(timed_run) * (timed_run.log.epoch_samples or 0) for timed_run in kept]
    rate = sum(images) / sum(minutes) / 60 if all(images) and any(minutes) else None
    saved = ((timed_run.log, timed_run.saved) for timed_run in runs)
    return SystemScore(
        system=_system(folder, runs),
        valid=not reasons,
        olympic_minutes=mean,
        reasons=tuple(reasons),
        mean_minutes=mean_time if so_far else None,
        label=judged.label,
        unverified=label.unverified(saved, bool(place and place.ruleset)),
        division=next((timed_run.log.division for timed_run in runs if timed_run.log.division), None),
        convergence=convergence,
        spread=(max(times) - min(times)) / mean_time if len(times) > 1 and mean_time else None,
        accelerators=accelerators,
        images_per_second=rate,
        images_per_second_per_accelerator=rate / accelerators if rate and accelerators else None,
        runs=tuple(_run_score(r, i in in_mean, i in judged.chosen) for i, r in enumerate(runs)),
        errors=tuple(errors),
        scaled_minutes=scaled_minutes,
        submitter=place.submitter if place else None,
    )


def _convergence(runs: Sequence[Run], ruleset: str) -> rcp.Convergence | None:
    """Compare the runs of a set with the reference; None where the log has no batch size."""
    batch_size = runs[0].log.global_batch_size
    converged = sorted(_epochs(timed_run) for timed_run in runs if timed_run.converged)
    epochs = (*converged, *[None] * (len(runs) - len(converged)))
    return rcp.judge(ruleset, batch_size, epochs) if batch_size and batch_size > 0 else None


def _epochs(timed_run: Run) -> float:
    return timed_run.log.reached.epoch if timed_run.log.reached else 0.0


def _too_few(runs: Sequence[Run]) -> list[str]:
    """Return the reason why no mean can be computed, or nothing."""
    if len(runs) != rules.RUNS:
        return [f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} of {rules.RUNS}"]
    failed = [timed_run.log.path.name for timed_run in runs if not timed_run.converged]
    if len(failed) > 1:
        return [f"{len(failed)} runs did not converge ({', '.join(failed)}), and only one may"]
    return []


def _run_score(timed_run: Run, kept: bool, in_set: bool) -> RunScore:
    log = timed_run.log
    decided = log.reached or (log.evaluations[-1] if log.evaluations else None)
    return RunScore(
        file=log.path,
        seed=log.seed,
        epochs=decided.epoch if decided else None,
        accuracy=decided.accuracy if decided else None,
        status=log.status,
        minutes=log.minutes,
        kept=kept,
        in_set=in_set,
        findings=log.findings,
        converged=timed_run.converged,
    )

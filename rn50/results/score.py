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
    converged: bool
    kept: bool
    findings: tuple[str, ...]
    in_set: bool = True
    """False for a run beyond the five that the score is made of."""


@dataclass(frozen=True)
class SystemScore:
    """The runs of one system and their mean in minutes. ``olympic_minutes`` is None where too few runs
    reached the target. ``reasons`` say why the result is not ``valid``: too few runs, and the ``errors`` by
    the rules of a result. ``label`` is ``rules.NOT_A_RESULT`` for runs of anything but the benchmark's own
    task, else None.

    ``convergence`` compares the epochs to target on ImageNet with the reference. ``scaled_minutes`` is the
    published score where it passes, from round v2.1 on. ``images_per_second`` is the number of training
    images of the kept runs over their whole time. ``spread`` is (slowest - fastest) / mean of the runs of the
    set that converged, as a fraction.
    """

    system: str
    valid: bool
    olympic_minutes: float | None
    reasons: tuple[str, ...]
    errors: tuple[Finding, ...]
    label: str | None
    runs: tuple[RunScore, ...]
    convergence: rcp.Convergence | None = None
    scaled_minutes: float | None = None
    division: str | None = None
    spread: float | None = None
    accelerators: int | None = None
    images_per_second: float | None = None
    mean_minutes: float | None = None
    """Mean of fewer runs than a score takes, where all converged and no rule is broken: an estimate of the
    score."""
    unverified: str | None = None
    """``rules.NOT_VERIFIED`` for a result that MLCommons has not reviewed, else None."""

    @property
    def name(self) -> str:
        """``system`` without the label, for places that show the label once for all."""
        name = self.system
        for label_ in rules.LABELS:
            name = name.replace(f" ({label_})", "")
        return name or self.system

    @property
    def images_per_second_per_accelerator(self) -> float | None:
        """``images_per_second`` per accelerator; None where the system description is missing or names no
        accelerators."""
        return (
            self.images_per_second / self.accelerators
            if self.images_per_second and self.accelerators
            else None
        )


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
            raise UserError(
                file,
                f"a log of {timed_run.log.benchmark}",
                f"only {rules.BENCHMARK} is scored, leave this file out",
            )
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
    chosen = judged.chosen
    reasons = _too_few([runs[i] for i in chosen])
    kept = run.kept(chosen, runs) if not reasons else []
    minutes = [runs[i].log.minutes or 0.0 for i in kept]
    mean = sum(minutes) / len(minutes) if minutes else None
    convergence = None
    batch_size = runs[chosen[0]].log.global_batch_size
    if (
        mean is not None
        and batch_size
        and batch_size > 0
        and not judged.label
        and ruleset in rules.RCP_RULESETS
    ):
        converged = [runs[i] for i in chosen if runs[i].converged]
        epochs = (*sorted(map(_epochs, converged)), *[None] * (len(chosen) - len(converged)))
        convergence = rcp.judge(ruleset, batch_size, epochs)
    scaled = mean is not None and convergence and convergence.passed and ruleset in rules.SCALED_RULESETS
    times = [runs[i].log.minutes or 0.0 for i in chosen if runs[i].converged]
    # Where several runs missed the target there is no score, and ``_too_few`` has given the reason.
    errors = [error for error in judged.errors if error.rule != result_rules.MISSED]
    reasons += [error.where_and_what for error in errors]
    so_far = len(runs) < rules.RUNS and len(times) == len(runs) and not judged.errors
    images = [_epochs(runs[i]) * (runs[i].log.epoch_samples or 0) for i in kept]
    return SystemScore(
        system=_system(folder, runs),
        valid=not reasons,
        olympic_minutes=mean,
        reasons=tuple(reasons),
        errors=tuple(errors),
        label=judged.label,
        runs=tuple(_run_score(timed_run, i in kept, i in chosen) for i, timed_run in enumerate(runs)),
        convergence=convergence,
        division=next((timed_run.log.division for timed_run in runs if timed_run.log.division), None),
        scaled_minutes=mean * convergence.factor if scaled and mean is not None and convergence else None,
        spread=(max(times) - min(times)) / (sum(times) / len(times))
        if len(times) > 1 and any(times)
        else None,
        accelerators=accelerators,
        images_per_second=sum(images) / sum(minutes) / 60 if all(images) and any(minutes) else None,
        mean_minutes=sum(times) / len(times) if so_far else None,
        unverified=label.unverified(
            ((timed_run.log, timed_run.saved) for timed_run in runs), bool(place and place.ruleset)
        ),
    )


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
        converged=timed_run.converged,
        kept=kept,
        findings=log.findings,
        in_set=in_set,
    )

"""Reproduce a result: expect, measure, run, judge (``rn50 reproduce``)."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rn50 import files
from rn50.errors import Status
from rn50.launch.campaign import watch
from rn50.printed import as_json
from rn50.reproduction import claim as claims
from rn50.reproduction import diagnosis as diagnoses
from rn50.reproduction import here as heres
from rn50.reproduction.claim import Claim
from rn50.reproduction.diagnosis import Diagnosis
from rn50.reproduction.expectation import RATE, Expected, expected
from rn50.reproduction.here import Here
from rn50.results import compare, counted, equivalence, score
from rn50.results.equivalence import DIFFERENT, EQUIVALENT, UNDECIDED, Equivalence
from rn50.results.run import Run
from rn50.results.run import read as read_run
from rn50.speed import worker

CLAIM, RESULTS = "claim.json", "results"
STOPPED, PLANNED = "stopped", "planned"
_FIRST = ("base learning", "LR", "batch", "global batch", "NUM", "WARMUP", "decay", "epochs", "images")


class Judged(NamedTuple):
    """A quantity of the runs beside the claimed one."""

    quantity: str
    """epochs, minutes, or images/s."""
    comparable: bool
    """False: this machine or recipe is another one, so that it decides nothing."""
    equivalence: Equivalence | None
    """null: one side has fewer than two runs."""

    @property
    def words(self) -> str:
        """Return it in words."""
        e = self.equivalence
        if e is None:
            return f"{self.quantity}: fewer than two runs on one side, which cannot tell"
        change = f"{e.claimed:,.4g} claimed, {e.found:,.4g} found"
        interval = f"{e.ratio:.3f} times as much (90 % interval {e.low:.3f} to {e.high:.3f})"
        if e.low == e.high:
            interval = "in every run; less than a step of theirs cannot be seen"
        if not self.comparable:
            return f"{self.quantity}: not comparable; {change}, {interval}"
        verdict = e.verdict
        if verdict == UNDECIDED:
            none = "no number of runs would, they spread so much"
            verdict = f"{e.runs[1]} runs cannot tell: {f'{e.more_runs} more would' if e.more_runs else none}"
        return f"{self.quantity}: {verdict}; {change}, {interval}"


class Point(NamedTuple):
    """Accuracy after an epoch, on both sides."""

    epoch: float
    """Epoch."""
    claimed: tuple[float, float]
    """Lowest and highest top-1 of the claimed runs, a fraction."""
    found: tuple[float, float]
    """Lowest and highest of the runs here."""


class Reproduction(NamedTuple):
    """A claim, what was expected and what was found."""

    claim: Claim
    here: Here
    margin: float
    """Ratio less 1 up to which two means count as equivalent."""
    expected: list[Expected]
    measured: Diagnosis | None
    """null: nothing was measured yet."""
    judged: list[Judged]
    """Empty: no runs were made."""
    missed: int
    """Runs here that missed the target."""
    verdict: str
    """equivalent, different or undecided; stopped: the measurement stopped it; planned: nothing was run."""
    why: list[str]
    """Differences that can matter, those with the largest likely effect first."""
    curve: list[Point]
    """Accuracy by epoch; empty where the claim has no logs."""
    next: str
    """Next step."""


def plan(
    source: str, base: pathlib.Path | None, folder: pathlib.Path, runs: int, margin: float
) -> Reproduction:
    """Return claim, configuration and expectation, and write the configuration into a folder.

    Raises UserError if the source claims nothing that could be reproduced, or the folder is of another claim.
    """
    claim = claims.find(source)
    on = f"{base.resolve()}, SHA-256 {files.sha256(base)}" if base else None
    worker.begin(folder / CLAIM, {**as_json(claim), "on": on}, "claim or --on")
    here = heres.make(claim, base, folder)
    expectation = expected(claim, here, runs)
    advice = "the same command without --dry-run, once nothing prevents it"
    why = list(here.differences)
    return Reproduction(claim, here, margin, expectation, None, [], 0, PLANNED, why, [], advice)


def measured(planned: Reproduction, folder: pathlib.Path) -> Reproduction:
    """Return it with a minute's measurement: stopped where that is too slow."""
    _runs(planned, folder / RESULTS)
    rate = next(one for one in planned.expected if one.quantity == RATE)
    diagnosis = diagnoses.measure(planned.here, rate, folder)
    if not diagnosis.slow:
        return planned._replace(measured=diagnosis)
    return planned._replace(measured=diagnosis, verdict=STOPPED, next=diagnosis.remedy)


def run(before: Reproduction, folder: pathlib.Path, runs: int, as_json: bool) -> Reproduction:
    """Make the runs, unless they are there, and judge them. Exits as ``rn50 run`` does where that fails."""
    status = watch.run(pathlib.Path(before.here.config_file), folder / RESULTS, runs, as_json)
    if status not in (Status.SUCCESS, Status.FAULT):
        raise SystemExit(status)
    return judge(before, folder / RESULTS)


def _runs(before: Reproduction, results: pathlib.Path) -> tuple[list[Run], list[Run]]:
    """Return the runs of the claim and those in a folder. Raises UserError for one there that is not a run
    here of the configuration that repeats the claim."""
    logs = before.claim.logs, sorted(results.glob("result_*.txt"))
    claimed, ours = ([read_run(file) for file in side] for side in logs)
    counted.refuse_others(ours, before.here.config.as_environment(), claimed)
    return claimed, ours


def judge(before: Reproduction, results: pathlib.Path) -> Reproduction:
    """Judge the runs in a folder by the claim. Raises UserError as ``_runs`` does."""
    claim, here, runs = before.claim, before.here, _runs(before, results)
    [system] = score.score([results])
    missed = sum(not run.converged for run in system.runs)
    judged = []
    if missed < len(system.runs):
        ours = claims.find(str(results))
        for quantity, one, other, comparable in (
            ("epochs", claim.epochs, ours.epochs, here.same_recipe),
            ("minutes", claim.minutes, ours.minutes, here.same_speed),
            ("images/s", claim.images_per_second, ours.images_per_second, here.same_speed),
        ):
            enough = min(len(one), len(other)) > 1
            pair = equivalence.judge(one, other, before.margin) if enough else None
            judged.append(Judged(quantity, comparable, pair))
    verdict = _verdict(judged, missed, here.same_recipe)
    return before._replace(
        judged=judged,
        missed=missed,
        verdict=verdict,
        why=[*here.differences, *(_settings(*runs) if claim.logs else ())],
        curve=_curve(*map(_accuracies, runs)),
        next=_next(verdict, judged, here, len(system.runs)),
    )


def _verdict(judged: list[Judged], missed: int, same_recipe: bool) -> str:
    decided = [one.equivalence.verdict for one in judged if one.comparable and one.equivalence]
    if DIFFERENT in decided or (missed > 1 and same_recipe):
        return DIFFERENT
    return EQUIVALENT if decided and set(decided) == {EQUIVALENT} and not missed else UNDECIDED


def _next(verdict: str, judged: list[Judged], here: Here, runs: int) -> str:
    if verdict == EQUIVALENT:
        return "nothing: it is reproduced, as far as this machine can tell"
    if verdict == DIFFERENT:
        profile = f"rn50 profile {here.config_file} where the time of a step goes"
        return f"look at the first differences; {profile}"
    more = [one.equivalence.more_runs for one in judged if one.comparable and one.equivalence]
    known = [count for count in more if count]
    if known:
        return f"the same command with --runs {runs + max(known)}"
    return "a machine like its own, or a claim with more runs: these runs cannot tell"


def _settings(claimed: Sequence[Run], ours: Sequence[Run]) -> list[str]:
    """Return the settings that differ in the logs and in what is saved beside them."""
    others = compare.settings(claimed, ours)
    return sorted((f"{name}: {before} there, {after} here" for name, before, after in others), key=_effect)


def _effect(line: str) -> int:
    """Return the place of a setting among those that can matter: recipe and data, precision and framework,
    packages, the rest."""
    orders = (_FIRST, ("precision", "PRECISION", "FRAMEWORK", "step", "STEP"), ("packages", "DALI", "DGX"))
    return next((place for place, starts in enumerate(orders) if line.startswith(starts)), len(orders))


def _curve(claimed: Mapping[float, list[float]], ours: Mapping[float, list[float]]) -> list[Point]:
    return [
        Point(epoch, (min(claimed[epoch]), max(claimed[epoch])), (min(ours[epoch]), max(ours[epoch])))
        for epoch in sorted(set(claimed) & set(ours))
    ]


def _accuracies(runs: Sequence[Run]) -> dict[float, list[float]]:
    """Return epoch -> top-1 of every run that was evaluated then."""
    curve: dict[float, list[float]] = {}
    for run in runs:
        for evaluation in run.log.evaluations:
            curve.setdefault(evaluation.epoch, []).append(evaluation.accuracy)
    return curve

"""Reproduce a result: expect, measure, run, judge (``rn50 reproduce``)."""

import pathlib
from typing import Annotated, NamedTuple

from rn50 import files
from rn50.errors import Status, UserError
from rn50.launch.campaign import summary, watch
from rn50.printed import as_json
from rn50.reproduction.claim import Claim, claim_of
from rn50.reproduction.expectation import RATE, Expected, expected
from rn50.reproduction.here import Here, configure
from rn50.reproduction.measurement import Measurement, measure
from rn50.results import compare, equivalence, score
from rn50.results.counted import refuse_others
from rn50.results.equivalence import DIFFERENT, EQUIVALENT, UNDECIDED, Equivalence
from rn50.results.run import Run, read_run
from rn50.settings.document import Document
from rn50.speed import worker
from rn50.terminal import counted

CLAIM, RESULTS = "claim.json", "results"
STOPPED, PLANNED = "stopped", "planned"


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
        ratio = f"{e.ratio:.3f} times as much (90 % interval {e.low:.3f} to {e.high:.3f})"
        if e.low == e.high:
            ratio = "all runs agree to within one evaluation"
        verdict = e.verdict if self.comparable else "not comparable"
        if verdict == UNDECIDED and e.more_runs:
            verdict = f"undecided: {counted(e.more_runs, 'more run')} would tell"
        elif verdict == UNDECIDED:
            verdict = "undecided: the spread is too large for any number of runs"
        return f"{self.quantity}: {verdict}; {e.claimed:,.4g} claimed, {e.found:,.4g} found, {ratio}"


class Reproduction(NamedTuple):
    """A claim, what was expected and what was found."""

    claim: Claim
    here: Here
    margin: float
    """Ratio less 1 up to which two means count as equivalent."""
    expected: list[Expected]
    measured: Measurement | None
    """null: nothing was measured yet."""
    judged: list[Judged]
    """Empty: no runs were made."""
    missed: int
    """Runs here that missed the target."""
    verdict: str
    """equivalent, different or undecided; stopped: the measurement stopped it; planned: nothing was run."""
    why: list[str]
    """Differences that can matter: those of `here`, then those of what both sides logged and saved."""
    next: str
    """Next step."""
    refused: dict[Annotated[str, "side"], str]
    """Verdict of `rn50 score` on the claim, or on the result here, where their logs are no valid result; then
    the verdict is undecided."""


def plan(source: str, base: Document | None, folder: pathlib.Path, runs: int, margin: float) -> Reproduction:
    """Return claim, configuration and expectation, and write the configuration into a folder.

    Raises UserError if the source claims nothing that could be reproduced, or the folder is of another claim.
    """
    claim = claim_of(source)
    of_base = f"{base.path.resolve()}, SHA-256 {files.sha256(base.path)}" if base else None
    file, content = folder / CLAIM, worker.json_text({**as_json(claim), "on": of_base})
    files.make_folder(folder, worker.REMEDY)
    if file.exists() and files.read_text(file) != content:
        raise UserError(file, "of another claim or --on", worker.REMEDY)
    files.write(file, content, remedy=worker.REMEDY)
    here = configure(claim, base, folder)
    return Reproduction(
        claim=claim,
        here=here,
        margin=margin,
        expected=expected(claim, here, runs),
        measured=None,
        judged=[],
        missed=0,
        verdict=PLANNED,
        why=list(here.differences),
        next="the same command without --dry-run, once nothing prevents it",
        refused={"claim": claim.refusal} if claim.refusal else {},
    )


def measured(planned: Reproduction, folder: pathlib.Path) -> Reproduction:
    """Return it with a minute's measurement: stopped where that is too slow."""
    _runs(planned, folder / RESULTS)
    rate = next(row for row in planned.expected if row.quantity == RATE)
    measurement = measure(planned.here, rate, folder)
    if not measurement.slow:
        return planned._replace(measured=measurement)
    return planned._replace(measured=measurement, verdict=STOPPED, next=measurement.remedy)


def run(before: Reproduction, folder: pathlib.Path, runs: int, as_json: bool) -> Reproduction:
    """Make the runs, unless they are there, and judge them. Exits as ``rn50 run`` does where that fails."""
    file, ours = pathlib.Path(before.here.config_file), {summary.NEXT_IS_SAID: "1"}
    status = watch.make_missing(file, folder / RESULTS, runs, as_json, **ours)
    if status not in (Status.SUCCESS, Status.FAULT):
        raise SystemExit(status)
    return judge(before, folder / RESULTS)


def _runs(before: Reproduction, results: pathlib.Path) -> tuple[list[Run], list[Run]]:
    """Return the runs of the claim and those in a folder. Raises UserError for one there that is not a run
    here of the configuration that repeats the claim."""
    logs = before.claim.logs, sorted(results.glob("result_*.txt"))
    claimed, ours = ([read_run(file) for file in side] for side in logs)
    refuse_others(ours, before.here.config.as_environment(), claimed)
    return claimed, ours


def judge(before: Reproduction, results: pathlib.Path) -> Reproduction:
    """Judge the runs in a folder by the claim. Raises UserError as ``_runs`` does."""
    claim, here, runs = before.claim, before.here, _runs(before, results)
    [system] = score.score([results])
    missed = sum(not run.converged for run in system.runs)
    judged = []
    if missed < len(system.runs):
        ours = claim_of(str(results))
        for quantity, of_claim, of_runs, comparable in (
            ("epochs", claim.epochs, ours.epochs, here.same_recipe),
            ("minutes", claim.minutes, ours.minutes, here.same_speed),
            ("images/s", claim.images_per_second, ours.images_per_second, here.same_speed),
        ):
            enough = min(len(of_claim), len(of_runs)) > 1
            pair = equivalence.judge(of_claim, of_runs, before.margin) if enough else None
            judged.append(Judged(quantity, comparable, pair))
    refused = before.refused | ({"result here": system.refusal} if system.refusal else {})
    verdict = UNDECIDED if refused else _verdict(judged, missed, here.same_recipe)
    settings = compare.settings(*runs) if claim.logs else ()
    return before._replace(
        judged=judged,
        missed=missed,
        verdict=verdict,
        why=[*here.differences, *(f"{name}: {theirs} there, {ours} here" for name, theirs, ours in settings)],
        next="rn50 check tells what is wrong" if refused else _next(verdict, judged, here, len(system.runs)),
        refused=refused,
    )


def _verdict(judged: list[Judged], missed: int, same_recipe: bool) -> str:
    decided = [row.equivalence.verdict for row in judged if row.comparable and row.equivalence]
    if DIFFERENT in decided or (missed > 1 and same_recipe):
        return DIFFERENT
    return EQUIVALENT if decided and set(decided) == {EQUIVALENT} and not missed else UNDECIDED


def _next(verdict: str, judged: list[Judged], here: Here, runs: int) -> str:
    if verdict == EQUIVALENT:
        return "nothing: it is reproduced, as far as this machine can tell"
    if verdict == DIFFERENT:
        profile = f"rn50 profile {here.config_file} where the time of a step goes"
        return f"look at the first differences; {profile}"
    more = [row.equivalence.more_runs or 0 for row in judged if row.comparable and row.equivalence]
    if any(more):
        return f"the same command with --runs {runs + max(more)}"
    return "a machine like its own, or a claim with more runs: these runs cannot tell"

"""Steps of ``rn50 reproduce``, which repeats the runs of a claim, a published result or somebody's logs, and
judges whether the outcome is equivalent. The verb calls ``plan``, ``measured`` and ``run`` in this order;
``run`` calls ``judge``. Each takes the ``Reproduction`` so far and returns it with more fields set.
"""

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
"""Names of the file with the claim, and of the folder of the runs, in the folder of a reproduction."""
STOPPED, PLANNED = "stopped", "planned"
"""Verdicts before any run was made."""


class Judged(NamedTuple):
    """Comparison of our runs with the claimed runs in one quantity."""

    quantity: str
    """epochs, minutes, or images/s."""
    comparable: bool
    """False: this machine or recipe is another one, so that the quantity has no influence on the verdict."""
    equivalence: Equivalence | None
    """Test of the two sets of runs; null: the claim or the result here has fewer than two runs."""

    @property
    def words(self) -> str:
        """The comparison in words."""
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
    """A claim, the expectation, the measurement and the verdict on the runs."""

    claim: Claim
    here: Here
    margin: float
    """Largest ratio of two means, less 1, at which they count as equivalent."""
    expected: list[Expected]
    measured: Measurement | None
    """null: nothing was measured yet."""
    judged: list[Judged]
    """Comparisons with the claimed runs; empty: no run was made, or none reached the target."""
    missed: int
    """Number of runs here that missed the target."""
    verdict: str
    """equivalent, different or undecided; stopped: the measurement was too slow; planned: nothing was run."""
    why: list[str]
    """Differences that can matter: those of `here`, then settings that differ between the claimed runs and
    ours, as logged and saved."""
    next: str
    """Advice on the next step."""
    refused: dict[Annotated[str, "side"], str]
    """Verdicts of `rn50 score` that logs are no valid result, by `claim` and `result here`. If there is one,
    the verdict is undecided."""


def plan(source: str, base: Document | None, folder: pathlib.Path, runs: int, margin: float) -> Reproduction:
    """Return a reproduction with claim, configuration and expectation, and write claim and configuration into
    ``folder``. ``source`` names the claim (see ``claim_of``), ``base`` is the configuration file of --on, if
    any (see ``configure``), and ``runs`` is the number of runs to make.

    Raises UserError if the source claims nothing that could be reproduced, or the folder has another claim.
    """
    claim = claim_of(source)
    base_text = f"{base.path.resolve()}, SHA-256 {files.sha256(base.path)}" if base else None
    file = folder / CLAIM
    content = worker.json_text({**as_json(claim), "on": base_text})
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
    """Measure training for a minute. Return the reproduction with the measurement, and with the verdict
    STOPPED if training is too slow."""
    _runs(planned, folder / RESULTS)  # raises its UserError before a minute is spent
    expected_rate = next(row for row in planned.expected if row.quantity == RATE)
    measurement = measure(planned.here, expected_rate, folder)
    if not measurement.slow:
        return planned._replace(measured=measurement)
    return planned._replace(measured=measurement, verdict=STOPPED, next=measurement.remedy)


def run(planned: Reproduction, folder: pathlib.Path, runs: int, as_json: bool) -> Reproduction:
    """Make the runs that the folder lacks, and judge all. If ``rn50 run`` fails, exit with its status."""
    file = pathlib.Path(planned.here.config_file)
    # The verb prints ``next``, so ``rn50 run`` leaves out its own line "Next".
    status = watch.make_missing(file, folder / RESULTS, runs, as_json, {summary.NEXT_IS_SAID: "1"})
    # FAULT is also the status if all runs were made and a check of the result failed: ``judge`` reports that.
    if status not in (Status.SUCCESS, Status.FAULT):
        raise SystemExit(status)
    return judge(planned, folder / RESULTS)


def _runs(planned: Reproduction, results: pathlib.Path) -> tuple[list[Run], list[Run]]:
    """Return the runs of the claim, and our runs, whose folder is ``results``. Raises UserError if a run of
    ours has another configuration than ``planned.here``, or is a copy."""
    claimed = [read_run(file) for file in planned.claim.logs]
    ours = [read_run(file) for file in sorted(results.glob("result_*.txt"))]
    refuse_others(ours, planned.here.config.as_environment(), claimed)
    return claimed, ours


def judge(planned: Reproduction, results: pathlib.Path) -> Reproduction:
    """Compare our runs, whose folder is ``results``, with the claim. Return the reproduction with the
    verdict. Raises UserError as ``_runs`` does."""
    claim, here = planned.claim, planned.here
    runs = _runs(planned, results)  # of the claim, and ours
    [system] = score.score([results])
    missed = sum(not run.converged for run in system.runs)
    judged = []
    # ``claim_of`` computes the three quantities of our runs as it did for the claim, from runs that reached
    # the target: there must be one.
    if missed < len(system.runs):
        ours = claim_of(str(results))
        for quantity, claimed_values, our_values, comparable in (
            ("epochs", claim.epochs, ours.epochs, here.same_recipe),
            ("minutes", claim.minutes, ours.minutes, here.same_speed),
            ("images/s", claim.images_per_second, ours.images_per_second, here.same_speed),
        ):
            enough = min(len(claimed_values), len(our_values)) > 1
            tested = equivalence.judge(claimed_values, our_values, planned.margin) if enough else None
            judged.append(Judged(quantity, comparable, tested))
    refused = planned.refused | ({"result here": system.refusal} if system.refusal else {})
    verdict = UNDECIDED if refused else _verdict(judged, missed, here.same_recipe)
    settings = compare.settings(*runs) if claim.logs else ()
    return planned._replace(
        judged=judged,
        missed=missed,
        verdict=verdict,
        why=[*here.differences, *(f"{name}: {theirs} there, {ours} here" for name, theirs, ours in settings)],
        next="rn50 check tells what is wrong" if refused else _next(verdict, judged, here, len(system.runs)),
        refused=refused,
    )


def _verdict(judged: list[Judged], missed: int, same_recipe: bool) -> str:
    """Return the verdict on the whole from the verdicts in the comparable quantities."""
    verdicts = {row.equivalence.verdict for row in judged if row.comparable and row.equivalence}
    # The rules let one of five runs miss the target. With another recipe neither misses nor epochs count.
    if DIFFERENT in verdicts or (missed > 1 and same_recipe):
        return DIFFERENT
    return EQUIVALENT if verdicts == {EQUIVALENT} and not missed else UNDECIDED


def _next(verdict: str, judged: list[Judged], here: Here, runs: int) -> str:
    """Return the advice on the next step after ``runs`` runs."""
    if verdict == EQUIVALENT:
        return "nothing: it is reproduced, as far as this machine can tell"
    if verdict == DIFFERENT:
        return f"look at the first differences; rn50 profile {here.config_file} where the time of a step goes"
    more = [row.equivalence.more_runs or 0 for row in judged if row.comparable and row.equivalence]
    if any(more):
        return f"the same command with --runs {runs + max(more)}"
    return "a machine like its own, or a claim with more runs: these runs cannot tell"

"""End a campaign: check and score its runs, write the report, and print the outcome in a few lines."""

import pathlib
import shlex
import shutil
from collections.abc import Sequence

from rn50.benchmark import rules
from rn50.errors import Status, UserError
from rn50.files import ROOT
from rn50.packages import needed_for
from rn50.process import environment
from rn50.progress import counting
from rn50.results import other_load, scoreboard, timing
from rn50.results import score as scoring
from rn50.results.score import SystemScore
from rn50.results.validity.result_rules import NOT_VALID
from rn50.settings import named
from rn50.submission import check as checking
from rn50.submission.check import CheckReport
from rn50.terminal import Terminal, counted, minutes, print_rows, say

NEXT_IS_SAID = "RN50_NEXT_IS_SAID"
"""Environment variable by which a verb that makes a campaign, as ``rn50 reproduce``, leaves out the line
"Next": the verb itself says what comes next."""


def so_far(files: Sequence[pathlib.Path]) -> None:
    """Write the report of the runs that have ended, without the official checks, which come at the end.

    Raises UserError as ``report.write`` does, and if a package that the report needs is missing.
    """
    _report(files, ())


def end(files: Sequence[pathlib.Path], system: str) -> Status:
    """Check and score the runs of a campaign, write the report and print the outcome. Return SUCCESS if every
    check passed, else FAULT. ``system`` is the name of the configuration.

    Raises UserError if a file is not a log.
    """
    with counting("checking") as progress:
        checked = checking.check(files, progress=progress)
    [score] = scoring.score(files)
    try:
        page: pathlib.Path | None = _report(files, checking.DEFAULT_RULESETS)
    except UserError as error:  # the result is not at fault: print the outcome without the report
        say(f"rn50: {error}", err=True)
        page = None
    console = Terminal()
    if not checked.ok:
        checking.print_report(checked, console)
    print_rows(lines(score, checked, page, system), console)
    return Status.SUCCESS if checked.ok else Status.FAULT


def _report(files: Sequence[pathlib.Path], rulesets: Sequence[str]) -> pathlib.Path:
    """Write the report of the runs, with the official checks by ``rulesets``, and return its file."""
    with needed_for("the report"):  # a machine that makes runs need not have its packages
        from rn50.results.report import report

    return report.write(files, rulesets)


def lines(
    score: SystemScore, checked: CheckReport, page: pathlib.Path | None, system: str
) -> list[tuple[str, str]]:
    """Return the lines of the outcome, as (name, text). ``page`` is the file of the report; None: it could
    not be written."""
    # An excused log is of a run that may miss the target: it passes although the checker refuses it.
    passed = sum(verdict.ok or verdict.file in checked.excused for verdict in checked.verdicts)
    rulesets = ", ".join(dict.fromkeys(verdict.ruleset for verdict in checked.verdicts))
    checks = f"{passed} of {len(checked.verdicts)} passed (rulesets {rulesets})"
    if checked.has_another_target:
        checks += "; the official accuracy check does not apply: another target"
    if errors := [finding for finding in checked.findings if finding.severity == "error"]:
        checks += f"; {counted(len(errors), 'error')} above, of which rn50 check tells more"
    label = score.label or (f"{rules.UNVERIFIED}: {score.unverified}" if score.unverified else "")
    return [
        ("Score", _score(score)),
        *([("Label", label)] if label else []),
        ("Speed", _speed(score)),
        *(("Caution", load) for load in other_load.caution(score.runs)),
        ("Checks", checks),
        ("Report", str(page) if page else "not written"),
        *([] if environment().get(NEXT_IS_SAID) else [("Next", _next(score, system))]),
    ]


def _score(score: SystemScore) -> str:
    """Return the score in words; if there is none, the reason, and the best accuracy or the mean so far."""
    if score.accuracy is not None:
        return scoreboard.top_1(score.accuracy)
    converged = sum(run.converged for run in score.runs)
    target = f"to {rules.TARGET_ACCURACY * 100:.1f} % top-1"
    if score.olympic_minutes is not None:
        note = "fastest and slowest dropped" if score.valid else f"{NOT_VALID}: {score.reasons[0]}"
        runs = f"{converged} of {len(score.runs)} converged"
        return f"{minutes(score.olympic_minutes)} min {target}   ({runs}; {note})"
    if score.mean_minutes is None:
        top1 = [evaluation.accuracy for run in score.runs for evaluation in run.log.evaluations]
        best = f"; best top-1 {max(top1):.4f}, below the target" if top1 and not converged else ""
        return f"none: {score.reasons[0]}{best}"
    return f"none: {score.reasons[0]}; mean so far {minutes(score.mean_minutes)} min {target}"


def _speed(score: SystemScore) -> str:
    """Return images/s in training, images/s over the whole run, and the spread of the runs, in words."""
    rate = timing.training_rate([run.log for run in score.runs])
    parts = [f"{rate:,.0f} img/s training"] if rate else []
    if score.images_per_second:
        parts.append(f"{score.images_per_second:,.0f} img/s end to end")
    spread = f"; {scoreboard.spread_in_words(score.spread)}" if score.spread is not None else ""
    return ", ".join(parts) + spread or "not logged"


def _next(score: SystemScore, system: str) -> str:
    """Return the next command, or advice where none helps. ``system`` is the name of the configuration, with
    "+VARIABLE=VALUE" behind it for each --set."""
    rn50 = "rn50" if shutil.which("rn50") else ".venv/bin/rn50"
    name, *changes = system.split("+")  # DEMO_CPU+LR=1: name DEMO_CPU, changes ["LR=1"]
    base = named.arguments(name)  # CONFIG, if the file is not in configs/
    if any(run.is_cut for run in score.runs):
        return f"without BENCHMARK_STEPS runs give a result    |    {rn50} bench throughput {base}"
    missed = sum(not run.converged for run in score.runs)
    # The score drops one run that missed the target.
    if missed > 1:
        advice = "find out why in the report before you make more    |    docs/troubleshooting.md"
        return f"{missed} runs missed the target, and of {rules.RUNS} one may: {advice}"
    # After a changed run that missed the target, a comparison tells more than four more such runs.
    if len(score.runs) < rules.RUNS and not (changes and missed):
        command = f"the same command, with --runs {rules.RUNS} or NEXP={rules.RUNS},"
        return f"{command} makes the other {rules.RUNS - len(score.runs)} runs"
    folder = score.runs[0].file.parent
    # Compare with the runs of the unchanged configuration, and make these first if there are none.
    if changes:
        beside, default = folder.parent / name, ROOT / "results" / name
        other = min(beside, default, key=lambda place: not any(place.glob("result_*.txt")))
        output = "" if other.absolute() == default else f" -o {shlex.quote(str(other))}"
        make_other = "" if any(other.glob("result_*.txt")) else f"{rn50} run {base}{output}    |    "
        return f"{make_other}{rn50} compare {shlex.join(map(str, (other, folder)))}"
    if score.label:
        return f"{rn50} bench input {base}    |    docs/borrowing.md"
    return f"{rn50} package {shlex.quote(str(folder))} -o submission    |    docs/submission.md"

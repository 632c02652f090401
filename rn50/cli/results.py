"""Verbs on results of runs: repeat, score, check, compare, report and submit them."""

import dataclasses
import shlex
import sys
import tempfile
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from rn50 import files
from rn50.benchmark import rules
from rn50.cli import group
from rn50.cli.group import PATH, flag, option
from rn50.cli.hyperparameters import sources
from rn50.cli.numbers import Percent, Whole
from rn50.errors import Status, UserError, UserErrors
from rn50.progress import counting
from rn50.terminal import Terminal, print_json, print_lines, print_rows, say

# ``@verb(name, summary, example)`` makes a verb; it cleans up when SIGTERM or SIGHUP ends it.
verb = group.main.under("Results and weights", group.CleanedUpVerb)


def _complete(context: click.Context, argument: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of published results that begin with ``incomplete``, for the shell to complete it; if
    there are none, the shell completes a path."""
    # Reference convergence points (rcp/...) are no results: they have epochs, but no minutes.
    names = [name for name in sources(context, argument, incomplete) if not name.value.startswith("rcp/")]
    return names or [CompletionItem(incomplete, type="file")]


@verb("reproduce", "Repeat a result: same, or why not", "rn50 reproduce v1.0/Inspur/nf5688m6_mxnet --dry-run")
@click.argument("source", shell_complete=_complete)
@option(
    "--on",
    "Put its hyperparameters into this configuration [default: its own, or a new one for this machine].",
    "base_name",
    metavar="CONFIG",
)
@group.output("Folder of all files; the same folder resumes.", "folder", default="reproduction")
@option("--margin", "How far apart means count as equal.", default="3%", type=Percent(0.0001, 100))
@option("--runs", "Runs to make.", default=rules.RUNS, type=Whole(2, 1_000))
@flag("--dry-run", "Only say what to expect, and what keeps this machine from it.")
@flag("--anyway", "Make the runs although the measurement is slower than expected.")
@group.as_json("rn50.reproduction.reproduction.Reproduction")
def reproduce(
    source: str, base_name: str | None, folder: Path, margin: float, runs: int, as_json: bool, **flags: bool
) -> None:
    """Repeat the result SOURCE on this machine, and say whether it is the same.

    SOURCE is a published result (v1.0/Inspur/nf5688m6_mxnet), or a folder of result logs: somebody's
    results/X, or a package. First comes what to expect, then a minute's measurement, which names what is
    slow, then the runs. Their means are equivalent if the interval of their ratio lies within the margin.
    Stopped or killed, the same command goes on.

    Exit status: 0 equivalent, or a dry run; 1 different, undecided or stopped as too slow; 2 something to
    fix.
    """
    from rn50.reproduction import display, here, reproduction
    from rn50.results import equivalence
    from rn50.settings import document

    base = document.find(base_name) if base_name else None
    console = Terminal(stderr=as_json)  # stdout is for the JSON alone
    if flags["dry_run"]:
        # ``plan`` writes the configuration that it examines; of a dry run none stays.
        with tempfile.TemporaryDirectory() as temporary:
            outcome = reproduction.plan(source, base, Path(temporary), runs, margin)
        rows = (*display.planned(outcome), *display.found(outcome))
        print_json(outcome) if as_json else print_rows(rows, console)
        return
    outcome = reproduction.plan(source, base, folder, runs, margin)
    print_rows(display.planned(outcome), console)
    here.refuse_prevented(outcome.here)
    with files.only_process(folder, "reproducing a result"):
        console.print("timing training, for about a minute" + " ..." * console.live)
        outcome = reproduction.measured(outcome, folder)
        if outcome.verdict != reproduction.STOPPED or flags["anyway"]:
            outcome = reproduction.run(outcome, folder, runs, as_json)
    print_json(outcome) if as_json else print_rows(display.found(outcome), console)
    sys.exit(Status.SUCCESS if outcome.verdict == equivalence.EQUIVALENT else Status.FAULT)


@verb("score", "Score five runs, or published results", "rn50 score results/DEMO_CPU")
@group.paths
@option(
    "--ruleset",
    "Version of the rules and reference convergence points [default: that of the round a folder of "
    f"a published tree names, else {rules.RULESETS[-1]}].",
)
@group.as_json("rn50.results.scoreboard.Scores", **{"--against": "rn50.results.against_table.Against"})
@flag("--csv", "Print CSV, a row a run.", "as_csv")
@option("--against", "CSV of published scores: say what differs from the logs.", "table", type=PATH)
def score_results(
    paths: tuple[Path, ...], ruleset: str | None, as_json: bool, as_csv: bool, table: Path | None
) -> None:
    """Score result files, result folders or a published tree: the mean of the middle three of five runs.

    Of more than five runs, the set of five consecutive ones with the median score counts. A mean that the
    rules of a result do not allow is marked as not valid, with the reasons. The score that reference
    convergence scales, from round v2.1 on, is shown apart. Images/s per accelerator are reported where the
    folder has a description of the system beside it.

    --against takes the CSV of the official summarizer, or any with columns submitter, system and resnet, and
    says which result of the logs it lacks, which of its rows has no logs, and which minutes differ.

    Exit status: 0 also for a score that is not valid; "valid" of --json tells. With --against 1 if anything
    differs.
    """
    from rn50.results import against_table, score, scoreboard

    if as_csv and (as_json or table):
        raise UserError("--csv with --json or --against", "one form at a time", "leave one out")
    with counting("reading result files") as progress:
        scores = score.score(paths, ruleset, progress)
    if table:
        comparison = against_table.hold(scores, table)
        print_json(comparison) if as_json else against_table.print_differences(comparison, Terminal())
        sys.exit(Status.FAULT if comparison.differences else Status.SUCCESS)
    if as_json:
        print_json(scoreboard.Scores(scores))
    elif as_csv:
        click.echo(scoreboard.to_csv(scores), nl=False)
    else:
        scoreboard.print_table(scores, Terminal())
        if len(paths) <= rules.RUNS:
            sources = shlex.join(map(str, paths))
            Terminal().print(f"next: rn50 check {sources}  |  rn50 audit {sources}  |  rn50 report {sources}")


@verb("check", "Run the official checkers, and ours", "rn50 check results/DEMO_CPU --ruleset 4.0.0")
@group.paths
@group.rulesets("of a published tree names")
@group.as_json("rn50.submission.check.CheckReport")
@option(
    "--format",
    "github: annotations of a workflow; sarif: SARIF 2.1.0.",
    "form",
    type=click.Choice(("text", "github", "sarif")),
    default="text",
)
def check_results(paths: tuple[Path, ...], rulesets: tuple[str, ...], as_json: bool, form: str) -> None:
    """Run the official MLPerf checkers on a copy, and our own: every finding with its line, rule and remedy.

    Of any result file the compliance checker, and the rules of a result, by which one run of five may miss
    the target; of a submission tree (ORG/results/SYSTEM/resnet) also the checkers of seeds, reference
    convergence, system description and package. What stands out in an audit is a warning.

    Exit status: 0 no error, perhaps warnings; 1 an error; 2 something to fix.
    """
    from rn50.audit import audit
    from rn50.submission import annotations, check

    if as_json and form != "text":
        raise UserError("--json and --format", "one form at a time", "leave one out")
    with counting("checking") as progress:
        report = check.check(paths, rulesets, progress)
    audits = audit.of_folders(paths).values()
    warnings = audit.warnings(audits, report.findings)
    report = dataclasses.replace(report, findings=(*report.findings, *warnings))
    if form != "text":
        print_lines(annotations.lines(report, form))
    else:
        print_json(report) if as_json else check.print_report(report, Terminal())
    if len(audits) == 1 and form == "text" and not as_json:
        Terminal().print(*(f"audit: {result.verdict}" for result in audits))
    sys.exit(Status.SUCCESS if report.ok else Status.FAULT)


@verb("audit", "Ask of a result whether it was selected", "rn50 audit results/DEMO_CPU")
@group.paths
@group.as_json("rn50.audit.audit.Report")
def audit_results(paths: tuple[Path, ...], as_json: bool) -> None:
    """Look in a result, a submitter's folder or a whole round for runs that were selected, copied or edited.

    Every test is printed with what it found, its p-value or a bound of it, and q, that p adjusted for all
    tests made at once; a test that is not possible says why. A verdict is "nothing stands out in 11 of 13
    tests", or what to look at; it accuses nobody.

    Sets with unreadable logs are named and left out.

    Exit status: 0 nothing stands out, 1 something does, 2 something to fix.
    """
    from rn50.audit import audit

    unread: list[UserError] = []  # ``audit`` adds an error for each set with an unreadable log
    try:
        with counting("auditing") as progress:
            report = audit.audit(paths, progress, unread)
    except UserError as error:  # the audit has ended here: name also the sets that it has left out so far
        raise UserErrors(*unread, error) from error
    if not report.audits:
        raise UserErrors(*unread)
    print_json(report) if as_json else audit.print_report(report, Terminal(), len(unread))
    if len(report.audits) == 1 and not as_json:
        Terminal().print(f"next: rn50 check {shlex.join(map(str, paths))}")
    if unread:
        raise UserErrors(*unread)
    sys.exit(Status.FAULT if report.stands_out else Status.SUCCESS)


@verb("rcp", "Reference convergence points of your runs", "rn50 rcp results/MINE --passes results/OTHER")
@group.paths
@option("--passes", "Result of five runs: does it pass, and would another five?", "result", type=PATH)
@group.as_json("rn50.results.own_points.Point", **{"--passes": "rn50.results.own_points.Passing"})
def own_points(paths: tuple[Path, ...], result: Path | None, as_json: bool) -> None:
    """Make reference convergence points of ten runs or more: mean and deviation of their epochs, the bound
    that a result must keep, how likely five runs pass, and whether the official checker prunes the point.

    Runs of one configuration and batch size make a point, also from several folders. All figures are the
    official checker's, and what --json prints is a table that it takes: --custom_rcps.

    Exit status: 0 every point has its runs, and the result passes; 1 runs are missing, or it fails.
    """
    from rn50.results import own_points

    with counting("reading result files") as progress:
        points = own_points.points(paths, progress)
    outcome = own_points.passing(result, points) if result else None
    print_json(outcome or points) if as_json else own_points.print_points(points, outcome, Terminal())
    is_complete = all(len(point.epochs) >= own_points.RUNS for point in points.values())
    passes = outcome is None or outcome.verdict.passed
    sys.exit(Status.SUCCESS if is_complete and passes else Status.FAULT)


@verb("report", "Write a page of all that is known", "rn50 report results/DEMO_CPU")
@group.paths
@group.rulesets()
@group.output("Where to write it; by default report.html in the folder of a single result, else here.")
@group.as_json("rn50.results.report.report.Page")
def report(paths: tuple[Path, ...], rulesets: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Write all that is known of one or several results on one HTML page, which needs nothing but itself.

    Beside the hyperparameters stand the nearest published results and reference convergence points.
    """
    from rn50.audit import audit
    from rn50.results.report import report

    audits = {folder: result.lines for folder, result in audit.of_folders(paths).items()}
    with counting("checking and drawing results") as progress:
        written = report.write(paths, rulesets, output, progress, audits)
    print_json(report.Page(written)) if as_json else say(f"report: {written}")


@verb("atlas", "Write a page of all published results", "rn50 atlas results/MINE -o atlas.html")
@click.argument("paths", nargs=-1, type=PATH)
@group.output("Where to write it.", default="atlas.html")
@group.as_json("rn50.hyperparameters.atlas.atlas.Page")
def atlas_of_results(paths: tuple[Path, ...], output: Path, as_json: bool) -> None:
    """Write all published results on one offline HTML page, and your own, in PATHS, beside them.

    What is not of the benchmark, like the demo, stands apart.
    """
    from rn50.audit import audit
    from rn50.hyperparameters.atlas import atlas

    verdicts = {folder: result.verdict for folder, result in audit.of_folders(paths).items()}
    with counting("reading result files") as progress:
        written = atlas.write(paths, output, progress, verdicts)
    print_json(atlas.Page(written)) if as_json else say(f"atlas: {written}")


@verb("compare", "Compare results; say what five runs show", "rn50 compare results/BEFORE results/AFTER")
@click.argument("paths", nargs=-1, required=True, type=PATH, shell_complete=_complete)
@group.as_json("rn50.results.compare.Comparisons")
def compare_results(paths: tuple[Path, ...], as_json: bool) -> None:
    """Compare results with the first of them: epochs, minutes, images/s, settings, and whether so few runs
    show a difference.

    PATHS are folders of result logs, or published results like v1.0/Inspur/nf5688m6_mxnet.

    Welch's interval and the exact permutation test, both corrected for the number of tests made at once.
    Nothing is concluded of runs with the same seeds and accuracies. What stands out in an audit is a caution.
    """
    from rn50.audit import audit
    from rn50.results import compare

    audits = audit.of_folders([path for path in paths if path.exists()])
    verdicts = {folder: result.verdict for folder, result in audits.items() if result.stands_out}
    comparisons = compare.compare(compare.compared_results(paths), verdicts)
    print_json(compare.Comparisons(comparisons)) if as_json else compare.print_table(comparisons, Terminal())


@verb("package", "Make the tree of a submission", "rn50 package results/MINE -o submission")
@group.paths
@group.output("Folder of the submission; what it holds of other systems stays.", "folder", required=True)
@option(
    "--system-file",
    "YAML or JSON file of what no machine reports, as in  cooling: air-cooled  [default: system.yaml "
    "beside the results].",
    "details",
    type=PATH,
)
@group.rulesets("of --output names, as in training_results_v2.1")
@group.as_json("rn50.submission.package.Packaging")
def package_results(
    paths: tuple[Path, ...], folder: Path, details: Path | None, rulesets: tuple[str, ...], as_json: bool
) -> None:
    """Make the tree of a submission out of folders that rn50 run made: results, descriptions of the systems,
    code and scripts.

    Nothing is written where something is missing, or a checker finds an error that is not just true of demo
    data; each is named. The descriptions are made of what the runs saved of their machine, and of what you
    say in system.yaml: without it the command lists what to write there. The code is that of the commit which
    made the runs.

    Exit status: 0 written and without error, 1 written, but of demo data, 2 nothing written.
    """
    from rn50.submission import package

    with counting("checking") as progress:
        outcome = package.package(paths, folder, details, rulesets, progress)
    for warning in outcome.warnings:
        say(f"warning: {warning}", err=True)
    print_json(outcome) if as_json else package.print_outcome(outcome, Terminal())
    if not outcome.written:
        sys.exit(Status.USER_ERROR)
    sys.exit(Status.FAULT if outcome.errors else Status.SUCCESS)

"""The verb that reproduces a result."""

import pathlib
import sys
import tempfile

import click

from rn50 import files
from rn50.benchmark import rules
from rn50.cli import group
from rn50.cli.hyperparameters import sources
from rn50.cli.numbers import Measure, Whole
from rn50.errors import Status
from rn50.terminal import Terminal, print_json, print_rows

verb = group.main.under("Results and weights")


@verb(
    "reproduce",
    "Repeat a result: the same, or why not",
    "rn50 reproduce v1.0/Inspur/nf5688m6_mxnet --dry-run",
)
@click.argument("source", shell_complete=sources)
@click.option(
    "--on",
    metavar="CONFIG",
    help="Put its hyperparameters into this configuration [default: its own, or a new one for this machine].",
)
@group.output("Folder of all files; the same folder resumes.", "folder", default="reproduction")
@click.option(
    "--margin",
    default="3%",
    type=Measure(0.0001, 100, dict.fromkeys(("%", ""), 0.01)),
    help="How far apart two means may be and count as equal.",
)
@click.option("--runs", default=rules.RUNS, type=Whole(2, 1_000), help="Runs to make.")
@click.option("--dry-run", is_flag=True, help="Only say what to expect, and what keeps this machine from it.")
@click.option(
    "--anyway", is_flag=True, help="Make the runs although the measurement is slower than expected."
)
@group.as_json("rn50.reproduction.reproduction.Reproduction")
def reproduce(
    source: str,
    on: str | None,
    folder: pathlib.Path,
    margin: float,
    runs: int,
    dry_run: bool,
    anyway: bool,
    as_json: bool,
) -> None:
    """Repeat the result SOURCE on this machine, and say whether it is the same.

    SOURCE is a published result (v1.0/Inspur/nf5688m6_mxnet), or a folder of result logs: somebody's
    results/X, or a package. First comes what to expect, then a minute's measurement, which names what is
    slow, then the runs. Their means are equivalent if the interval of their ratio lies within the margin.
    Stopped or killed, the same command goes on.

    Exit status: 0 equivalent, or a dry run; 1 different, undecided or stopped as too slow; 2 something to
    fix.
    """
    from rn50.reproduction import here, page, reproduction
    from rn50.results import equivalence
    from rn50.settings import config_file

    base = config_file.find(on) if on else None
    console = Terminal(stderr=as_json)
    if dry_run:
        with tempfile.TemporaryDirectory() as temporary:
            outcome = reproduction.plan(source, base, pathlib.Path(temporary), runs, margin)
        rows = (*page.planned(outcome), *page.found(outcome))
        print_json(outcome) if as_json else print_rows(rows, console)
        return
    outcome = reproduction.plan(source, base, folder, runs, margin)
    print_rows(page.planned(outcome), console)
    here.refuse_prevented(outcome.here)
    with files.only_process(folder, "reproducing a result"):
        console.print("timing training, for about a minute" + " ..." * console.live)
        outcome = reproduction.measured(outcome, folder)
        if outcome.verdict != reproduction.STOPPED or anyway:
            outcome = reproduction.run(outcome, folder, runs, as_json)
    print_json(outcome) if as_json else print_rows(page.found(outcome), console)
    console.print(f"page: {page.write(outcome, folder, sys.argv[1:])}")
    sys.exit(Status.SUCCESS if outcome.verdict == equivalence.EQUIVALENT else Status.FAULT)

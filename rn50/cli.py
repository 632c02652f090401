"""The command line: argument parsing only, one line of work per verb."""

import json
import os
import pathlib
import signal
import sys
from typing import Any, Optional, Tuple

import click
from rich.console import Console

import rn50
from rn50 import config as configuration
from rn50 import rules
from rn50.errors import RankLostError, UserError

TARGET_MISSED = 3
"""Exit status of a run that came to its end without reaching the target."""


class _Group(click.Group):
    """Turns what a user can mend into a line and exit status 2, and a fault into a line and exit status 1."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            click.echo("rn50: stopped by SIGINT; the same command starts again", err=True)
            context.exit(128 + signal.SIGINT)
        except Exception as error:
            if context.params["debug"]:
                raise
            context.exit(_report(error))


def _report(error: Exception) -> int:
    """Says on standard error what went wrong and returns the exit status."""
    if isinstance(error, UserError):
        for line in str(error).splitlines():
            click.echo(f"rn50: {line}", err=True)
        return 2
    if isinstance(error, RankLostError):
        click.echo(f"rn50: {error}", err=True)
        return 1
    reason = str(error).strip().splitlines() or [""]
    click.echo(f"rn50: {type(error).__name__}: {reason[0]} (RN50_DEBUG=1 in the environment shows where)", err=True)
    return 1


def _paths(**kwargs: Any) -> Any:
    return click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=pathlib.Path), **kwargs)


_rulesets = click.option(
    "--ruleset", "rulesets", multiple=True, default=("1.0.0", "1.1.0", "2.0.0", "4.0.0"), show_default=True,
    help=f"Version of the official rules, of {', '.join(rules.RULESETS)}; may be given several times.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(rn50.__version__, prog_name="rn50")
@click.option("--debug", is_flag=True, envvar="RN50_DEBUG",
              help="Show the traceback of a fault. RN50_DEBUG=1 does so in every process of a run.")
def main(debug: bool) -> None:
    """ResNet-50 time-to-accuracy: train, score and check MLPerf-style results."""


@main.command("demo-data", epilog="Example: rn50 demo-data data/demo")
@click.argument("folder", type=click.Path(path_type=pathlib.Path))
@click.option("--seed", default=1, show_default=True, help="Seed of the drawings.")
@click.option("--tune", is_flag=True, help="Write a validation set of other images, to choose hyperparameters on.")
def demo_data(folder: pathlib.Path, seed: int, tune: bool) -> None:
    """Draw the demo data set (10 classes, 10,000 + 2,000 JPEGs) and pack it as RecordIO into FOLDER."""
    from rn50.data import demo_dataset
    from rn50.display import counting

    with counting("drawing the demo data set") as progress:
        demo_dataset.generate(folder, seed=seed, val_split="tune" if tune else "val", progress=progress)


@main.command(epilog="Example: DGXSYSTEM=DEMO_CPU ./run_and_time.sh calls it with the environment of configs/config_DEMO_CPU.sh")
def launch() -> None:
    """Start every rank of the system that the environment describes, for one timed run."""
    from rn50 import launch as launcher

    sys.exit(launcher.launch(configuration.from_environment(), configuration.environment()))


@main.command(epilog="Example: DGXSYSTEM=NF5688M6 DATADIR=/path/to/imagenet rn50 doctor")
@_as_json
@click.option("--brief", is_flag=True, help="Print only what fails or warns, on standard error.")
def doctor(as_json: bool, brief: bool) -> None:
    """What this machine can run, what not and why, and the command that mends it.

    Looks at the system that DGXSYSTEM or CONFIG_FILE names; without one at every system of configs/.

    Exit status: 0 the system can run, 1 it cannot.
    """
    from rn50 import doctor as practice

    sys.exit(0 if practice.show(as_json, brief) else 1)


@main.command(epilog="Example: set -a; . configs/config_DEMO_CPU.sh; rn50 train")
@click.pass_context
def train(context: click.Context) -> None:
    """Be one rank of a timed run (rn50 launch starts them).

    Exit status: 0 target reached, 3 target missed, 2 something to mend, 1 a fault.
    """
    from rn50 import launchers

    config = configuration.from_environment()
    click.echo(launchers.bind(config, configuration.environment()), err=True)  # before NumPy or a framework starts threads

    from rn50 import implementation, timed_run
    from rn50.display import LiveDisplay

    try:
        with LiveDisplay(config, Console(stderr=True)) as display:
            outcome = timed_run.run(config, implementation.load(config.run.framework), display)
    except Exception as error:
        if context.find_root().params["debug"]:
            raise
        # At once: the exit handlers of native libraries wait for ranks that are gone, or complain of them.
        status = _report(error)
        sys.stdout.flush()
        os._exit(status)
    sys.exit(0 if outcome.reached_target else TARGET_MISSED)


@main.command(epilog="Example: rn50 score results/DEMO_CPU")
@_paths()
@click.option("--ruleset", help="Version of the reference convergence points [default: that of the round a folder of a published "
              f"tree names, else {rules.RULESETS[-1]}].")
@_as_json
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, a row a run.")
def score(paths: Tuple[pathlib.Path, ...], ruleset: Optional[str], as_json: bool, as_csv: bool) -> None:
    """Score result files, result folders or a published tree: the mean of the middle three of five runs.

    Of more than five runs, the set of five consecutive ones with the median score counts. The score that reference convergence
    scales is shown apart. Images/s per accelerator are told where the folder has a description of the system beside it.
    """
    from rn50.display import counting
    from rn50.submission import score as desk
    from rn50.submission import scoreboard

    if as_json and as_csv:
        raise UserError("--json and --csv: one form at a time; leave one out")
    with counting("reading result files") as progress:
        scores = desk.score(paths, ruleset, progress)
    if as_json or as_csv:
        click.echo(json.dumps(scoreboard.to_json(scores), indent=1) if as_json else scoreboard.to_csv(scores), nl=as_json)
    else:
        scoreboard.print_table(scores, Console())


@main.command(epilog="Example: rn50 check results/DEMO_CPU --ruleset 4.0.0")
@_paths()
@click.option("--ruleset", "rulesets", multiple=True,
              help=f"Version of the official rules, of {', '.join(rules.RULESETS)}; may be given several times [default: that of "
              "the round a folder of a published tree names, else 1.0.0, 1.1.0, 2.0.0 and 4.0.0].")
@_as_json
def check(paths: Tuple[pathlib.Path, ...], rulesets: Tuple[str, ...], as_json: bool) -> None:
    """Run the official MLPerf checkers on a copy, and our own: every finding with its line, rule and remedy.

    Of any result file the compliance checker; of a submission tree (ORG/results/SYSTEM/resnet) also those of seeds, reference
    convergence, system description and package. Exit status 0 only if everything holds.
    """
    from rn50.submission import check as desk

    report = desk.check(paths, rulesets)
    click.echo(json.dumps(desk.to_json_report(report), indent=1)) if as_json else desk.print_report(report, Console())
    sys.exit(0 if report.ok else 1)


@main.group()
def bench() -> None:
    """Measure this system."""


@bench.command(epilog="Example: set -a; . configs/config_NF5688M6.sh; NCCL_ALGO=Ring rn50 bench comm --json")
@click.option("--largest-mib", default=256, show_default=True, type=click.IntRange(1, 4096), help="Stop at this size.")
@click.option("--as-rank", is_flag=True, hidden=True)
@_as_json
def comm(largest_mib: int, as_rank: bool, as_json: bool) -> None:
    """Time sums over all ranks of the system that the environment describes, by size: latency and bandwidth."""
    from rn50 import all_reduce, implementation
    from rn50 import launch as launcher

    config = configuration.from_environment()
    if as_rank:
        all_reduce.bench(config, implementation.load(config.run.framework), largest_mib << 20, as_json)
    else:
        sys.exit(launcher.run_ranks(config, configuration.environment(), all_reduce.as_rank(config, largest_mib, as_json)))


@main.command(epilog="Example: rn50 report results/DEMO_CPU")
@_paths()
@_rulesets
@click.option("--output", "-o", type=click.Path(path_type=pathlib.Path),
              help="Where to write it; by default report.html in the folder of the result, or here if they are several.")
def report(paths: Tuple[pathlib.Path, ...], rulesets: Tuple[str, ...], output: Optional[pathlib.Path]) -> None:
    """Write all that is known of one or several results on one HTML page, which needs nothing but itself.

    Beside the hyperparameters stand the nearest published results and reference convergence points.
    """
    from rn50.display import counting
    from rn50.report import report as page

    with counting("checking and drawing results") as progress:
        written = page.write(paths, rulesets, output, progress)
    click.echo(f"report: {written}")


@main.command(epilog="Example: rn50 compare results/BEFORE results/AFTER")
@_paths()
@_as_json
def compare(paths: Tuple[pathlib.Path, ...], as_json: bool) -> None:
    """Compare results with the first of them: epochs, minutes, images/s, settings, and whether so few runs show a difference.

    Welch's interval and the exact permutation test, both corrected for the number of tests made at once.
    """
    from rn50.submission import compare as desk
    from rn50.submission import score as scoring

    comparisons = desk.compare(scoring.score(paths))
    click.echo(json.dumps(desk.to_json(comparisons), indent=1)) if as_json else desk.print_table(comparisons, Console())


@main.command(epilog="Example: rn50 borrow v1.0/Inspur/nf5688m6_mxnet --for configs/config_DGXA100.sh -o config_MINE.sh")
@click.argument("source", required=False)
@click.option("--for", "base", metavar="CONFIG", help="Configuration of this system, a file or a name of configs/ [default: "
              "CONFIG_FILE or DGXSYSTEM of the environment].")
@click.option("--gbs", type=click.IntRange(1), help="Another global batch size than the source's; nothing else changes with it.")
@click.option("--only", metavar="NAMES", help="Take only these variables, like LR,WARMUP_EPOCHS; the header labels the mix.")
@click.option("--partial", is_flag=True, help="Take what the source has where it lacks a value; the header labels the mix.")
@click.option("--output", "-o", type=click.Path(path_type=pathlib.Path), help="Write the configuration there; by default it is "
              "shown what would change.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@click.option("--suggest", is_flag=True, help="Rank what may be borrowed for the batch size of --gbs.")
@click.option("--optimizer", default="lars", show_default=True, type=click.Choice(rules.OPTIMIZERS), help="For --suggest.")
@click.option("--number", default=10, show_default=True, type=click.IntRange(1), help="For --suggest: how many.")
@_as_json
def borrow(source: Optional[str], base: Optional[str], gbs: Optional[int], only: Optional[str], partial: bool,
           output: Optional[pathlib.Path], force: bool, suggest: bool, optimizer: str, number: int, as_json: bool) -> None:
    """A configuration of this system with the hyperparameters of somebody else's run, taken whole.

    SOURCE is a published result (v1.0/Inspur/nf5688m6_mxnet), a reference convergence point (rcp/3264, rcp/1.0.0/2048), a result
    log or a folder of them, or a configuration file. Of the last only assignments are read: nothing of it is run. Shown are what
    changes, what leaves the closed division's rules, and the epochs to expect from published runs of that very recipe.
    """
    from rn50.hyperparameters import borrow as lending
    from rn50.hyperparameters import borrow_show, origin, prediction

    if suggest:
        if source or not gbs:
            raise UserError("--suggest wants --gbs and no SOURCE: rn50 borrow --suggest --gbs 3264")
        borrow_show.suggest(prediction.candidates(gbs, optimizer)[:number], gbs, as_json)
        return
    if not source:
        raise UserError(f"borrow from what? give {origin.FORMS}; --suggest --gbs N ranks what there is")
    names = tuple(filter(None, (only or "").replace(" ", "").split(",")))
    borrowed = lending.borrow(origin.find(source), lending.base_file(base, configuration.environment()), gbs, names, partial)
    if output:
        lending.write(borrowed, output, force)
    borrow_show.show(borrowed, output, as_json)


@main.group("config")
def config_group() -> None:
    """Look at configurations."""


@config_group.command("show", epilog="Example: rn50 config show configs/config_NF5688M6.sh")
@click.argument("file", required=False, type=click.Path(path_type=pathlib.Path))
@_as_json
def config_show(file: Optional[pathlib.Path], as_json: bool) -> None:
    """Every value of a configuration FILE, or of the environment, and whether it is used, passed through, dead or ignored."""
    from rn50 import config_show as show

    show.show(file, as_json)

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


@main.command(epilog="Example: rn50 pack /data/ILSVRC2012 /data/imagenet")
@click.argument("source", type=click.Path(path_type=pathlib.Path))
@click.argument("folder", metavar="OUT", type=click.Path(path_type=pathlib.Path))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**32 - 1), help="Seed of the order of the records.")
@click.option("--val-truth", type=click.Path(path_type=pathlib.Path),
              help="The classes of a flat val folder: the official ground truth (with meta.mat beside it), or lines of name and "
              "class [default: the development kit in SOURCE or beside it].")
@click.option("--workers", type=click.IntRange(1),
              help="Threads; more than cores help where storage answers slowly [default: cores].")
@click.option("--to-folder", is_flag=True, help="The other way: from the records in SOURCE to class folders of images in OUT.")
@_as_json
def pack(source: pathlib.Path, folder: pathlib.Path, seed: int, val_truth: Optional[pathlib.Path], workers: Optional[int],
         to_folder: bool, as_json: bool) -> None:
    """Pack the images of SOURCE/train/<class> and SOURCE/val as RecordIO into OUT, in shuffled order.

    The bytes of the images stay as they are; a label is the rank of its class among the sorted ones. Interrupted, the same
    command goes on where it stopped.
    """
    from rn50.data import pack as packer
    from rn50.data import unpacking
    from rn50.display import counting

    with counting("unpacking" if to_folder else "packing") as progress:
        numbers = (unpacking.unpack(source, folder, workers, progress) if to_folder
                   else packer.pack(source, folder, seed, val_truth, workers, progress).numbers)
    click.echo(json.dumps(dict(numbers, folder=str(folder))) if as_json else
               f"{folder}: {numbers['train']:,} + {numbers['val']:,} images of {numbers['classes']:,} classes"
               + ("" if to_folder else f"; rn50 verify {folder} looks at every one"))


@main.command(epilog="Example: rn50 verify /data/imagenet --full")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=pathlib.Path))
@click.option("--full", is_flag=True, help="Decode every image too, not only its headers.")
@click.option("--classes", type=click.IntRange(1), help="Classes there ought to be.")
@click.option("--train", "train_images", type=click.IntRange(1), help="Training images there ought to be.")
@click.option("--val", "val_images", type=click.IntRange(1), help="Validation images there ought to be.")
@click.option("--workers", type=click.IntRange(1), help="Threads [default: cores].")
@_as_json
def verify(folder: pathlib.Path, full: bool, classes: Optional[int], train_images: Optional[int], val_images: Optional[int],
           workers: Optional[int], as_json: bool) -> None:
    """Look at every record of DIR and write what was found as certificate.json beside the data.

    Container and index, numbers, labels, headers of the images, duplicates, SHA-256 of every file. The numbers expected are those
    of an earlier certificate, of rn50 pack or rn50 demo-data, else ImageNet's. A run reads the certificate and refuses data at
    fault.

    Exit status: 0 whole, 1 faults, 2 it could not be looked at.
    """
    from rn50.data import certification, verdict
    from rn50.display import counting

    with counting("verifying") as progress:
        found = certification.certify(folder, full, (classes, train_images, val_images), workers, progress)
    click.echo(json.dumps(verdict.to_json(found), indent=1)) if as_json else verdict.print_findings(found, Console())
    sys.exit(0 if found.passed else 1)


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


@main.command(epilog="Example: rn50 package results/NF5688M6 --to submission")
@_paths()
@click.option("--to", required=True, type=click.Path(path_type=pathlib.Path),
              help="Folder of the submission; what it holds of other systems stays as it is.")
@click.option("--details", type=click.Path(path_type=pathlib.Path),
              help="YAML or JSON file of what no machine tells, as in  cooling: air-cooled  [default: system.yaml beside the "
              "results].")
@click.option("--ruleset", "rulesets", multiple=True,
              help=f"Version of the official rules, of {', '.join(rules.RULESETS)}; may be given several times [default: that of "
              "the round a folder of --to names, as in training_results_v2.1, else 1.0.0, 1.1.0, 2.0.0 and 4.0.0].")
@_as_json
def package(paths: Tuple[pathlib.Path, ...], to: pathlib.Path, details: Optional[pathlib.Path], rulesets: Tuple[str, ...],
            as_json: bool) -> None:
    """Make the tree of a submission out of result folders of ours: results, descriptions of the systems, code and scripts.

    Nothing is written where something is missing, or a checker finds an error that is not just true of demo data; each is named.
    The descriptions are made of what the runs saved of their machine, and of what you say in system.yaml: without it the command
    lists what to write there. The code is that of the commit which made the runs.

    Exit status: 0 written and without error, 1 written, but of demo data, 2 nothing written.
    """
    from rn50 import system
    from rn50.display import counting
    from rn50.submission import package as desk

    with counting("checking") as progress:
        outcome = desk.package(paths, to, system.read, details, rulesets, progress=progress)
    for warning in outcome.warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(json.dumps(desk.to_json_outcome(outcome), indent=1)) if as_json else desk.print_outcome(outcome, Console())
    sys.exit(2 if not outcome.written else 1 if outcome.errors else 0)


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


@main.command(epilog="Example: rn50 plan --accelerators 8 --global-batch-size 3200 --accelerator H100-SXM-80GB")
@click.option("--accelerators", type=click.IntRange(1), help="How many, in all nodes [default: the curve from 1 to 4,096].")
@click.option("--global-batch-size", type=click.IntRange(1), help="[default: the one that takes the fewest minutes]")
@click.option("--accelerator", metavar="NAME", help="Its name, or a part of it [default: that of most published results].")
@click.option("--images-per-second", type=click.FloatRange(0, min_open=True),
              help="What you measured while training: of each accelerator, with so many of them at that batch size.")
@click.option("--curve", is_flag=True, help="The curve from 1 to 4,096 accelerators, each at its best batch size.")
@click.option("--plot", type=click.Path(path_type=pathlib.Path, dir_okay=False), metavar="FILE.svg", help="Draw that curve.")
@_as_json
def plan(accelerators: Optional[int], global_batch_size: Optional[int], accelerator: Optional[str],
         images_per_second: Optional[float], curve: bool, plot: Optional[pathlib.Path], as_json: bool) -> None:
    """Predict epochs and minutes to 75.9 % on ImageNet of a planned system, from published results (LARS, closed division).

    Epochs are those of the batch size, images/s those of the accelerator at that scale, published or measured by you; evaluations
    and start-up are added. docs/measurements.md says how far off it was on published results that it was not told of. Also says
    which published hyperparameters to borrow.
    """
    from rn50.hyperparameters import plan as desk
    from rn50.hyperparameters import plan_display as shown

    if global_batch_size and not accelerators:
        raise UserError("--global-batch-size without --accelerators: give both, or neither for the curve")
    planner, name = desk.planner_for(accelerator, images_per_second, accelerators, global_batch_size)
    plans = planner.curve(name) if curve or plot or not accelerators else []
    if plot:
        shown.draw_curve(plans, planner.results, plot)
        click.echo(f"plot: {plot}", err=True)
    if curve or not accelerators:
        click.echo(json.dumps(shown.curve_to_json(plans), indent=1)) if as_json else shown.print_curve(plans, Console())
        return
    one = planner.plan(name, accelerators, global_batch_size) if global_batch_size else planner.best(name, accelerators)
    click.echo(json.dumps(shown.to_json(one), indent=1)) if as_json else shown.print_plan(one, Console())


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

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


@main.command(epilog="Example: set -a; . configs/config_DEMO_CPU.sh; rn50 train")
@click.pass_context
def train(context: click.Context) -> None:
    """Be one rank of a timed run (rn50 launch starts them).

    Exit status: 0 target reached, 3 target missed, 2 something to mend, 1 a fault.
    """
    from rn50 import implementation, timed_run
    from rn50.display import LiveDisplay

    config = configuration.from_environment()
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
@_as_json
def score(paths: Tuple[pathlib.Path, ...], as_json: bool) -> None:
    """Score result files, result folders or a published tree: the mean of the middle three of five runs."""
    from rn50.submission import score as desk

    scores = desk.score(paths)
    click.echo(json.dumps(desk.to_json(scores), indent=1)) if as_json else desk.print_table(scores, Console())


@main.command(epilog="Example: rn50 check results/DEMO_CPU --ruleset 4.0.0")
@_paths()
@click.option("--ruleset", "rulesets", multiple=True, default=("1.0.0", "1.1.0", "2.0.0", "4.0.0"), show_default=True,
              help=f"Version of the official rules, of {', '.join(rules.RULESETS)}; may be given several times.")
@_as_json
def check(paths: Tuple[pathlib.Path, ...], rulesets: Tuple[str, ...], as_json: bool) -> None:
    """Run the official MLPerf compliance checker. Exit status 0 only if every file passes every ruleset."""
    from rn50.submission import compliance

    verdicts = compliance.check(paths, rulesets)
    report = compliance.to_json(verdicts)
    click.echo(json.dumps(report, indent=1)) if as_json else compliance.print_table(verdicts, Console())
    sys.exit(0 if report["ok"] else 1)


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

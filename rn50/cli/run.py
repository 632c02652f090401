"""Verbs on runs, and on the machine and the configuration that they run on."""

import os
import pathlib
import sys
from typing import Optional

import click

from rn50 import process
from rn50.cli import group
from rn50.errors import Status
from rn50.settings import config as configuration
from rn50.terminal import Terminal, say


@click.command("launch", epilog="Example: DGXSYSTEM=DEMO_CPU ./run_and_time.sh calls it with the environment of "
               "configs/config_DEMO_CPU.sh")
def launch_run() -> None:
    """Start every rank of the system that the environment describes, for one timed run."""
    from rn50.launch.job import launch

    sys.exit(launch(configuration.from_environment(), process.environment()))


@click.command(epilog="Example: DGXSYSTEM=NF5688M6 DATADIR=/path/to/imagenet rn50 doctor")
@group.as_json
@click.option("--brief", is_flag=True, help="Print only what fails or warns, on standard error.")
def doctor(as_json: bool, brief: bool) -> None:
    """Tell what this machine can run, what not and why, and the command that fixes it.

    Looks at the system that DGXSYSTEM or CONFIG_FILE names; without one at every system of configs/.

    Exit status: 0 the system can run, 1 it cannot.
    """
    from rn50.doctor.doctor import configured, show

    sys.exit(Status.SUCCESS if show(configured(process.environment()), as_json, brief) else Status.FAULT)


@click.command(epilog="Example: set -a; . configs/config_DEMO_CPU.sh; rn50 train")
@click.pass_context
def train(context: click.Context) -> None:
    """Be one rank of a timed run (rn50 launch starts them).

    Exit status: 0 target reached, 3 target missed, 4 the training loss is no number, 2 something to fix, 1 a fault.
    """
    from rn50.launch import launchers

    config = configuration.from_environment()
    say(launchers.bind(config, process.environment()), err=True)  # before NumPy or a framework starts threads

    from rn50.run import implementation, timed_run
    from rn50.run.display import LiveDisplay

    try:
        with LiveDisplay(config, Terminal(stderr=True)) as display:
            outcome = timed_run.run(config, implementation.load(config.run.framework), display)
    except Exception as error:
        if context.find_root().params["debug"]:
            raise
        # At once: the exit handlers of native libraries wait for ranks that are gone, or complain of them.
        status = group.report(error)
        sys.stdout.flush()
        os._exit(status)
    sys.exit(Status.SUCCESS if outcome.reached_target else Status.TARGET_MISSED)


@click.group("config")
def config_group() -> None:
    """Look at configurations."""


@config_group.command("show", epilog="Example: rn50 config show configs/config_NF5688M6.sh")
@click.argument("file", required=False, type=click.Path(path_type=pathlib.Path))
@group.as_json
def config_show(file: Optional[pathlib.Path], as_json: bool) -> None:
    """Every value of a configuration FILE, or of the environment, and whether it is used, passed through, without effect or
    ignored."""
    from rn50.settings import show

    show.show(file, as_json)

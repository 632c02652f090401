"""The verb that attributes a gain."""

import pathlib
import tempfile

import click

from rn50 import process
from rn50.cli import group
from rn50.cli.numbers import Measure
from rn50.errors import UserError
from rn50.settings import config as configuration
from rn50.terminal import Terminal, print_json, say

verb = group.main.under("Hyperparameters")


@verb(
    "attribute",
    "Split the gain between two configurations",
    "rn50 attribute OLD NEW -o attribution/new --budget 60m",
)
@click.argument("first", metavar="FROM", shell_complete=group.complete_configurations)
@click.argument("second", metavar="[TO]", required=False, shell_complete=group.complete_configurations)
@group.values("A value in place of TO's, or of FROM's without TO.")
@group.output("Folder of the measurements.", "folder", required=True)
@click.option(
    "--budget",
    default="60m",
    type=Measure(0.0001, 10_000, {"h": 60, "m": 1, "": 1}),
    help="About how long to measure, in minutes: it decides how many seeds and rounds.",
)
@group.as_json("rn50.attribution.shares.Attribution")
def attribute(
    first: str,
    second: str | None,
    values: tuple[str, ...],
    folder: pathlib.Path,
    budget: float,
    as_json: bool,
) -> None:
    """Measure which settings the minutes between FROM and TO come from: hyperparameters, input, ranks and
    communication, framework and precision, data container.

    The way from FROM to TO is gone group by group, in both orders. Where epochs can change, runs of fresh
    seeds are made, evaluated after every epoch. The time of an epoch is measured in rounds, all points in
    turn. Stopped or killed, the same command goes on.
    """
    from rn50 import files
    from rn50.attribution import campaign, display, shares, steps
    from rn50.data import preflight
    from rn50.progress import counting
    from rn50.settings import changed, config_file

    inherited = process.environment()
    if second is None and not values:
        raise UserError("attribute to what? name a second configuration, or give --set NAME=VALUE")
    with tempfile.TemporaryDirectory() as temporary:
        if values:
            second = str(changed.write(pathlib.Path(temporary), second or first, values, inherited))
        ends = [config_file.find(name, inherited) for name in (first, second)]
        way = steps.between(*(config_file.sourced_environment(end, inherited) for end in ends))
    for environ in (way.first, way.second):
        preflight.of(configuration.from_environment(environ))
    for differing in way.groups:
        say(f"{differing}: {', '.join(way.settings(differing))}", err=True)
    measuring = campaign.Campaign(way, folder)
    with files.only_process(folder, "measuring"), counting("measuring") as progress:
        campaign.go(measuring, budget * 60, lambda line: say(line, err=True), progress)
    measured, cautions = measuring.measured()
    for caution in cautions:
        say(f"caution: {caution}", err=True)
    attribution = shares.of(way, measured)
    picture = display.draw(attribution, folder)
    if as_json:
        print_json(attribution)
    else:
        display.show(attribution, Terminal())
        say(f"picture: {picture}")

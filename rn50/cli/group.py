"""The command that all verbs belong to, how it ends where something goes wrong, and the options that several verbs have."""

import pathlib
import signal
from typing import Any

import click

import rn50
from rn50 import rules
from rn50.errors import RankLostError, UserError


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
            context.exit(report(error))


def report(error: Exception) -> int:
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


paths = click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=pathlib.Path))
rulesets = click.option(
    "--ruleset", "rulesets", multiple=True, default=("1.0.0", "1.1.0", "2.0.0", "4.0.0"), show_default=True,
    help=f"Version of the official rules, of {', '.join(rules.RULESETS)}; may be given several times.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(rn50.__version__, prog_name="rn50")
@click.option("--debug", is_flag=True, envvar="RN50_DEBUG",
              help="Show the traceback of a fault. RN50_DEBUG=1 does so in every process of a run.")
def main(debug: bool) -> None:
    """ResNet-50 time-to-accuracy: train, score and check MLPerf-style results."""

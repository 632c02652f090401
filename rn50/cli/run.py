"""Verbs on runs, and on the machine and the configuration of a run. The hidden verbs at the end are called by
scripts and by other verbs: ``run_experiments.sh`` calls ``summary``, ``run_and_time.sh`` calls ``launch``,
which starts ``train`` as every rank."""

import contextlib
import pathlib
import shlex
import sys

import click

from rn50 import process
from rn50.benchmark import rules
from rn50.cli import group, ranks
from rn50.cli.group import PATH, flag, option
from rn50.cli.numbers import Whole
from rn50.errors import Status, UserError
from rn50.files import ROOT, refuse_without_checkout
from rn50.packages import needed_for
from rn50.settings import config as configuration
from rn50.terminal import Terminal, print_json, print_rows, say

set_up = group.main.under("Set up and data")
verb = group.main.under("Run")

_COUNT = Whole(1, 10_000)


@set_up("doctor", "Examine this machine, and name each fix", "DATADIR=/path/to/imagenet rn50 doctor MINE")
@group.config_with_values
@group.as_json("rn50.doctor.doctor.Examination")
@flag("--brief", "Print only what fails or warns, on standard error.")
def doctor(name: str | None, values: tuple[str, ...], as_json: bool, brief: bool) -> None:
    """Tell what this machine can run, what not and why, and the command that fixes it.

    Looks at CONFIG; where none is named, at every system of configs/.

    Exit status: 0 the system can run, 1 it cannot.
    """
    from rn50.doctor.doctor import configured, show

    can_run = show(configured(name, values), as_json, brief)
    sys.exit(Status.SUCCESS if can_run else Status.FAULT)


@set_up("config", "Show a configuration, or write a new one", "rn50 config show DEMO_CPU", cls=group.Verbs)
def config_group() -> None:
    """Look at configurations: the files configs/config_NAME.sh, and yours.

    rn50 doctor lists them, with what can run here.
    """


@config_group.verb("show", "Show every value, and what it means", "rn50 config show NF5688M6_PYTORCH")
@group.config_with_values
@flag("--set-only", "Leave out defaults: only what the file or the environment sets.")
@group.as_json("rn50.settings.show.Shown")
def config_show(name: str | None, values: tuple[str, ...], set_only: bool, as_json: bool) -> None:
    """Show every value of CONFIG, what it means, and whether it is used, passed through, without effect or
    ignored.

    The last lines name what is set in vain, and what the closed division does not allow.
    """
    from rn50.settings import show

    show.show(name, values, set_only, as_json)


@config_group.verb("new", "Write a configuration for this machine", "rn50 config new MINE")
@click.argument("name")
@option(
    "--from",
    "Take hyperparameters and data of this configuration, a file or a name of configs/ [default: what "
    "rn50 plan advises; without a GPU DEMO_CPU].",
    "base",
    metavar="SYSTEM",
)
@group.output("[default: configs/config_NAME.sh]")
@option(
    "--framework",
    "[default: an installed one that can use this machine, else what suits its GPUs]",
    metavar="NAME",
)
@option("--for", 'Of GPUs that are not here, as "4 x RTX-4090", "4 x 24GB 8.9".', "planned", metavar="GPUS")
@flag("--force", "Replace a file that exists.")
@group.as_json("rn50.new_config.new_config.NewConfig")
def config_new(
    name: str,
    base: str | None,
    output: pathlib.Path | None,
    framework: str | None,
    planned: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a complete configuration called NAME for this machine, every value with its reason.

    With GPUs it trains on ImageNet, at the batch size that fits their memory with the fewest minutes that
    rn50 plan predicts, with the published hyperparameters that it names. Without one it trains on the demo
    data set. Input settings are defaults, which rn50 tune input improves. --for takes the number of GPUs and
    the name that rn50 plan has for them, or memory and compute capability, in place of this machine's.
    """
    from rn50.machine import hardware, software
    from rn50.new_config import choices, new_config
    from rn50.settings import document, writing

    file = new_config.file_for(name, output)
    writing.refuse_output(file, force)
    source = document.find(base) if base else None
    # The machine and its software: this machine, or one that has the GPUs of --for.
    facts = (hardware.read(), software.read()) if planned is None else choices.planned(planned)
    new = new_config.make(name, *facts, source, framework, file)
    writing.write(new.text, file, force)
    print_json(new) if as_json else print_rows(new.rows, Terminal())


@verb("run", "Make the five runs of a result", "rn50 run DEMO_CPU")
@group.config_with_values
@group.against
@option("--runs", "Runs of the campaign.", default=rules.RUNS, type=_COUNT)
@group.output("Folder of the results [default: results/CONFIG].", "results")
@option(
    "--save-weights",
    "Save the weights that each run ends with, or with best those of its best evaluation, as "
    "result_N.safetensors: SAVE_WEIGHTS. [default: what CONFIG says]",
    is_flag=False,
    flag_value="last",
    type=click.Choice(["0", "last", "best"]),
)
@flag("--resume", "Go on from the last checkpoint (CHECKPOINT_EPOCHS) of an interrupted run: RESUME=1.")
@option(
    "--tensorboard",
    "Write loss, images/s, learning rate and top-1 there, a folder a run, for tensorboard --logdir DIR. "
    "Wants the package tensorboardX.",
    type=click.Path(path_type=pathlib.Path, file_okay=False),
    metavar="DIR",
)
@group.as_json("rn50.results.scoreboard.Scores", **{"--against": "rn50.launch.campaign.turns.Turns"})
def run_campaign(
    name: str | None,
    values: tuple[str, ...],
    against: tuple[str, ...],
    runs: int,
    results: pathlib.Path | None,
    save_weights: str | None,
    resume: bool,
    tensorboard: pathlib.Path | None,
    as_json: bool,
) -> None:
    """Make the timed runs of CONFIG, each with a fresh seed; check each, score them, and write the report.

    It does what ./run_experiments.sh does, with one live view on a terminal. Runs of CONFIG that are there
    already are kept, and one that was interrupted starts from zero or, with --resume, from its last
    checkpoint; so the same command resumes. Runs of another configuration or of other data end it; the same
    data may move to another folder. --json prints the score at the end, in the form of rn50 score.

    With --against the runs of two configurations alternate, and their comparison is the end, also pair by
    pair. Each has a folder of its own: results/CONFIG, or one below that of --output.

    Exit status: 0 every check passed, 1 one did not, 2 something to fix.
    """
    from rn50.doctor.doctor import show_brief, unchosen
    from rn50.launch.campaign import turns, watch
    from rn50.results import score, scoreboard
    from rn50.run.display import CURVES
    from rn50.settings import document, named

    refuse_without_checkout("rn50 run")
    options = {"SAVE_WEIGHTS": save_weights, "RESUME": "1" if resume else None}
    variables = {variable: value for variable, value in options.items() if value}
    if tensorboard:
        # Find out before the first run that the package is missing.
        with needed_for("--tensorboard"):
            import tensorboardX  # noqa: F401
        variables[CURVES] = str(tensorboard.absolute())
    choice = named.Choice(document.find(name), values)
    choices = [choice, named.against(choice, against)] if against else [choice]
    output = results or process.environment().get("RESULTS")
    sides = []
    with contextlib.ExitStack() as stack:
        for chosen in choices:
            folder = pathlib.Path(output, chosen.system) if output and against else output
            # The configuration file and the folder of the results. The context removes what it has made if
            # the command is refused.
            sides.append(turns.Side(*stack.enter_context(named.file_in(folder, chosen))))
            # Warn if --set changes a value and not another one that depends on it.
            if chosen.values:
                show_brief(unchosen(chosen.config))
        if against:
            status = turns.make_missing(sides, runs, as_json, variables)
        else:
            status = watch.make_missing(*sides[0], runs, as_json, variables)
    # With any other status the campaign ended before its runs were checked and scored.
    if status in (Status.SUCCESS, Status.FAULT):
        if against:
            compared = turns.compared(sides)
            print_json(compared) if as_json else turns.show(compared, Terminal())
        elif as_json:
            print_json(scoreboard.Scores(score.score([sides[0].folder])))
    sys.exit(status)


@verb("watch", "Show a campaign that runs elsewhere", "rn50 watch results/DEMO_CPU")
@click.argument("results", type=PATH)
@option("--runs", "Runs of the campaign [default: what its runs have saved, else 5].", type=_COUNT)
@group.as_json("rn50.launch.campaign.state.Campaign")
def watch_campaign(results: pathlib.Path, runs: int | None, as_json: bool) -> None:
    """Show the campaign whose logs grow in RESULTS, from these alone, until all runs have ended. Ctrl-C ends
    the watching only.

    RESULTS is a folder, or a system of configs/, whose results are in results/. With --json it prints the
    state once.
    """
    from rn50.launch.campaign import state, watch
    from rn50.settings.document import systems

    if not results.exists() and str(results) in systems():
        results = ROOT / "results" / results
    if as_json:
        watch.refuse_missing(results)
        print_json(state.read(results, runs))
    else:
        watch.watch(results, runs)


@group.main.command("summary", hidden=True, epilog="Example: ./run_experiments.sh calls it after each run.")
@group.paths
@click.option("--system", required=True)
@flag("--so-far", "Some runs are still to come: write the report only.")
@flag("--kept", "Examine the runs that are there already.")
@flag("--expected", "Before the first run: say what the file expects of one.")
def summary(paths: tuple[pathlib.Path, ...], system: str, so_far: bool, kept: bool, expected: bool) -> None:
    """Check and score the runs of a campaign, write the report, and say what came out."""
    from rn50.launch.campaign import kept as kept_runs
    from rn50.launch.campaign import summary
    from rn50.settings import document, header, named

    if kept:
        kept_runs.examine(paths, system, named.Choice(document.find(None)).config)
    elif expected:
        if text := header.of(named.read(None)).get("expected"):
            say(f"expected of a run: {text}")
    elif so_far:
        summary.so_far(paths)
    else:
        sys.exit(summary.end(paths, system))


class _ForScripts(click.Command):
    """A verb that scripts call, without arguments, and with a configuration in the environment. Otherwise a
    person has typed it, and its error names ``rn50 run``, which that person was looking for."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        environ = process.environment()
        wants_help = not {*args}.isdisjoint(context.help_option_names)
        if not wants_help and (args or environ.keys().isdisjoint(("OPTIMIZER", "BATCHSIZE", "LR"))):
            command = f"rn50 run {shlex.join(args) or 'DEMO_CPU'}"
            raise UserError(f"rn50 {self.name}", "scripts call it, without arguments", f"to train: {command}")
        return super().parse_args(context, args)


@group.main.command(
    "launch",
    cls=_ForScripts,
    hidden=True,
    epilog="Example: DGXSYSTEM=DEMO_CPU ./run_and_time.sh calls it with the environment of "
    "configs/config_DEMO_CPU.sh",
)
def launch_run() -> None:
    """Start every rank of the system that the environment describes, for one timed run."""
    from rn50.launch.job import launch
    from rn50.settings import named

    sys.exit(launch(named.of_scripts(process.environment())))


@group.main.command(
    "train", cls=_ForScripts, hidden=True, epilog="Example: rn50 run DEMO_CPU --runs 1 calls it."
)
@click.pass_context
def train(context: click.Context) -> None:
    """Be one rank of a timed run (rn50 launch starts them).

    Exit status: 0 target reached, 3 target missed, 4 the training loss is not a number, 2 something to fix,
    1 a fault.
    """
    config = configuration.from_environment()
    ranks.bind(config)

    # Imported behind ``bind``, because NumPy and the frameworks start threads.
    from rn50.run import loop, tensorboard, timed_run
    from rn50.run.display import CURVES, PROGRESS, LiveDisplay, ProgressLineDisplay

    try:
        environ = process.environment()
        display_type = ProgressLineDisplay if environ.get(PROGRESS) else LiveDisplay
        with (
            display_type(config, Terminal(stderr=True)) as inner,
            tensorboard.recording(inner, config, environ.get(CURVES)) as display,
        ):
            outcome = timed_run.run(config, loop.Rank, display)
    except Exception as error:
        if context.find_root().params["debug"]:
            raise
        # Skip the exit handlers of native libraries: they would wait for ranks that have ended, or print
        # errors about them.
        group.end_at_once(group.report(error))
    sys.exit(Status.SUCCESS if outcome.reached_target else Status.TARGET_MISSED)

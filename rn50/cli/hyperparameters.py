"""Verbs on hyperparameters: predict epochs and minutes, borrow proven ones, search better ones."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from rn50 import files
from rn50.benchmark import rules
from rn50.cli import group
from rn50.cli.group import PATH, flag, option
from rn50.cli.numbers import MOST_IMAGES, MOST_WORKERS, Number, RatesBySize, Whole
from rn50.errors import UserError
from rn50.terminal import Terminal, print_json, say

verb = group.main.under("Hyperparameters")
_PLAN = "rn50.hyperparameters.plan"


def _global_batch_size(help_: str) -> Any:
    """Return the option ``--global-batch-size``."""
    return option("--global-batch-size", help_, "--gbs", type=Whole(1, MOST_IMAGES))


@verb(
    "plan",
    "Predict minutes and epochs of a system",
    "rn50 plan --accelerators 8 --global-batch-size 3200 --accelerator H100-SXM-80GB",
)
@click.argument("name", metavar="[CONFIG]", required=False, shell_complete=group.complete_configurations)
@flag("--open", "Plan the open recipe: that of CONFIG, else of DGXH100_OPEN.", "is_open")
@option("--accelerators", "How many, in all nodes [default: the curve to 4,096].", type=Whole(1, 1_000_000))
@_global_batch_size("[default: the one that takes the fewest minutes]")
@option("--accelerator", "Its name, or a part of it [default: the most published one].", metavar="NAME")
@option(
    "--images-per-second",
    "Of each accelerator, measured while training with so many of them at that batch size; of the open "
    "recipe by size of the images, and of the input alone: 224:9424,160:16873,input:22720.",
    "rates",
    type=RatesBySize(0.001, 1e9),
    metavar="RATE|SIZE:RATE,...",
)
@flag("--curve", "The curve from 1 to 4,096 accelerators, each at its best batch size.")
@option(
    "--plot", "Curve as .png, .svg or .pdf.", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE"
)
@group.as_json(
    f"{_PLAN}.planner.Plan",
    **{"--curve": f"{_PLAN}.display.ScaleOut", "--open": f"{_PLAN}.open_recipe.OpenPlan"},
)
def plan(
    name: str | None,
    is_open: bool,
    accelerators: int | None,
    global_batch_size: int | None,
    accelerator: str | None,
    rates: float | dict[str, float] | None,
    curve: bool,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Predict epochs and minutes to 75.9 % on ImageNet of a planned system, from published results (LARS,
    closed division).

    Epochs are those of the batch size, images/s those of the accelerator at that scale, published or measured
    by you; evaluations and start-up are added. docs/measurements.md says how far off it was on published
    results that were left out. Also says which published hyperparameters to borrow.

    Of CONFIG, a configuration of the open recipe, or with --open: minutes from the sizes of its images by
    epoch and your images/s of each size.
    """
    from rn50.hyperparameters.plan import display, open_recipe, planner
    from rn50.settings import named

    if name or is_open:
        if global_batch_size or curve or plot:
            raise UserError("--global-batch-size, --curve, --plot", "not of an open plan", "leave them out")
        opened = open_recipe.plan(named.read(name or open_recipe.RECIPE), rates, accelerators)
        print_json(opened) if as_json else open_recipe.show(opened, accelerator, Terminal())
        return
    if isinstance(rates, dict):
        raise UserError("--images-per-second", "sizes are of the open recipe", "give --open, or RATE alone")

    if global_batch_size and not accelerators:
        raise UserError("--global-batch-size without --accelerators", "give both, or neither for the curve")
    predictor, chip = planner.planner_for(accelerator, rates, accelerators, global_batch_size)
    plans = predictor.curve(chip) if curve or plot or not accelerators else []
    if plot:
        display.draw_curve(plans, predictor.results, plot)
        say(f"plot: {plot}", err=True)
    if curve or not accelerators:
        print_json(display.ScaleOut(chip, plans)) if as_json else display.print_curve(plans, Terminal())
        return
    if global_batch_size:
        prediction = predictor.plan(chip, accelerators, global_batch_size)
    else:
        prediction = predictor.best(chip, accelerators)
    prediction = predictor.with_this_code(prediction)
    print_json(prediction) if as_json else display.print_plan(prediction, Terminal())


def sources(context: click.Context, argument: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return completions of the name of a published result or a reference convergence point, or of a path if
    no name begins so."""
    from rn50.hyperparameters.borrow import origin

    names = [CompletionItem(name) for name in origin.names() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


@verb(
    "borrow",
    "Take over proven hyperparameters",
    "rn50 borrow v1.0/Inspur/nf5688m6_mxnet DGXA100 -o config_MINE.sh",
)
@click.argument("source", required=False, shell_complete=sources)
@group.config
@_global_batch_size("Another global batch size than the source's; nothing else changes with it.")
@option("--only", "Take only these variables, like LR,WARMUP_EPOCHS; the header says so.", metavar="NAMES")
@flag("--partial", "Take what the source has where it lacks a value; the header labels the mix.")
@group.output("Write the configuration there; by default it is shown what would change.")
@flag("--force", "Replace a file that exists.")
@flag("--suggest", "Rank what may be borrowed for a global batch size.")
@option("--optimizer", "For --suggest.", default="lars", type=click.Choice(rules.OPTIMIZERS))
@option("--limit", "For --suggest: how many.", "-n", default=10, type=Whole(1, 1_000))
@group.as_json(
    "rn50.hyperparameters.borrow.borrow.Borrowed",
    **{"--suggest": "rn50.hyperparameters.borrow.display.Suggestion"},
)
def borrow(
    source: str | None,
    name: str | None,
    global_batch_size: int | None,
    only: str | None,
    partial: bool,
    output: Path | None,
    force: bool,
    suggest: bool,
    optimizer: str,
    limit: int,
    as_json: bool,
) -> None:
    """Give CONFIG the hyperparameters of somebody else's run, taken whole.

    SOURCE is a published result (v1.0/Inspur/nf5688m6_mxnet), a reference convergence point (rcp/3264,
    rcp/1.0.0/2048), a result log or a folder of them, or a configuration file. Of the last only assignments
    are read: nothing of it is run. Shown are what changes, what leaves the closed division's rules, and the
    epochs to expect from published runs of that very recipe.
    """
    from rn50.hyperparameters import expected_epochs
    from rn50.hyperparameters.borrow import display, origin
    from rn50.hyperparameters.borrow.borrow import borrow as borrowed_from
    from rn50.settings import document, writing

    if suggest:
        if source or not global_batch_size:
            problem = "--suggest wants --global-batch-size and no SOURCE"
            raise UserError(problem, "rn50 borrow --suggest --global-batch-size 3264")
        recipes = expected_epochs.candidates(global_batch_size, optimizer)[:limit]
        if as_json:
            print_json([display.Suggestion(recipe, recipe.expected(global_batch_size)) for recipe in recipes])
        else:
            display.print_suggestions(recipes, global_batch_size, Terminal())
        return
    forms = f"{origin.FORMS}; --suggest --gbs N ranks what there is"
    if not source:
        raise UserError(f"borrow from what? give {forms}")
    names = tuple(filter(None, (only or "").replace(" ", "").split(",")))
    donor = origin.find(source, forms)
    borrowed = borrowed_from(donor, document.find(name), global_batch_size, names, partial)
    if output:
        writing.write(borrowed.text, output, force)
        borrowed = dataclasses.replace(borrowed, output=output)
    print_json(borrowed) if as_json else display.print_table(borrowed, Terminal())


@verb(
    "search",
    "Search better ones, confirmed by fresh seeds",
    "DATADIR=/data/tune rn50 search DEMO_CPU -o search/demo --workers 2 --minutes 110 "
    "--confirm-data data/demo",
)
@group.config
@group.output("Folder of the search, its trials and its report.", "folder", required=True)
@option("--workers", "Runs at a time, each on a share of the cores.", default=1, type=Whole(1, MOST_WORKERS))
@option("--trials", "Search with so many runs at most.", type=Whole(1, 100_000))
@option(
    "--minutes",
    "Begin no trial that would leave less of these minutes, from this call on, than the confirmation takes.",
    type=Number(0.0001, 10_000),
)
@option("--repeats", "Runs that a point needs to become the best.", default=3, type=Whole(1, 1_000))
@option("--seeds-to-confirm", "Runs of winner and of baseline.", default=rules.RUNS, type=Whole(2, 1_000))
@option("--confirm-data", "Data to confirm on, other than those searched on.", type=PATH, metavar="DIR")
@group.as_json("rn50.hyperparameters.search.report.SearchOutcome")
def search(
    name: str | None,
    folder: Path,
    workers: int,
    confirm_data: Path | None,
    as_json: bool,
    **limits: Any,  # trials, minutes, repeats, seeds_to_confirm: fields of ``Options``
) -> None:
    """Search hyperparameters with which CONFIG reaches the target in fewer epochs, and confirm them with
    fresh seeds.

    DATADIR is the data. Learning rate first in factors of ten, then in steps of 10 %; batch size with the
    learning rate scaled along; then warm-up, weight decay and schedule length. A trial is a normal run,
    evaluated after every epoch, and stopped as soon as it cannot be better than the best. At the end the best
    point and the baseline, the first that reached the target, run again with fresh seeds.

    Stopped or killed, the same command goes on.

    Exit status: 0 also where nothing better was found; "stands" of --json tells.
    """
    from rn50.data import preflight
    from rn50.hyperparameters.search import report, subject
    from rn50.hyperparameters.search.search import Search, shares
    from rn50.hyperparameters.search.trial_scheduler import Options, TrialScheduler

    if confirm_data:
        preflight.check_files(confirm_data)
    search_subject = subject.read(name)
    cores = shares(workers, search_subject.config.run.device)
    files.make_folder(folder, "give another --output")
    with files.only_process(folder, "searching, or ending the runs of a search,") as lock:
        options = Options(workers=workers, confirm_data=confirm_data and confirm_data.resolve(), **limits)
        scheduler = TrialScheduler(search_subject, folder, options)
        if stopped_by := Search(scheduler, cores, lock).run():
            say(f"rn50: stopped by {stopped_by.name}; the same command goes on", err=True)
            sys.exit(128 + stopped_by)
        outcome = report.SearchOutcome(scheduler, sys.argv[1:])  # the report quotes the command
        outcome.write()
    if as_json:
        print_json(outcome)
    else:
        say(outcome.sentence)
        say(f"report: {folder / report.REPORT}")
        if outcome.config_file:
            say(f"configuration: {outcome.config_file}")

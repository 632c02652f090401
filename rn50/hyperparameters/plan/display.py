"""Output of ``rn50 plan``: a plan as sentences (``print_plan``), or the scale-out curve as a table
(``print_curve``), a picture (``draw_curve``) or JSON (``ScaleOut``)."""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from rn50 import files
from rn50.errors import UserError
from rn50.hyperparameters.plan.epochs import CONFIDENCE
from rn50.hyperparameters.plan.images_per_second import Spread
from rn50.hyperparameters.plan.planner import BORROWED, Plan
from rn50.results import chips
from rn50.results.published import PublishedResult
from rn50.terminal import Terminal, table

MEASURE = "this is others' code; to narrow the interval, time 30 seconds of yours "
MEASURE += "(rn50 bench throughput CONFIG --seconds 30) and plan with --images-per-second"


class ScaleOut(NamedTuple):
    """A plan for each number of accelerators of one kind, at the best batch size for this number."""

    accelerator: str
    """Name of the accelerator."""
    curve: Sequence[Plan]
    confidence: float = CONFIDENCE
    """Share of results that the intervals are meant to hold."""


def print_plan(plan: Plan, console: Terminal) -> None:
    """Print the predictions, that for this code first, the hyperparameters to borrow, the cautions, and the
    command that borrows."""
    prediction, recipe = plan.prediction, plan.hyperparameters
    columns = ((column, of_result(recipe.source)) for column, of_result in BORROWED.items())
    values = ", ".join(f"{column} {value}" for column, value in columns if value is not None)
    machine = f"{plan.accelerators:,} x {plan.accelerator} at global batch {plan.global_batch_size:,}"
    machine += ", with others' code" if plan.this_code else ""
    lines = [
        *([plan.this_code.sentence] if plan.this_code else []),
        f"{machine}: {_minutes(prediction.minutes)} minutes to 75.9 % top-1 ({CONFIDENCE:.0%} interval "
        f"{_minutes(prediction.minutes_low)} to {_minutes(prediction.minutes_high)})",
        f"{prediction.epochs:.3g} epochs ({prediction.epochs_low:.3g} to "
        f"{prediction.epochs_high:.3g}) at {prediction.images_per_second_per_accelerator:,.0f} images/s per "
        f"accelerator (give or take {prediction.spread:.0%}), about {prediction.evaluations:.0f} "
        "evaluations",
        # A measurement is advised if it would narrow the interval clearly.
        *([MEASURE] if prediction.spread > 1.5 * Spread.measured else []),
        f"hyperparameters to borrow, whole: {recipe.source.name}: {values}",
        f"{recipe.results} published {'result has' if recipe.results == 1 else 'results have'} them: "
        f"{recipe.runs - recipe.missed} of {recipe.runs} runs reached the target, in {recipe.epochs:.3g} "
        "epochs on the mean",
    ]
    if recipe.source.recipe.global_batch_size != plan.global_batch_size:
        recipe_batch = f"{recipe.source.recipe.global_batch_size:,}"
        lines.append(f"they were chosen for global batch {recipe_batch}; the rules let you change that")
    for line in [*lines, *(f"caution: {caution}" for caution in plan.cautions), plan.command]:
        console.print(line)


def print_curve(plans: Sequence[Plan], console: Terminal) -> None:
    """Print a row for each number of accelerators, and the cautions of all plans."""
    title = f"{plans[0].accelerator}, each number of them at its best batch size; {CONFIDENCE:.0%} intervals"
    console.print(title, style="bold")
    rows = table(("accelerators", "global batch", "epochs", "img/s each", "minutes", "interval"))
    for plan in plans:
        prediction = plan.prediction
        numbers = f"{plan.accelerators:,}", f"{plan.global_batch_size:,}", f"{prediction.epochs:.3g}"
        rate = f"{prediction.images_per_second_per_accelerator:,.0f}"
        interval = f"{_minutes(prediction.minutes_low)} - {_minutes(prediction.minutes_high)}"
        rows.add_row(*numbers, rate, _minutes(prediction.minutes), interval)
    console.print(rows)
    for caution in dict.fromkeys(sentence for plan in plans for sentence in plan.cautions):
        console.print(f"caution: {caution}")
    console.print("this is others' code; --accelerators N adds this code, if known, and the recipe to borrow")


def draw_curve(plans: Sequence[Plan], results: Sequence[PublishedResult], file: pathlib.Path) -> None:
    """Draw predicted minutes and best batch size over the number of accelerators, in the format of the suffix
    of ``file``. The published ``results`` with this accelerator are drawn as crosses.

    Raises:
        UserError: the suffix is not in ``plots.FORMATS``, or the file cannot be written.
    """
    from rn50.results.report import plots  # imports matplotlib, which the other functions do not need

    form = file.suffix.lower()[1:]
    if form not in plots.FORMATS:
        problem = f"the name does not end in .{', .'.join(plots.FORMATS)}"
        raise UserError(f"--plot {file}", problem, "give --plot such a file")
    same = [result for result in results if chips.name(result.accelerator_model) == plans[0].accelerator]
    dots = [(r.accelerators, r.olympic_minutes) for r in same if r.accelerators and r.olympic_minutes]
    x = [plan.accelerators for plan in plans]
    figure = plots.figure(7, 5.5)
    above, below = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": (2, 1)})
    low = [plan.prediction.minutes_low for plan in plans]
    high = [plan.prediction.minutes_high for plan in plans]
    above.fill_between(x, low, high, alpha=0.25, linewidth=0, label=f"{CONFIDENCE:.0%} interval")
    above.plot(x, [plan.prediction.minutes for plan in plans], marker="o", markersize=4, label="predicted")
    if dots:  # ``zip`` makes of the pairs all numbers of accelerators, then all minutes
        label = "published, at any batch size"
        above.plot(*zip(*dots, strict=False), "x", color="black", markersize=4, label=label)
    above.set(ylabel="minutes to 75.9 %", yscale="log", title=plans[0].accelerator)
    above.legend()
    below.plot(x, [plan.global_batch_size for plan in plans], drawstyle="steps-mid", marker="o", markersize=4)
    below.set(ylabel="best global batch", yscale="log", xlabel="accelerators")
    below.set_xscale("log", base=2)
    for axis in (above.yaxis, below.yaxis, below.xaxis):
        axis.set_major_formatter("{x:,g}")
        axis.axes.grid(True, linewidth=0.4)
    # Our own files may be replaced. They are known by a mark at their beginning; a PDF has it at its end, so
    # no PDF is replaced.
    may_replace = files.NOTHING if form == "pdf" else files.OURS
    files.write(file, plots.picture(figure, form), may_replace, "give --plot another file")


def _minutes(value: float) -> str:
    """Return minutes with three digits, or more before the point."""
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"

"""Output of ``rn50 borrow``: the changes, findings and expected epochs of a borrowed configuration
(``print_table``), or with --suggest the candidates for a batch size (``print_suggestions``)."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table

from rn50.benchmark.recipe import HYPERPARAMETERS, SHARED
from rn50.hyperparameters.borrow.borrow import Borrowed, command
from rn50.hyperparameters.expected_epochs import DISTANCE_EPOCHS, Proven
from rn50.printed import Inline
from rn50.terminal import Terminal


class Suggestion(NamedTuple):
    """A recipe for a batch size, as --json prints it."""

    recipe: Inline[Proven]
    expected: float
    """Epochs to expect at this batch size; the list is sorted by them."""


def print_table(borrowed: Borrowed, console: Terminal) -> None:
    """Print the changed variables and where their values come from, the departures from the rules and the
    expected epochs."""
    source = borrowed.origin
    console.print(f"{source.kind} {source.name} for {borrowed.config.run.system}", style="bold")
    table = Table("variable", "before", "after", "from")
    for change in borrowed.changes:
        style = "" if change.before == change.after else "bold"
        table.add_row(change.name, change.before or "-", change.after or "-", change.origin, style=style)
    console.print(table)
    lines = [f"global batch size: {borrowed.config.global_batch_size} on {borrowed.config.ranks} ranks"]
    # The first entry of the header is the command, which the user has just given.
    lines += [f"{name}: {text}" if name else text for name, text in borrowed.header[1:]]
    lines += [f"rules: {finding}" for finding in borrowed.findings]
    lines.append(f"epochs to expect: {borrowed.expected}")
    if borrowed.prediction and borrowed.prediction.runs and borrowed.config.is_imagenet:
        lines.append("a published set of five runs has one miss at most, so more may miss than that")
    nothing = "nothing is written; --output FILE writes it"
    lines.append(f"written: {borrowed.output}" if borrowed.output else nothing)
    for line in lines:
        console.print(line)


def print_suggestions(recipes: Sequence[Proven], global_batch_size: int, console: Terminal) -> None:
    """Print a row for each recipe, and the command that borrows the first one. A hyperparameter that is the
    same in all recipes is printed once, above the rows.

    The name of the source ends the row, or has a line of its own if the terminal is too narrow. It is never
    folded, because users copy it.
    """
    texts = {}  # heading of a column -> its text for each recipe
    for name in (name for name in SHARED if name != "optimizer"):
        heading = HYPERPARAMETERS[name].heading or HYPERPARAMETERS[name].shown
        texts[heading] = [f"{getattr(recipe.values, name):g}" for recipe in recipes]
    # The hyperparameters that are the same in all recipes.
    common = [heading for heading, cells in texts.items() if len(recipes) > 1 and len(set(cells)) == 1]
    predictions = [recipe.prediction for recipe in recipes]
    texts["epochs"] = [f"{epochs.mean:.1f} ({epochs.low:g}-{epochs.high:g})" for epochs in predictions]
    texts["missed"] = [f"{epochs.missed}/{epochs.runs}" for epochs in predictions]
    texts["expected"] = [f"{recipe.expected(global_batch_size):.1f}" for recipe in recipes]
    columns = [[heading, *cells] for heading, cells in texts.items() if heading not in common]
    # The first column numbers the rows.
    columns.insert(0, ["", *map(str, range(1, len(recipes) + 1))])
    widths = [max(map(len, column)) for column in columns]
    padded = ([cell.rjust(width) for cell in column] for column, width in zip(columns, widths, strict=True))
    # The line of headings, then a line for each recipe; beside or below it comes the name of its source.
    lines = ["  ".join(row) for row in zip(*padded, strict=True)]
    sources = ["source", *(recipe.name for recipe in recipes)]
    sources_fit = len(lines[0]) + 2 + max(map(len, sources)) <= console.width
    console.print(f"Recipes for a global batch size of {global_batch_size:,}", style="bold")
    if common:
        console.print(f"All have {', '.join(f'{heading} {texts[heading][0]}' for heading in common)}.")
    console.print("")
    # A source that does not fit stands below its line; the line of headings then has none.
    for line, source in zip(lines, sources, strict=False):
        console.print(f"{line}  {source}" if sources_fit else line)
        if not sources_fit and line is not lines[0]:
            console.print(f"{' ' * widths[0]}  {source}")
    console.print("")
    for line in (
        "warm-up, decay: epochs in which the learning rate rises, and after which it has decayed",
        "epochs: mean (fewest-most) of the published runs that reached the target; missed: runs that did not",
        f"expected: epochs at this batch size as far as the reference tells, and {DISTANCE_EPOCHS:g} more "
        "for every factor of two between the batch sizes; use it to rank, not to predict",
        command(recipes[0].name, recipes[0].values.global_batch_size, global_batch_size),
    ):
        console.print(line)

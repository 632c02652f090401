"""Tables of ``rn50 bench throughput``, for ``throughput.py``: the ``overview``, every cell in detail
(``details``), the parts of a step of every cell (``steps``). A cell is a measured combination of framework,
model, precision, batch size and ranks. The functions return rows of text, for the report in Markdown;
``show_table`` prints them on a terminal.
"""

import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from rn50.printed import prints
from rn50.speed import worker
from rn50.speed.cell import Cell, Result
from rn50.terminal import Terminal, safe

Row = list[str]
Titled = tuple[str, Sequence[str], list[Row]]
"""(title, headings, rows) of a table."""
DETAILS = ("framework", "precision", "batch", "ranks", "median", "lowest to highest", "scaling")
LEFT = ("framework", "precision")
"""Headings of the columns that are aligned on the left; all others have numbers, aligned on the right."""
STEPS = ("framework", "precision", "batch", "ranks", "ms", "forward", "sums", "loss", "to float32", "img/s/W")
"""Headings of the table of steps. ms: milliseconds of a step; forward: images/s of the forward pass alone;
sums: time of the all-reduce alone as a share of the step; loss: after 20 steps; to float32: the loss less
that in float32; img/s/W: images/s a watt, left out if no cell has it."""


class MeasuredCell(NamedTuple):
    """A result, compared with the results of other cells."""

    result: Result
    image_size: int
    """Side of an image in pixels."""
    scaling: dict[Annotated[str, "data"], float | None]
    """images/s of a rank divided by those of the cell that differs only by the fewest ranks; null: this is
    that cell."""
    loss_to_float32: float | None
    """Loss less that of the same cell in float32; null: float32 was not measured."""


prints(
    MeasuredCell,
    lambda r: (r.result.cell, r.image_size, {"images_per_second": r.result.rates}, r.scaling),
    lambda r: (r.result.step, r.loss_to_float32, r.result.failure, r.result.log, r.result.ratios),
)


def rate(value: float) -> str:
    """Return images/s as text, below 10 with a decimal, so that slow models can be told apart."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _column(result: Result) -> Cell:
    """Return the column of the overview that a result belongs to, as a cell with only its precision, batch
    size, ranks and nodes."""
    return result.cell._replace(framework="", model="", image_size=None, hosts=None, setting=None)


def columns(results: Sequence[Result]) -> list[Cell]:
    """Return the columns of the overview, as ``_column``: sorted by precision in the order of the results,
    then by ascending nodes, ranks and batch size."""
    distinct = dict.fromkeys(map(_column, results))
    precisions = list(dict.fromkeys(column.precision for column in distinct))

    def sort_key(column: Cell) -> tuple[int, ...]:
        return precisions.index(column.precision), column.nodes, column.ranks, column.batch_size

    return sorted(distinct, key=sort_key)


def overview(results: Sequence[Result], kind: str, linked: bool = False) -> list[Row]:
    """Return a row for each framework and model that trained on a kind of data. It has the name, then for
    each of the ``columns`` the images/s, or the reason why there are none. If ``linked``, these texts are
    links to the log."""
    rows: dict[str, dict[Cell, str]] = {}
    for result in results:
        if kind in result.rates:
            text = rate(result.rates[kind].median)
        elif result.rates:  # a model of a zoo trains on synthetic data alone
            continue
        else:
            # Show the reason itself if there is no log to look into, or memory was too small; else "failed".
            is_short = not result.log or result.failure == worker.OUT_OF_MEMORY
            text = result.failure if is_short else "failed"
        link = f"[{text}]({result.log})" if linked and result.log else text
        rows.setdefault(result.cell.trained, {})[_column(result)] = link
    return [[name, *(row.get(column, "") for column in columns(results))] for name, row in rows.items()]


def details(results: Sequence[MeasuredCell], kind: str) -> Titled:
    """Return the table of ``DETAILS`` with a row for every cell that trained on a kind of data or failed."""
    rows = []
    for result, _, scaling, _ in results:
        if kind in result.rates:
            median, lowest, highest = map(rate, result.rates[kind])
            factor = "" if scaling[kind] is None else f"{scaling[kind]:.2f}"
            rows.append([*result.cell.names, median, f"{lowest} to {highest}", factor])
        elif not result.rates:
            rows.append([*result.cell.names, "", result.failure, ""])
    return f"Every cell on {kind} data", DETAILS, rows


def steps(results: Sequence[MeasuredCell]) -> Titled:
    """Return the table of ``STEPS`` with a row for every result with figures."""
    rows = []
    for result, _, _, loss_to_float32 in results:
        if step := result.step:
            row = [
                *result.cell.names,
                f"{1000 * step.seconds:,.1f}",
                rate(step.forward_images_per_second),
                "-" if step.communication is None else f"{step.communication:.1%}",
                f"{step.loss:.4f}",
                "-" if loss_to_float32 is None else f"{loss_to_float32:+.4f}",
                "" if step.images_per_joule is None else f"{step.images_per_joule:.3g}",
            ]
            rows.append(row)
    # The last column, img/s/W, is left out if no cell has it.
    width = len(STEPS) if any(row[-1] for row in rows) else len(STEPS) - 1
    return "A step of every cell", STEPS[:width], [row[:width] for row in rows]


def show_overview(results: Sequence[Result], kind: str, console: Terminal) -> None:
    """Print the overview of a kind of data. Its cells are folded only at their line breaks."""
    headings = ["\n".join([*column.precision.split(), *column.heading[1:]]) for column in columns(results)]
    show_table(["framework", *headings], overview(results, kind), console, 1, "\n")


def show_table(
    headings: Sequence[str], rows: Sequence[Row], console: Terminal, names: int = 4, unit: str | None = None
) -> None:
    """Print a table. If it is too wide for the terminal, print several tables of similar width instead, each
    with the first ``names`` columns of all and a part of the others.

    A text in the first column, a long name perhaps, is folded anywhere. In the other columns a text is folded
    only where it has the separator ``unit``, by default any blank.
    """
    # All texts of each column, a line each. A column is as wide as the longest piece that is not folded.
    texts = ["\n".join([heading, *(row[column] for row in rows)]) for column, heading in enumerate(headings)]
    widths = [len(headings[0]), *(max(map(len, text.split(unit))) for text in texts[1:])]
    others = range(names, len(headings))
    for number_of_tables in range(1, len(others) + 1):  # until all tables fit
        size = math.ceil(len(others) / number_of_tables)
        # The columns of each table, by number.
        parts = [[*range(names), *others[begin : begin + size]] for begin in range(0, len(others), size)]
        # A column takes its width, a blank on both sides and a line; the last line ends the table.
        if max(1 + sum(3 + widths[column] for column in part) for part in parts) <= console.width:
            break
    for part in parts:
        table = Table()
        for column in part:
            heading = Text("\n".join(map(safe, headings[column].split("\n"))))
            side: JustifyMethod = "left" if headings[column] in LEFT else "right"
            min_width = widths[column] if column else None
            table.add_column(heading, overflow="fold", min_width=min_width, justify=side)
        for row in rows:
            table.add_row(*(row[column] for column in part))
        console.print(table)

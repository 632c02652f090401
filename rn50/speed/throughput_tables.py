"""Tables of a throughput matrix, for its report and a terminal: overview, every cell in detail, its step."""

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
"""Title, headings and rows of a table."""
DETAILS = ("framework", "precision", "batch", "ranks", "median", "lowest to highest", "scaling")
LEFT = ("framework", "precision")
"""Headings of the columns whose cells begin on the left."""
STEPS = ("framework", "precision", "batch", "ranks", "ms", "forward", "sums", "loss", "to float32", "img/s/W")
"""Columns of a step: its milliseconds; forward: images/s of the forward pass alone; sums: share of the
all-reduce alone; the loss after 20 steps, and less that in float32; images/s a watt, if measured."""


class MeasuredCell(NamedTuple):
    """A result with its scaling."""

    result: Result
    image_size: int
    """Pixels a side."""
    scaling: dict[Annotated[str, "data"], float | None]
    """images/s a rank, relative to the same cell with the fewest ranks; null: this is that cell."""
    loss_to_float32: float | None
    """Loss less that of float32 in the same cell; null: float32 was not measured."""


prints(
    MeasuredCell,
    lambda r: (r.result.cell, r.image_size, {"images_per_second": r.result.rates}, r.scaling),
    lambda r: (r.result.step, r.loss_to_float32, r.result.failure, r.result.log),
)


def rate(value: float) -> str:
    """Return images/s as text, with enough digits to tell slow models apart."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _column(result: Result) -> Cell:
    """Return what the cells of a column have in common."""
    return result.cell._replace(framework="", model="", image_size=None, hosts=None)


def columns(results: Sequence[Result]) -> list[Cell]:
    """Return the columns of the overview, grouped by precision."""
    distinct = dict.fromkeys(map(_column, results))
    precisions = list(dict.fromkeys(column.precision for column in distinct))

    def place(column: Cell) -> tuple[int, ...]:
        return precisions.index(column.precision), column.nodes, column.ranks, column.batch_size

    return sorted(distinct, key=place)


def overview(results: Sequence[Result], kind: str, linked: bool = False) -> list[Row]:
    """Return a row for each framework and model that trained on a kind of data: its name, then in every
    column images/s, or the words in their place, ``linked`` to the log."""
    rows: dict[str, dict[Cell, str]] = {}
    for result in results:
        if kind in result.rates:
            text = rate(result.rates[kind].median)
        elif result.rates:
            continue
        else:
            is_told = not result.log or result.failure == worker.OUT_OF_MEMORY
            text = result.failure if is_told else "failed"
        link = f"[{text}]({result.log})" if linked and result.log else text
        rows.setdefault(result.cell.trained, {})[_column(result)] = link
    return [[name, *(row.get(column, "") for column in columns(results))] for name, row in rows.items()]


def details(results: Sequence[MeasuredCell], kind: str) -> Titled:
    """Return title, headings and a row of ``DETAILS`` for every result of a kind of data."""
    rows = []
    for result, _, scaling, _ in results:
        if kind in result.rates:
            median, lowest, highest = map(rate, result.rates[kind])
            factor = scaling[kind]
            scaled = "" if factor is None else f"{factor:.2f}"
            rows.append([*result.cell.names, median, f"{lowest} to {highest}", scaled])
        elif not result.rates:
            rows.append([*result.cell.names, "", result.failure, ""])
    return f"Every cell on {kind} data", DETAILS, rows


def steps(results: Sequence[MeasuredCell]) -> Titled:
    """Return title, headings and a row of ``STEPS`` for every result with figures."""
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
    width = len(STEPS) if any(row[-1] for row in rows) else len(STEPS) - 1
    return "A step of every cell", STEPS[:width], [row[:width] for row in rows]


def show_overview(results: Sequence[Result], kind: str, console: Terminal) -> None:
    """Print the overview of a kind of data, in whose columns nothing is folded."""
    headings = ["\n".join([*column.precision.split(), *column.heading[1:]]) for column in columns(results)]
    show_table(["framework", *headings], overview(results, kind), console, 1, "\n")


def show_table(
    headings: Sequence[str], rows: Sequence[Row], console: Terminal, names: int = 4, unit: str | None = None
) -> None:
    """Print a table that folds only between words, or what ``unit`` separates, except for its first column
    where a name is long. What is too wide for the terminal becomes several tables of similar width, each with
    the first ``names`` columns."""
    cells = ["\n".join([heading, *(row[at] for row in rows)]) for at, heading in enumerate(headings)]
    widest = [len(headings[0]), *(max(map(len, text.split(unit))) for text in cells[1:])]
    others = range(names, len(headings))
    for tables in range(1, len(others) + 1):  # the fewest that fit
        size = math.ceil(len(others) / tables)
        parts = [[*range(names), *others[begin : begin + size]] for begin in range(0, len(others), size)]
        if max(1 + sum(3 + widest[at] for at in part) for part in parts) <= console.width:
            break
    for part in parts:
        table = Table()
        for at in part:
            lines = Text("\n".join(map(safe, headings[at].split("\n"))))
            side: JustifyMethod = "left" if headings[at] in LEFT else "right"
            least = widest[at] if at else None
            table.add_column(lines, overflow="fold", min_width=least, justify=side)
        for row in rows:
            table.add_row(*(row[at] for at in part))
        console.print(table)

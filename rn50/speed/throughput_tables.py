"""Tables of a throughput matrix, for its report and a terminal: overview, every cell in detail, published
figures."""

import math
from collections.abc import Callable, Iterator, Sequence

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from rn50.speed import worker
from rn50.speed.cell import Cell, Result
from rn50.speed.networks import OURS
from rn50.speed.published_rates import FIGURES
from rn50.terminal import Terminal, counted, safe

Row = list[str]
DETAILS = ("framework", "precision", "batch", "ranks", "median", "lowest to highest", "scaling")


STEPS = ("framework", "precision", "batch", "ranks", "ms", "forward", "sums", "loss", "to float32", "img/s/W")
"""Columns of a step: its milliseconds, images/s of the forward pass alone, share of the all-reduce alone,
the loss after 20 steps, and images/s a watt, if power was measured."""


def rate(value: float) -> str:
    """Return images/s as text, with enough digits to tell slow models apart."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def trained(results: Sequence[Result], result: Result) -> str:
    """Return the framework of a result, and its model if ``results`` have models other than ours."""
    cell = result.cell
    ours_alone = all(other.cell.model == OURS for other in results)
    return cell.framework if ours_alone else f"{cell.framework} {cell.model}"


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


def overview(
    results: Sequence[Result], kind: str, chosen: Sequence[Cell], show: Callable[[str, Result], str]
) -> Iterator[Row]:
    """Yield a row for each framework and model that trained on a kind of data: its name, then images/s in
    every chosen column.

    ``show`` returns the text of a cell, given its images/s, or the words in their place, and its result.
    """
    of_kind = [result for result in results if kind in result.rates or not result.rates]
    for name in dict.fromkeys(trained(results, result) for result in of_kind):
        texts = {
            _column(result): show(_short(result, kind), result)
            for result in of_kind
            if trained(results, result) == name
        }
        yield [name, *(texts.get(column, "") for column in chosen)]


def _short(result: Result, kind: str) -> str:
    if kind in result.rates:
        return rate(result.rates[kind].median)
    return result.failure if not result.log or result.failure == worker.OUT_OF_MEMORY else "failed"


def details(
    results: Sequence[Result], kind: str, scaling: Callable[[Result, str], float | None]
) -> Iterator[Row]:
    """Yield a row of ``DETAILS`` for every result of a kind of data."""
    for result in results:
        cell = result.cell
        row = [trained(results, result), cell.precision, str(cell.batch_size), cell.placed]
        if not result.rates:
            yield [*row, "", result.failure, ""]
        elif kind in result.rates:
            (median, lowest, highest), scaled = map(rate, result.rates[kind]), scaling(result, kind)
            scaled_text = "" if scaled is None else f"{scaled:.2f}"
            yield [*row, median, f"{lowest} to {highest}", scaled_text]


def steps(results: Sequence[Result], to_float32: Callable[[Result], float | None]) -> tuple[Row, list[Row]]:
    """Return headings and a row of ``STEPS`` for every result with figures."""
    rows = []
    for result in results:
        cell, step = result.cell, result.step
        if step is not None:
            apart, efficiency = to_float32(result), step.images_per_joule
            row = [
                *(trained(results, result), cell.precision, str(cell.batch_size), cell.placed),
                f"{1000 * step.seconds:,.1f}",
                rate(step.forward_images_per_second),
                "-" if step.communication is None else f"{step.communication:.1%}",
                f"{step.loss:.4f}",
                "-" if apart is None else f"{apart:+.4f}",
                "" if efficiency is None else f"{efficiency:.3g}",
            ]
            rows.append(row)
    width = len(STEPS) if any(row[-1] for row in rows) else len(STEPS) - 1
    return list(STEPS[:width]), [row[:width] for row in rows]


def published() -> tuple[Row, list[Row], list[str]]:
    """Return headings and rows of the published figures, and their sources. The last cell of a row is the
    number of its source, from 1."""
    devices = sorted({count for figure in FIGURES for count in figure.images_per_second})
    sources = list(dict.fromkeys(figure.source for figure in FIGURES))
    gpus = (counted(count, "GPU") for count in devices)
    rows = []
    for figure in FIGURES:
        rates = {count: rate(value) for count, value in figure.images_per_second.items()}
        network = [figure.device, figure.framework, figure.precision or "-", str(figure.batch_size or "-")]
        number = sources.index(figure.source) + 1
        rows.append([*network, *(rates.get(count, "") for count in devices), str(number)])
    return ["device", "framework", "precision", "batch", *gpus, "from"], rows, sources


def print_overview(results: Sequence[Result], kind: str, console: Terminal) -> None:
    """Print the overview of a kind of data, as several tables of similar width if it is too wide for the
    terminal."""
    every = columns(results)
    headings = [[*column.precision.split(), *column.heading[1:]] for column in every]
    rows = list(overview(results, kind, every, lambda text, _: text))
    widest = max(len(text) for texts in [*headings, *(row[1:] for row in rows)] for text in texts)
    beside = max(1, (console.width - max(len(row[0]) for row in rows) - 4) // (widest + 3))
    size = math.ceil(len(every) / math.ceil(len(every) / beside))
    for begin in range(0, len(every), size):
        table = Table()
        table.add_column("framework", overflow="fold")
        for heading in headings[begin : begin + size]:
            table.add_column(Text("\n".join(map(safe, heading))), justify="right")
        for row in rows:
            table.add_row(row[0], *row[1 + begin : 1 + begin + size])
        console.print(table)


def print_table(headings: Sequence[str], rows: Sequence[Row], console: Terminal) -> None:
    """Print a table that folds only between words, except for the names in its first column."""
    table = Table()
    for index, heading in enumerate(headings):
        words = " ".join([heading, *(row[index] for row in rows)]).split()
        longest = max(map(len, words)) if index else None
        side: JustifyMethod = "left" if heading in ("device", "framework", "precision") else "right"
        table.add_column(heading, overflow="fold", min_width=longest, justify=side)
    for row in rows:
        table.add_row(*row)
    console.print(table)

"""Two matrices of ``rn50 bench throughput`` side by side, as of two machines."""

import math
import pathlib
from typing import NamedTuple

from rn50 import files
from rn50.errors import UserError
from rn50.printed import Inline
from rn50.rates import Rates
from rn50.speed.cell import Cell
from rn50.speed.throughput_tables import rate, show_table
from rn50.terminal import Terminal

REMEDY = "give two files cells.json of rn50 bench throughput"


class Pair(NamedTuple):
    """A cell that both matrices have."""

    cell: Inline[Cell]
    """Cell, without the names of its machines."""
    data: str
    """synthetic or real."""
    first: float
    """images/s of the first, median."""
    second: float
    """images/s of the second, median."""
    ratio: float
    """second / first."""
    apart: bool
    """True if no round of one reached those of the other."""


class Sides(NamedTuple):
    """Two matrices side by side."""

    first: str
    """Machine of the first, its versions and commit."""
    second: str
    """Machine of the second, its versions and commit."""
    cells: list[Pair]


def compare(first: pathlib.Path, second: pathlib.Path) -> Sides:
    """Return the cells that both files have. Raises UserError if one is not such a file, or none is in
    both."""
    (about, cells), (other_about, other) = _read(first), _read(second)
    pairs = []
    for (cell, kind), left in cells.items():
        if right := other.get((cell, kind)):
            apart = left.lowest > right.highest or right.lowest > left.highest
            medians = left.median, right.median, right.median / left.median
            pairs.append(Pair(cell, kind, *medians, apart))
    if not pairs:
        remedy = "measure the same frameworks, precisions and batch sizes on both"
        raise UserError(second, f"has no cell that {first} has", remedy)
    return Sides(about, other_about, pairs)


def _read(file: pathlib.Path) -> tuple[str, dict[tuple[Cell, str], Rates]]:
    """Return where a matrix was measured, and its rates by cell and kind of data."""
    content = files.read_json(file, remedy=REMEDY)
    cells: dict[tuple[Cell, str], Rates] = {}
    try:
        about = ", ".join(str(content[name]) for name in ("machine", "versions", "commit"))
        for measured in content["cells"]:
            batch, ranks, nodes = (int(measured.get(name, 1)) for name in ("batch_size", "ranks", "nodes"))
            precision, size = measured["precision"].partition(" ")[0], measured.get("image_size")
            cell = Cell(measured["framework"], measured["model"], size, precision, batch, ranks, nodes)
            for kind, rate_of in measured["images_per_second"].items():
                rates = cells[cell, kind] = Rates(*(float(rate_of[name]) for name in Rates._fields))
                if not 0 < rates.lowest <= rates.highest < math.inf:
                    raise ValueError("no rates")
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UserError(file, "not what rn50 bench throughput writes", REMEDY) from None
    return about, cells


def show(sides: Sides, console: Terminal) -> None:
    """Print both machines, then a row for each cell."""
    console.print(f"first: {sides.first}")
    console.print(f"second: {sides.second}")
    headings = ("framework", "precision", "batch", "ranks", "data", "first", "second", "second / first")
    rows = []
    for pair in sides.cells:
        ratio = f"{pair.ratio:.3f}" + ("" if pair.apart else ", rounds overlap")
        rows.append([*pair.cell.names, pair.data, rate(pair.first), rate(pair.second), ratio])
    show_table(headings, rows, console, 5)

"""The picture of ``rn50 bench throughput``: images/s over the batch size, for ``throughput.py``."""

from collections.abc import Sequence

from rn50.results.report import plots
from rn50.speed.cell import REAL, Result

LOGARITHMIC = 10
"""Ratio of the largest to the smallest rate above which the scale is logarithmic, because a linear scale
would squeeze the slow curves together."""


def lines(results: Sequence[Result]) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """Return (name of a curve, kind of data) -> [(batch size of a rank, images/s of all ranks)], sorted by
    batch size. The name has what is trained, precision, and ranks if their numbers differ."""
    # Parts of a heading that the name has. A heading is (precision, ranks, batch size).
    parts = 2 if len({result.cell.placed for result in results}) > 1 else 1
    curves: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for result in sorted(results, key=lambda result: result.cell.batch_size):
        cell = result.cell
        name = f"{cell.trained} {', '.join(cell.heading[:parts])}"
        for kind, rate in result.rates.items():
            curves.setdefault((name, kind), []).append((cell.batch_size, rate.median))
    return curves


def draw(results: Sequence[Result]) -> bytes:
    """Return the curves as SVG. Each name of ``lines`` has a colour; the curve on real data is dashed."""
    curves = lines(results)
    names = list(dict.fromkeys(name for name, _ in curves))
    rates = [rate for curve in curves.values() for _, rate in curve]
    figure = plots.figure(8, 5)
    axes = figure.add_subplot()
    for (name, kind), curve in curves.items():
        style = "--" if kind == REAL else "-"
        colour, label = f"C{names.index(name)}", f"{name}, {kind} data"
        axes.plot(*zip(*curve, strict=True), style, marker="o", markersize=4, color=colour, label=label)
    axes.set_xscale("log", base=2)
    sizes = sorted({result.cell.batch_size for result in results})
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    if rates and max(rates) > LOGARITHMIC * min(rates):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set(xlabel="images of a rank and step", ylabel="images/s of all ranks together")
    axes.grid(True, linewidth=0.4)
    if curves:
        figure.legend(loc="outside lower center", fontsize="small", ncols=2)
    return plots.picture(figure)

"""Show an attribution: a table, and a waterfall as a picture."""

import pathlib

from rn50 import files
from rn50.attribution.shares import Attribution, waterfall
from rn50.terminal import Terminal, table

PICTURE = "waterfall.svg"


def show(attribution: Attribution, console: Terminal) -> None:
    """Print a row for each group, then the difference."""
    rows = table(("group", "minutes", "percent", "95 % interval", "in each order"), ("group",))
    for part in attribution.parts:
        orders = ", ".join(f"{percent:+.1f}" for percent in part.orders)
        name = f"{part.group} (noise)" if part.is_noise else part.group
        interval = f"{part.low:+.1f} to {part.high:+.1f}"
        rows.add_row(name, f"{part.minutes:+.2f}", f"{part.percent:+.1f}", interval, orders)
    whole = f"{attribution.low:+.1f} to {attribution.high:+.1f}"
    minutes = f"{attribution.second - attribution.first:+.2f}"
    rows.add_row("all", minutes, f"{attribution.percent:+.1f}", whole, "", style="bold")
    console.print(rows)
    console.print(
        f"{attribution.first:.2f} to {attribution.second:.2f} minutes of training to the target; the orders "
        f"differ by up to {attribution.interaction:.1f} %, which is interaction"
    )
    for part in attribution.parts:
        console.print(f"{part.group}: {', '.join(part.settings)}")


def draw(attribution: Attribution, folder: pathlib.Path) -> pathlib.Path:
    """Write the waterfall, minutes before, each group's part and minutes after, and return its file."""
    from rn50.results.report import plots  # needs matplotlib, which a table does not

    figure = plots.figure(8, 3.5)
    axes = figure.subplots()
    bars = waterfall(attribution)
    names = ["before", *(name for name, _, _ in bars), "after"]
    axes.bar(0, attribution.first, color="0.6")
    for at, (part, (_, before, after)) in enumerate(zip(attribution.parts, bars, strict=True), start=1):
        axes.bar(at, after - before, bottom=before, color="tab:green" if after < before else "tab:red")
        axes.annotate(f"{part.percent:+.1f} %", (at, max(before, after)), ha="center", va="bottom")
        axes.plot((at - 0.6, at + 1.4), (after, after), color="0.5", linewidth=0.6)
    axes.bar(len(names) - 1, attribution.second, color="0.6")
    axes.set(ylabel="minutes of training to the target", xticks=range(len(names)))
    axes.set_xticklabels([name.replace(", ", ",\n").replace(" and ", " and\n") for name in names])
    axes.set_ylim(0, 1.12 * max(max(bar[1:]) for bar in bars))
    files.write(folder / PICTURE, plots.picture(figure), remedy="give another --output")
    return folder / PICTURE

"""Draw the picture of images/s on an H200 for README.md, from the figures of ``docs/figures.yaml`` that have
a ``bar``: make h200-picture.

    python -m docs.h200

A bar is the median of the figure's values, with lines to the lowest and highest. ``bar`` is its panel and
its label.
"""

import pathlib
import statistics

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot

from docs.figures import Figure, figures
from rn50.files import ROOT

PICTURE = ROOT / "docs" / "images" / "h200.svg"
PANELS = ("synthetic batch", "real data")
OURS, OTHERS = "#2a6fbb", "#9a9a9a"


def bars(panel: str) -> dict[str, Figure]:
    """Return label -> figure of a panel's bars, in the order of the list."""
    return {figure["bar"][1]: figure for figure in figures() if figure.get("bar", [""])[0] == panel}


def shown(figure: Figure) -> float:
    """Return the height of a figure's bar."""
    return statistics.median(figure["values"])


def draw(path: pathlib.Path) -> None:
    """Write the picture, with its texts as texts, and the same bytes each time."""
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "rn50", "font.size": 11})
    panels = {panel: bars(panel) for panel in PANELS}
    figure, axes = pyplot.subplots(
        1, 2, sharey=True, figsize=(10, 4.2), width_ratios=[len(found) for found in panels.values()]
    )
    for axis, (panel, found) in zip(axes, panels.items(), strict=True):
        heights = [shown(each) for each in found.values()]
        colours = [OTHERS if "published" in each["by_hand"] else OURS for each in found.values()]
        lines = [
            [height - min(each["values"]) for height, each in zip(heights, found.values(), strict=True)],
            [max(each["values"]) - height for height, each in zip(heights, found.values(), strict=True)],
        ]
        drawn = axis.bar(list(found), heights, color=colours, yerr=lines, capsize=4, width=0.65)
        axis.bar_label(drawn, [f"{height:,.0f}" for height in heights], padding=3)
        axis.set_title(panel)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("images/s of one H200")
    axes[0].set_ylim(0, 10_000)
    figure.tight_layout()
    figure.savefig(str(path), metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    draw(PICTURE)

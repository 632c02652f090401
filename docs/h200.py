"""Draw the picture of images/s on an H200 for README.md, from the ``bars`` of ``docs/figures.yaml``: make
h200-picture.

    python -m docs.h200

A bar is the median of its values, with lines to the lowest and highest.
"""

import pathlib
import statistics

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot

from docs import figures
from rn50.files import ROOT

PICTURE = ROOT / "docs" / "images" / "h200.svg"
OURS, OTHERS = "#2a6fbb", "#9a9a9a"


def panels() -> dict[str, dict[str, list[float]]]:
    """Return panel -> label of a bar -> its values."""
    [found] = [figure["bars"] for figure in figures.figures() if "bars" in figure]
    return dict(found)


def draw(path: pathlib.Path) -> None:
    """Write the picture, with its texts as texts, and the same bytes each time."""
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "rn50", "font.size": 11})
    drawn = panels()
    widths = [len(bars) for bars in drawn.values()]
    figure, axes = pyplot.subplots(1, 2, sharey=True, figsize=(10, 4.2), width_ratios=widths)
    for axis, (panel, bars) in zip(axes, drawn.items(), strict=True):
        heights = [statistics.median(values) for values in bars.values()]
        colours = [OTHERS if "NVIDIA" in label else OURS for label in bars]
        ends = zip(heights, bars.values(), strict=True)
        lines = [(height - min(values), max(values) - height) for height, values in ends]
        rectangles = axis.bar(
            list(bars), heights, color=colours, yerr=list(zip(*lines, strict=True)), capsize=4, width=0.65
        )
        axis.bar_label(rectangles, [f"{height:,.0f}" for height in heights], padding=3)
        axis.set_title(panel)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("images/s of one H200")
    axes[0].set_ylim(0, 10_000)
    figure.tight_layout()
    figure.savefig(str(path), metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    draw(PICTURE)

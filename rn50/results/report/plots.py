"""Draw the plots of the HTML pages as SVG. ``figure`` and ``picture`` serve modules that save a plot as a
file of its own.

For a page, matplotlib draws in placeholder colours, and ``_svg`` replaces these by CSS variables of the page.
So one drawing serves the light, the dark and the printed page.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rn50 import files
from rn50.benchmark import rules
from rn50.terminal import safe

SERIES = 8
"""Number of colours and of markers; a ninth curve has those of the first again."""
MARKERS = "os^DvPX*"
"""Markers by series, in matplotlib's notation."""
GLYPHS = "●■▲◆▼✚✖★"
"""Text characters that look like the markers."""
MOST_NAMED = 20
"""Most classes whose names stand beside a confusion matrix."""
MOST_POINTS = 1000
"""Most points drawn of a curve: more are not visible and take minutes to write."""
FORMATS: dict[str, Any] = {"png": {"Software": files.MARK}, "svg": {"Creator": files.MARK, "Date": None}}
FORMATS["pdf"] = {"Creator": files.MARK, "CreationDate": None}
"""Format of a picture -> metadata of its file: the mark by which rn50 knows the files that it wrote, and no
date, so that equal pictures are equal files."""
# Placeholder colours: #ab00NN is that of series NN, #ab04NN that of part NN of a run's time (``time_parts``).
_TEXT, _GRID, _TARGET = "#ab0100", "#ab0200", "#ab0300"
_COLOURS = {_TEXT: "var(--text)", _GRID: "var(--grid)", _TARGET: "var(--target)"}
_COLOURS.update({f"#ab00{i:02x}": f"var(--series-{i})" for i in range(SERIES)})
_COLOURS.update({f"#ab04{i:02x}": f"var(--part-{i})" for i in range(SERIES)})
"""Placeholder colour -> CSS variable of the page."""
_SAFE_STYLE = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "rn50"}
"""Settings of every figure: no formulas in names, text as text, equal identifiers in equal drawings."""
_STYLE = {
    "font.size": 9,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), _TEXT),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), _GRID),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.formatter.useoffset"), False),
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
}
"""Further settings of the plots on pages."""


def figure(width: float, height: float, style: Mapping[str, Any] = {}) -> Figure:
    """Return an empty figure of this size in inches, with matplotlib's default settings except ``style``.

    Settings of a ``matplotlibrc`` in the working folder or of the user are undone, because a stranger's file
    could make matplotlib run LaTeX.
    """
    matplotlib.rcdefaults()
    matplotlib.rcParams.update({**_SAFE_STYLE, **style})
    return Figure(figsize=(width, height), constrained_layout=True)


def picture(drawn: Figure, format_: str = "svg") -> bytes:
    """Return the content of a file with the figure ``drawn``, in one of ``FORMATS``."""
    stream = io.BytesIO()
    drawn.savefig(stream, format=format_, dpi=150, metadata=FORMATS[format_])
    return stream.getvalue()


@dataclass(frozen=True)
class Curve:
    """Curve of a plot."""

    points: Sequence[tuple[float, float]]
    """(x, y) of each point."""
    series: int = 0
    """Number of its colour and marker."""
    faint: bool = False
    """True for a dashed line or hollow marks, behind the other curves."""
    accepted: tuple[float, float] | None = None
    """Point with a ring around it."""


def accuracy(curves: Sequence[Curve], x_label: str, expected: Mapping[int, tuple[float, float]] = {}) -> str:
    """Plot top-1 accuracy, given as a fraction, over epochs or minutes, with the target. Evaluations are
    marks without a line, because the accuracy between them is unknown. ``expected`` maps epochs to the lowest
    and highest expected accuracy, which are drawn as a bar behind the marks."""
    ends = [max(x for x, _ in curve.points) for curve in curves if curve.points]  # the last x of each curve

    def draw(axes: Axes) -> None:
        for epoch, (low, high) in expected.items():
            if epoch <= max(ends, default=0):  # no bars beyond the last evaluation
                axes.plot([epoch] * 2, [100 * low, 100 * high], color=_GRID, linewidth=9, zorder=1)
        for curve in curves:
            colour, marker = _colour(curve.series), MARKERS[curve.series % SERIES]
            fill = "none" if curve.faint else colour
            if curve.points:
                x, y = zip(*_thinned(curve.points), strict=True)
                axes.plot(x, [100 * top_1 for top_1 in y], marker, color=colour, markerfacecolor=fill)
            if curve.accepted:
                x_accepted, top_1 = curve.accepted
                axes.plot(x_accepted, 100 * top_1, "o", color=colour, markerfacecolor="none", markersize=10)
        target = 100 * rules.TARGET_ACCURACY
        axes.axhline(target, color=_TARGET, linewidth=1)
        position: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "verticalalignment": "bottom"}
        axes.text(0.01, target, f"target {target:g} %", color=_TARGET, fontsize=8, **position)
        _scale(axes, ends)
        axes.set_ylim(top=max(axes.get_ylim()[1], target + 5))  # room for the name of the target
        axes.set(xlabel=x_label, ylabel="top-1, %")

    return _svg(draw, f"top-1 accuracy over {x_label}")


def throughput(curves: Iterable[Curve]) -> str:
    """Plot images per second over epochs."""

    def draw(axes: Axes) -> None:
        _draw_epochs(axes, curves, "images/s")
        axes.yaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,.0f}"))
        low, high = axes.get_ylim()
        middle = (low + high) / 2
        # At least +-10 %, so that 2 % of noise do not look like an outage.
        axes.set_ylim(min(low, 0.9 * middle), max(high, 1.1 * middle))

    return _svg(draw, "images per second over epochs")


def loss(curves: Iterable[Curve]) -> str:
    """Plot the training loss over epochs."""

    def draw(axes: Axes) -> None:
        _draw_epochs(axes, curves, "training loss")
        axes.set_ylim(bottom=0)

    return _svg(draw, "training loss over epochs")


def learning_rate(curves: Iterable[Curve]) -> str:
    """Plot the learning rate over epochs."""

    def draw(axes: Axes) -> None:
        for curve in curves:
            axes.plot(*zip(*curve.points, strict=True), color=_colour(curve.series))
        axes.set(xlabel="epochs", ylabel="learning rate", xlim=(0, None), ylim=(0, None))

    return _svg(draw, "learning rate over epochs")


def time_parts(runs: Sequence[str], parts: Mapping[str, Sequence[float]]) -> str:
    """Plot one bar for each run, in minutes, divided into parts. ``runs`` are the names of the runs,
    ``parts`` maps the name of a part to its seconds in each run."""

    def draw(axes: Axes) -> None:
        left = [0.0] * len(runs)
        for number, seconds in enumerate(parts.values()):
            widths = [part / 60 for part in seconds]
            colour = f"#ab04{number % SERIES:02x}"
            axes.barh(list(map(safe, runs)), widths, left=left, color=colour, height=0.7)
            left = [edge + width for edge, width in zip(left, widths, strict=True)]
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set(xlabel="minutes")

    return _svg(draw, "where the time of each run went", height=1.0 + 0.3 * len(runs))


def minutes(systems: Sequence[Sequence[tuple[float, bool]]], scores: Sequence[float | None]) -> str:
    """Plot one row for each system, numbered from 1. ``systems`` has the runs of each system as (minutes,
    True if the run is in the mean), drawn as dots. ``scores`` has the score of each system or None, drawn as
    a line."""

    def draw(axes: Axes) -> None:
        for row, (runs, score) in enumerate(zip(systems, scores, strict=True)):
            colour = _colour(row)
            for value, kept in runs:
                fill = colour if kept else "none"
                axes.plot(value, row, "o", markeredgecolor=colour, markerfacecolor=fill, markersize=5)
            if score is not None:
                axes.plot([score, score], [row - 0.35, row + 0.35], color=_TEXT, linewidth=1.5)
        axes.set_yticks(range(len(systems)), [str(row + 1) for row in range(len(systems))])
        _scale(axes, [value for runs in systems for value, _ in runs])
        axes.set(xlabel="minutes to target", ylim=(len(systems) - 0.5, -0.5))

    return _svg(draw, "minutes of every run by system", height=0.9 + 0.35 * len(systems))


@dataclass(frozen=True)
class Point:
    """Point of a ``field``: a result."""

    x: float
    y: float
    series: int
    """Number of its colour (``_colour``) and marker (``marker``)."""
    anchor: str
    """Identifier of the element of the page to which the point links."""
    own: bool = False
    """True for a result of the reader's own, which has a ring around it."""


def field(
    points: Sequence[Point],
    x_label: str,
    y_label: str,
    reference: Sequence[tuple[Point, float, float]] = (),
    log_y: bool = False,
) -> str:
    """Plot results, each a link, over a logarithmic x axis. Behind them is a line through the points of
    ``reference``, which are (point, lowest y, highest y); a bar goes from the lowest to the highest y."""

    def scatter(axes: Axes, marks: Sequence[Point], **style: Any) -> None:
        """Draw points in one style."""
        if marks:  # without any, matplotlib would draw a mark in the corner
            links = [f"#{point.anchor}" for point in marks]
            axes.scatter([point.x for point in marks], [point.y for point in marks], urls=links, **style)

    def draw(axes: Axes) -> None:
        expected = [point for point, _, _ in reference]
        axes.plot([p.x for p in expected], [p.y for p in expected], color=_TARGET, linewidth=1)
        for point, low, high in reference:
            axes.plot([point.x, point.x], [low, high], color=_TARGET, linewidth=3, alpha=0.5)
        scatter(axes, expected, s=36, color=_TARGET, marker="_")
        for series in sorted({point.series for point in points}):
            style: dict[str, Any] = {"color": _colour(series), "marker": MARKERS[marker(series)]}
            style |= {"linewidths": 0.4, "alpha": 0.7}
            scatter(axes, [point for point in points if point.series == series], s=16, zorder=3, **style)
        ringed = [point for point in points if point.own]
        scatter(axes, ringed, s=90, facecolors="none", edgecolors=_TEXT, clip_on=False, zorder=4)
        axes.set(xscale="log", yscale="log" if log_y else "linear")
        for axis in [axes.xaxis, axes.yaxis] if log_y else [axes.xaxis]:
            low, high = axis.get_view_interval()
            steps = (1.0, 2.0, 5.0) if high < 500 * low else (1.0,)  # labels of more decades would overlap
            axis.set_major_locator(matplotlib.ticker.LogLocator(subs=steps))
            axis.set_minor_formatter(matplotlib.ticker.NullFormatter())
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,g}"))
        axes.set(xlabel=x_label, ylabel=y_label, ylim=(None if log_y else 0, None))

    text = _svg(draw, f"{y_label} over {x_label}; each point is a row of the table", height=3.4, role="group")
    # Give <a xlink:href="#PowerEdge-X"> its target as title, and make the Tab key pass over it.
    return re.sub(r'<a xlink:href="#([^"]*)">', r'<a tabindex="-1" href="#\1"><title>\1</title>', text)


def marker(series: int) -> int:
    """Return the index in ``MARKERS`` and ``GLYPHS`` of a series of ``field``. The ninth series has the
    colour of the first, and another marker."""
    return (series + series // SERIES) % SERIES


def reliability(bins: Sequence[tuple[float, float]]) -> str:
    """Plot accuracy over confidence, with the diagonal on which both are equal. ``bins`` has the (confidence,
    accuracy) of each interval of confidences."""

    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=_TARGET, linestyle="--")
        axes.plot(*zip(*bins, strict=True), color=_colour(0), marker=MARKERS[0])
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy")

    return _svg(draw, "Accuracy over confidence")


def confusion(shares: Any, names: Sequence[str]) -> str:
    """Plot a confusion matrix. ``shares[i, j]`` is the fraction of the images of class i for which class j
    was predicted. ``names`` are those of the classes; there is room for those of ``MOST_NAMED`` classes."""

    def draw(axes: Axes) -> None:
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, interpolation="none")
        axes.grid(False)
        axes.locator_params(integer=True)
        if len(names) <= MOST_NAMED:
            axes.set_xticks(range(len(names)), names, rotation=90)
            axes.set_yticks(range(len(names)), names)
        axes.set(xlabel="predicted class", ylabel="class")

    return _svg(draw, "Predicted classes by class", height=4.2)


def _scale(axes: Axes, ends: Sequence[float]) -> None:
    """Start the x axis at 0. If a value of ``ends``, the lengths of the runs, is over ten times another, make
    the axis logarithmic, because the short runs would be hidden."""
    if ends and max(ends) > 10 * min(ends) > 0:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:g}"))
    else:
        axes.set_xlim(left=0)


def _draw_epochs(axes: Axes, curves: Iterable[Curve], label: str) -> None:
    """Draw curves over epochs; ``label`` is that of the y axis."""
    for curve in curves:
        # By default matplotlib draws lines at zorder 2, so faint curves lie behind the others.
        style: dict[str, Any] = {"linestyle": "--", "alpha": 0.65, "zorder": 1.8} if curve.faint else {}
        style |= {"color": _colour(curve.series), "marker": MARKERS[curve.series % SERIES]}
        if curve.points:
            axes.plot(*zip(*_thinned(curve.points), strict=True), **style)
    axes.set(xlabel="epochs", ylabel=label)
    axes.locator_params("x", integer=True)


def _colour(series: int) -> str:
    """Return the placeholder for the colour of a series."""
    return f"#ab00{series % SERIES:02x}"


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Return at most ``MOST_POINTS`` points: equally spaced ones, and the last."""
    step = -(-(len(points) - 1) // (MOST_POINTS - 1))  # rounded up
    return points if step <= 1 else [*points[:-1:step], points[-1]]


def _svg(draw: Callable[[Axes], None], label: str, height: float = 2.9, role: str = "img") -> str:
    """Return the SVG element of a plot: ``draw`` draws it on empty axes, ``height`` is in inches, and
    ``label`` and ``role`` are for readers of the page who do not see it."""
    drawn = figure(4.5, height, _STYLE)
    draw(drawn.add_subplot())
    stream = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # None leaves an entry out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this font may lack characters of a name that the reader's font has
        drawn.savefig(stream, format="svg", transparent=True, metadata=no_metadata)
    text = stream.getvalue()
    text = text[text.index("<svg") :]  # no XML prolog or DOCTYPE inside a page
    text = re.sub(r'<g id="[^"]*">', "<g>", text)  # unused ids, which would repeat from figure to figure
    text = re.sub(r"#ab0[0-4][0-9a-f]{2}", lambda match: _COLOURS[match.group()], text)
    # <svg height="206pt" version="1.1" viewBox="0 0 324 206" ...>: keep the viewBox, drop the size.
    opening = rf'<svg \1 role="{role}" aria-label="{label}">'
    return re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', opening, text, count=1)

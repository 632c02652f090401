"""``rn50 atlas``: write all published results, and results of the user, on one self-contained HTML page.

``rows.py`` makes the rows of its table, ``lineage.py`` the histories of systems and hyperparameters; the
template is ``atlas.html.j2``, and ``atlas.js`` filters and sorts the table.
"""

import base64
import hashlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rn50 import files
from rn50.benchmark import rules
from rn50.benchmark.recipe import Recipe
from rn50.hyperparameters.atlas import lineage, rows
from rn50.hyperparameters.atlas.rows import Row
from rn50.progress import Progress, silent
from rn50.results import published, rcp, recipe
from rn50.results import score as scoring
from rn50.results.report import plots, recipes, templates
from rn50.results.score import SystemScore
from rn50.terminal import minutes

_SCRIPT = pathlib.Path(__file__).with_name("atlas.js")
_CHARTS = (
    ("accelerators", "minutes", "minutes to target"),
    ("accelerators", "images_per_second", "images/s of each accelerator"),
    ("global_batch_size", "epochs", "epochs to target"),
)
"""Charts: (field of ``Row`` on the x axis, field of ``Row`` on the y axis, label of the y axis)."""


class Page(NamedTuple):
    """The page that was written, as --json prints it."""

    atlas: pathlib.Path
    """File of the page."""


class Reference(NamedTuple):
    """A reference convergence point."""

    name: str
    """Argument by which ``rn50 borrow`` finds it."""
    recipe: Recipe
    epochs: Sequence[float]
    """Epochs of its runs."""
    mean: float
    """Mean of the epochs, as the official checker uses it to scale scores."""

    @property
    def point(self) -> plots.Point:
        """The point in a chart of mean epochs over batch size."""
        return plots.Point(self.recipe.global_batch_size, self.mean, series=0, anchor=rows.anchor(self.name))


def write(
    paths: Sequence[pathlib.Path],
    output: pathlib.Path,
    progress: Progress = silent,
    audits: Mapping[pathlib.Path, str] = {},
) -> pathlib.Path:
    """Write the atlas, with the results in the files and folders ``paths`` beside the published ones. Return
    its path. ``progress(done, total)`` is told how many files have been read. ``audits`` has the verdicts of
    an audit by the folder of the result.

    Raises:
        UserError: as in ``score.score``, or the page cannot be written.
    """
    remedy = "give another place with --output"
    files.refuse_to_replace(output, files.PAGE, remedy=remedy)
    files.write(output, render(scoring.score(paths, progress=progress), audits), remedy=remedy)
    return output


def render(scores: Sequence[SystemScore] = (), audits: Mapping[pathlib.Path, str] = {}) -> str:
    """Return the page with all published results and the user's ``scores``; ``audits`` as for ``write``.
    Scores of another task than the benchmark's have a section of their own, because their minutes and epochs
    cannot be compared with others."""
    results, references = published.results(), _references()
    pairs = list(zip(rows.of_published(results), results, strict=True))
    published_rows = [row for row, _ in pairs]
    # A score has a label if its task is not that of the benchmark.
    scored = [(row, row.score.label) for row in rows.of_logs(scores, audits) if row.score]
    own_rows = [row for row, label in scored if not label]
    of_other_tasks = [row for row, label in scored if label]
    colours = rows.series(published_rows)
    script = _SCRIPT.read_text(encoding="utf-8")
    environment = templates.in_folder_of(__file__)
    environment.filters |= {"number": recipes.number, "minutes": minutes}
    return environment.get_template("atlas.html.j2").render(
        results=[*own_rows, *sorted(published_rows, key=lambda row: row.round, reverse=True)],
        others=of_other_tasks,
        labels=list(dict.fromkeys(label for _, label in scored if label)),
        figures=_figures([*published_rows, *own_rows], colours, references),
        figures_of_others=_figures(of_other_tasks, colours, []),
        colours=colours,
        rounds=sorted({row.round for row in published_rows}),
        histories=lineage.histories(pairs),
        taken=lineage.taken(pairs),
        references=references,
        rules=rules,
        glyphs=plots.GLYPHS,
        marker=plots.marker,
        script=script,
        # The page's security policy allows this script by its hash, and no other.
        script_sha256=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _references() -> list[Reference]:
    """Return the reference convergence points of the newest ruleset, in the order of the official checker."""
    ruleset = rules.RULESETS[-1]
    points = recipe.convergence_points(ruleset)
    references = []
    # The checker has the same points under the same keys, and the mean of their epochs besides.
    for key, point in rcp.reference().rcp_data.items():
        name, epochs = f"rcp/{ruleset}/{point['BS']}", point["Epochs to converge"]
        references.append(Reference(name, recipe.of_point(points[key]), epochs, point["RCP Mean"]))
    return references


def _figures(plotted: Sequence[Row], colours: dict[str, int], curve: Sequence[Reference]) -> dict[str, str]:
    """Return field of the y axis -> SVG of a chart of the rows ``plotted``, for each of ``_CHARTS`` that has
    a point. The chart of the epochs also has the reference convergence points of ``curve``."""
    ranges = [(reference.point, min(reference.epochs), max(reference.epochs)) for reference in curve]
    figures = {}
    for x, y, label in _CHARTS:
        if points := rows.points(plotted, x, y, colours):
            references = ranges if y == "epochs" else ()
            figures[y] = plots.field(points, x.replace("_", " "), label, references, log_y=y == "minutes")
    return figures

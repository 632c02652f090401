"""Write the atlas: all published results on one self-contained HTML page, and own results beside them."""

import base64
import hashlib
import pathlib
from collections.abc import Sequence
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
"""Fields of a row over each other, and the label of the second."""


class Page(NamedTuple):
    """A page."""

    atlas: pathlib.Path
    """File of the page."""


class Reference(NamedTuple):
    """A reference convergence point: the name by which ``rn50 borrow`` finds it, the epochs of its runs, and
    the mean of them that the official checker scales scores by."""

    name: str
    recipe: Recipe
    epochs: Sequence[float]
    mean: float

    @property
    def point(self) -> plots.Point:
        """Its mean epochs over its batch size."""
        return plots.Point(self.recipe.global_batch_size, self.mean, 0, rows.anchor(self.name))


def write(paths: Sequence[pathlib.Path], output: pathlib.Path, progress: Progress = silent) -> pathlib.Path:
    """Write the atlas with the results that ``paths`` mean, and return its path. ``progress(done, total)``
    counts the files read, as ``score.score`` does.

    Raises:
        UserError: as in ``score.score``, or the page cannot be written.
    """
    remedy = "give another place with --output"
    files.refuse_to_replace(output, files.PAGE, remedy=remedy)
    files.write(output, render(scoring.score(paths, progress=progress)), remedy=remedy)
    return output


def render(scores: Sequence[SystemScore] = ()) -> str:
    """Return the page of all published results and of ``scores``. Those that are not of the benchmark stand
    apart: neither their minutes nor their epochs compare."""
    results, references = published.results(), _references()
    pairs = list(zip(rows.of_published(results), results, strict=True))
    of_others = [row for row, _ in pairs]
    read = [(row, row.score.label) for row in rows.of_logs(scores) if row.score]
    ours = [row for row, label in read if not label]
    others = [row for row, label in read if label]
    colours = rows.series(of_others)
    script = _SCRIPT.read_text(encoding="utf-8")
    digest = hashlib.sha256(script.encode()).digest()
    environment = templates.in_folder_of(__file__)
    environment.filters |= {"number": recipes.number, "minutes": minutes}
    return environment.get_template("atlas.html.j2").render(
        results=[*ours, *sorted(of_others, key=lambda row: row.round, reverse=True)],
        others=others,
        labels=list(dict.fromkeys(label for _, label in read if label)),
        figures=_figures([*of_others, *ours], colours, references),
        figures_of_others=_figures(others, colours, []),
        colours=colours,
        rounds=sorted({row.round for row in of_others}),
        histories=lineage.histories(pairs),
        taken=lineage.taken(pairs),
        references=references,
        rules=rules,
        glyphs=plots.GLYPHS,
        script=script,
        script_sha256=base64.b64encode(digest).decode(),
    )


def _references() -> list[Reference]:
    """Return the reference convergence points of the newest ruleset by batch size, in the checker's order."""
    ruleset, points = rules.RULESETS[-1], recipe.convergence_points(rules.RULESETS[-1])
    rows = ((point, recipe.of_point(points[key])) for key, point in rcp.reference().rcp_data.items())
    return [
        Reference(f"rcp/{ruleset}/{point['BS']}", its, point["Epochs to converge"], point["RCP Mean"])
        for point, its in rows
    ]


def _figures(shown: Sequence[Row], colours: dict[str, int], expected: Sequence[Reference]) -> dict[str, str]:
    """Return the charts by their y axis, without those that would be empty."""
    reference = [(row.point, min(row.epochs), max(row.epochs)) for row in expected]
    return {
        y: plots.field(points, x.replace("_", " "), label, reference if y == "epochs" else (), y == "minutes")
        for x, y, label in _CHARTS
        if (points := rows.points(shown, x, y, colours))
    }

"""Write the atlas: all published results on one self-contained HTML page, and own results beside them."""

import base64
import hashlib
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

import markupsafe

from rn50 import files
from rn50.benchmark import rules
from rn50.hyperparameters.atlas import lineage, rows
from rn50.hyperparameters.atlas.rows import Row
from rn50.results import published, recipe, scoreboard
from rn50.results import score as scoring
from rn50.results.report import plots, recipes, templates
from rn50.terminal import minutes

SCRIPT = pathlib.Path(__file__).with_name("atlas.js")
_CHARTS = (
    ("accelerators", "minutes", "minutes to target"),
    ("accelerators", "images_per_second", "images/s of each accelerator"),
    ("global_batch_size", "epochs", "epochs to target"),
)
"""Fields of a row over each other, and the label of the second."""


def write(paths: Sequence[pathlib.Path], output: pathlib.Path) -> pathlib.Path:
    """Write the atlas with the results that ``paths`` mean, and return its path.

    Raises:
        UserError: as in ``score.score``, or the page cannot be written.
    """
    remedy = "give another place with --output"
    files.refuse_to_replace(output, files.PAGE, remedy=remedy)
    files.write(output, render(scoring.score(paths)), remedy=remedy)
    return output


def render(scores: Sequence[scoring.SystemScore] = ()) -> str:
    """Return the page of all published results and of ``scores``. Those that are not of the benchmark stand
    apart: neither their minutes nor their epochs compare."""
    results = published.results()
    known = list(rows.of_published(results))
    own = list(rows.of_logs(scores))
    ours = [row for row in own if row.score and not row.score.label]
    others = [row for row in own if row.score and row.score.label]
    pairs = list(zip(known, results, strict=True))
    script = SCRIPT.read_text(encoding="utf-8")
    digest = hashlib.sha256(script.encode()).digest()
    environment = templates.in_folder_of(__file__)
    environment.filters |= {"number": recipes.number, "minutes": minutes}
    colours = rows.series(known)
    references = _references()
    return environment.get_template("atlas.html.j2").render(
        results=[*ours, *known],
        others=others,
        labels=list(dict.fromkeys(row.score.label for row in others if row.score)),
        figures=_figures([*known, *ours], colours, references),
        figures_of_others=_figures(others, colours, []),
        colours=colours,
        rounds=sorted({row.round for row in known}),
        histories=lineage.histories(pairs),
        taken=list(lineage.taken(pairs)),
        references=references,
        rules=rules,
        scoreboard=scoreboard,
        glyphs=plots.GLYPHS,
        script=markupsafe.Markup(script),
        script_sha256=base64.b64encode(digest).decode(),
    )


def _references() -> list[dict[str, Any]]:
    """Return the reference convergence points of the newest ruleset, each with its place on the page."""
    ruleset = rules.RULESETS[-1]
    points = sorted(recipe.convergence_points(ruleset).values(), key=lambda point: point["BS"])
    found = []
    for point in points:
        name, epochs = f"rcp/{ruleset}/{point['BS']}", point["Epochs to converge"]
        known = {"name": name, "recipe": recipe.of_point(point), "runs": len(epochs)}
        known |= {"anchor": rows.anchor(name), "mean": statistics.mean(epochs)}
        found.append(known | {"ends": (min(epochs), max(epochs))})
    return found


def _figures(
    of: Sequence[Row], colours: dict[str, int], references: Sequence[dict[str, Any]]
) -> dict[str, str]:
    """Return the charts by their y axis, without those that would be empty."""
    expected = [
        (plots.Point(one["recipe"].global_batch_size, one["mean"], 0, one["anchor"]), *one["ends"])
        for one in references
    ]
    return {
        y: plots.field(points, x.replace("_", " "), label, expected if y == "epochs" else (), y == "minutes")
        for x, y, label in _CHARTS
        if (points := rows.points(of, x, y, colours))
    }

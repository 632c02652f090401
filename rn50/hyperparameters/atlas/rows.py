"""Rows of the atlas: published results, and those of logs."""

import collections
import re
import shlex
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rn50.results import chips, published, recipe, sidecar, tree
from rn50.results.parse import finite
from rn50.results.published import PublishedResult
from rn50.results.report import plots, what_ran
from rn50.results.score import SystemScore

OWN = "own"
"""Word in the place of the round of a result that was read from logs."""
OTHERS = "others"
"""Name of the boards that have no colour of their own."""


@dataclass(frozen=True)
class Row:
    """A result. What is not known is None, or empty where it is text.

    ``anchor`` is its place on the page, ``command`` borrows its hyperparameters. ``framework`` is as the
    submitter wrote it. ``first_logs`` is the first result of the table that has the same logs, where it is
    another one.
    """

    anchor: str
    command: str
    round: str
    organisation: str
    system: str
    accelerators: int | None
    accelerator: str
    framework: str
    division: str
    global_batch_size: float | None
    epochs: float | None
    minutes: float | None
    images_per_second: float | None
    first_logs: PublishedResult | None = None
    score: SystemScore | None = None

    @property
    def board(self) -> str:
        """The accelerator without the size of its memory."""
        return re.sub(r"-\d+GB$", "", self.accelerator)


def anchor(name: str) -> str:
    """Return the place of a published result on the page: its name, as an address may have it."""
    return re.sub(r"[^\w./-]+", "-", name, flags=re.ASCII)


def of_published(results: Iterable[PublishedResult]) -> Iterator[Row]:
    """Yield the rows of the table of published results."""
    first: dict[tuple[published.Numbers, published.Numbers], PublishedResult] = {}
    for result in results:
        before = first.setdefault((result.minutes, result.accuracy), result)
        yield Row(
            anchor=anchor(result.name),
            command=f"rn50 borrow {shlex.quote(result.name)}",
            round=result.round,
            organisation=result.organisation,
            system=result.system,
            accelerators=result.accelerators,
            accelerator=chips.name(result.accelerator_model),
            framework=result.framework,
            division="closed" if result.is_closed else result.division.lower(),
            global_batch_size=result.recipe.global_batch_size,
            epochs=_mean(result.epochs_to_target),
            minutes=result.olympic_minutes,
            images_per_second=result.images_per_second_per_accelerator,
            first_logs=before if before is not result else None,
        )


def of_logs(scores: Sequence[SystemScore]) -> Iterator[Row]:
    """Yield the rows of results that were read from logs."""
    for number, score in enumerate(scores, 1):
        run = score.runs[0]
        logged, folder = recipe.of_log(run.log), run.file.parent
        described = tree.described(folder) or run.saved.get("system", {})
        minutes = [run.log.minutes for run in score.runs]
        on_cpu = sidecar.section(run.saved, "run").get("device") == "cpu"
        yield Row(
            anchor=f"{OWN}-{number}",
            command=f"rn50 borrow {shlex.quote(str(folder))}",
            round=OWN,
            organisation=run.log.org or "",
            system=score.name,
            accelerators=score.accelerators or run.accelerators,
            accelerator="CPU" if on_cpu else chips.name(str(described.get("accelerator_model_name") or "")),
            framework=dict(what_ran.head(score.runs)).get("framework", ""),
            division=score.division or "",
            global_batch_size=logged.global_batch_size,
            epochs=_mean([run.epochs for run in score.runs if run.converged and run.epochs]),
            minutes=score.olympic_minutes or score.mean_minutes,
            images_per_second=score.images_per_second_per_accelerator,
            first_logs=next((result for result in published.results() if result.is_of(minutes)), None),
            score=score,
        )


def _mean(values: Sequence[float]) -> float | None:
    return statistics.mean(values) if values else None


def series(rows: Sequence[Row]) -> dict[str, int]:
    """Return the number of the colour of every board: the boards of most results have their own, and the last
    colour is that of all others."""
    boards = collections.Counter(row.board for row in rows if row.board).most_common(plots.SERIES - 1)
    return {**{board: number for number, (board, _) in enumerate(boards)}, OTHERS: plots.SERIES - 1}


def points(rows: Iterable[Row], x: str, y: str, colours: dict[str, int]) -> list[plots.Point]:
    """Return the points of a chart, of the rows that know both fields and have no 0 there, which no logarithm
    shows. What the rules of a result do not allow is in the table alone."""
    allowed = (row for row in rows if not (row.score and row.score.refusal))
    places = ((getattr(row, x), getattr(row, y), row) for row in allowed)
    return [
        plots.Point(at, value, colours.get(row.board, colours[OTHERS]), row.anchor, row.round == OWN)
        for at, value, row in places
        if (finite(at) or 0) > 0 and (finite(value) or 0) > 0
    ]

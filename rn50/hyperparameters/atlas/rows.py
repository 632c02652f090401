"""Rows of the atlas's table, of published results and of the user's logs, and their points in its charts."""

import collections
import pathlib
import re
import shlex
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rn50.results import chips, published, recipe, sidecar, tree
from rn50.results.parse import finite
from rn50.results.published import PublishedResult
from rn50.results.report import plots, what_ran
from rn50.results.score import SystemScore

OWN = "own"
"""Text in ``Row.round`` of a result of the user's logs; a published result has its MLPerf round there."""
OTHERS = "others"
"""Key of the colour of all boards that nobody published."""


@dataclass(frozen=True)
class Row:
    """A result. A number that is not known is None, a text that is not known is empty."""

    anchor: str
    """Address of the row within the page."""
    command: str
    """Command that borrows the hyperparameters."""
    round: str
    organisation: str
    system: str
    accelerators: int | None
    """Number of accelerators."""
    accelerator: str
    """Name of the accelerator."""
    framework: str
    """Framework, as the submitter wrote it."""
    division: str
    global_batch_size: float | None
    epochs: float | None
    """Mean epochs of the runs that reached the target."""
    minutes: float | None
    images_per_second: float | None
    """Images/s of each accelerator."""
    first_logs: PublishedResult | None = None
    """The first published result with the same logs; None: it is this result, or there is none."""
    score: SystemScore | None = None
    """Score of the user's logs; None: the result is a published one."""
    audit: str = ""
    """Verdict of an audit of the user's logs."""

    @property
    def board(self) -> str:
        """Name of the accelerator without the size of its memory."""
        return re.sub(r"-\d+GB$", "", self.accelerator)


def anchor(name: str) -> str:
    """Return the address of a result within the page: its name, without characters that an address may not
    have."""
    return re.sub(r"[^\w./-]+", "-", name, flags=re.ASCII)


def of_published(results: Iterable[PublishedResult]) -> Iterator[Row]:
    """Yield the rows of published results, in their order."""
    # (minutes, accuracies) of the runs -> first result that has them: results that share them share the logs.
    first_results: dict[tuple[published.Numbers, published.Numbers], PublishedResult] = {}
    for result in results:
        first_result = first_results.setdefault((result.minutes, result.accuracy), result)
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
            first_logs=first_result if first_result is not result else None,
        )


def of_logs(scores: Sequence[SystemScore], audits: Mapping[pathlib.Path, str]) -> Iterator[Row]:
    """Yield the rows of results of the user's logs, in their order. ``audits`` has the verdicts of an audit
    by the folder of the logs."""
    for number, score in enumerate(scores, 1):
        first = score.runs[0]
        description = tree.described(first.file.parent) or first.saved.get("system", {})
        minutes = [run.log.minutes for run in score.runs]
        on_cpu = sidecar.section(first.saved, "run").get("device") == "cpu"
        yield Row(
            anchor=f"{OWN}-{number}",
            command=f"rn50 borrow {shlex.quote(str(first.file.parent))}",
            round=OWN,
            organisation=first.organisation or "",
            system=score.name,
            accelerators=score.accelerators or first.accelerators,
            accelerator="CPU" if on_cpu else chips.name(str(description.get("accelerator_model_name") or "")),
            framework=dict(what_ran.head(score.runs)).get("framework", ""),
            division=score.division or "",
            global_batch_size=recipe.of_log(first.log).global_batch_size,
            epochs=_mean([run.epochs for run in score.runs if run.converged and run.epochs]),
            minutes=score.olympic_minutes or score.mean_minutes,
            images_per_second=score.images_per_second_per_accelerator,
            first_logs=next((result for result in published.results() if result.is_of(minutes)), None),
            score=score,
            audit=audits.get(first.file.parent.resolve(), ""),
        )


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean; None: there are no values."""
    return statistics.mean(values) if values else None


def series(rows: Sequence[Row]) -> dict[str, int]:
    """Return board -> number of its colour and marker, from 0 for the board with the most results. ``OTHERS``
    has the last number, for boards that are not among ``rows``."""
    boards = collections.Counter(row.board for row in rows if row.board).most_common()
    return {board: number for number, (board, _) in enumerate([*boards, (OTHERS, 0)])}


def points(rows: Iterable[Row], x: str, y: str, colours: dict[str, int]) -> list[plots.Point]:
    """Return the points of a chart of two fields of the rows, of which ``x`` and ``y`` are the names.
    ``colours`` is what ``series`` returned. A row has no point if a field is not known, or is 0, which a
    logarithmic axis lacks, or if the result breaks the rules."""
    result: list[plots.Point] = []
    for row in rows:
        x_value, y_value = getattr(row, x), getattr(row, y)
        are_positive = (finite(x_value) or 0) > 0 and (finite(y_value) or 0) > 0
        if are_positive and not (row.score and row.score.refusal):
            colour = colours.get(row.board, colours[OTHERS])
            beside = 1.06 ** ((len(result) % 7 - 3) / 3)  # or points with the same x would hide each other
            result.append(plots.Point(x_value * beside, y_value, colour, row.anchor, own=row.round == OWN))
    return result

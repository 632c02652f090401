"""Make the table of a result's hyperparameters beside those of published results and reference convergence
points with nearly the same batch size: ``read``."""

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rn50.benchmark import rules
from rn50.benchmark.recipe import COLUMN_OF, HYPERPARAMETERS, SHARED, Recipe
from rn50.results import published, recipe, sidecar
from rn50.results.parse import finite
from rn50.results.published import PublishedResult
from rn50.results.run import Run
from rn50.terminal import counted

_NOT_SHARED = [name for name in COLUMN_OF if name not in SHARED]
"""Fields of ``Recipe`` in which results with equal values of ``SHARED`` may differ: label smoothing, ..."""


@dataclass(frozen=True)
class RecipeTable:
    """Table of hyperparameters."""

    columns: list["Column"]
    """Columns of the table; the first is that of the result."""
    rows: list["RecipeRow"]
    results: list[PublishedResult]
    """Published results that are nearest in batch size and number of accelerators."""


@dataclass(frozen=True)
class RecipeRow:
    """Row of the table: the values of one hyperparameter."""

    name: str
    values: list[str]
    """Value in each column; "-" for an unknown one."""
    differs: list[bool]
    """True for each column whose value is known and not that of the first column."""


@dataclass(frozen=True)
class Column:
    """Column of the table."""

    source: str
    """Name by which ``rn50 borrow`` finds the recipe; empty for that of the result."""
    name: str
    recipe: Recipe
    epochs: float | None
    """Mean epochs to target."""
    runs: tuple[int, int] = (0, 0)
    """Number of runs that converged, and of all runs."""


def read(runs: Sequence[Run], ruleset: str, accelerators: int | None) -> RecipeTable:
    """Return the table for the hyperparameters of the first of ``runs``. ``ruleset`` selects the reference
    points, ``accelerators`` is the number of the result's accelerators or None."""
    ruleset = max(ruleset, rules.RCP_RULESETS[0])  # 0.7.0 has no reference points
    reached = [run.log.reached.epoch for run in runs if run.log.reached]
    ours = recipe.of_log(runs[0].log)
    if ours.label_smoothing is None:  # MLPerf has no log key for it; our runs save it
        saved = sidecar.section(runs[0].saved, "hyperparameters").get("label_smoothing")
        ours = dataclasses.replace(ours, label_smoothing=finite(saved))
    columns = [Column("", "this result", ours, _mean(reached), (len(reached), len(runs)))]
    results: list[PublishedResult] = []
    batch_size = ours.global_batch_size
    if batch_size and batch_size > 0:
        optimizer = str(ours.optimizer)
        columns += [_published(group) for group in published.nearest_recipes(batch_size, optimizer)]
        results = published.nearest(batch_size, optimizer, accelerators)
        # Names as ``rn50 borrow`` takes them: "rcp/3264" in the newest ruleset, else "rcp/1.0.0/2048".
        folder = "rcp" if ruleset == rules.RULESETS[-1] else f"rcp/{ruleset}"
        for point in recipe.reference(batch_size, ruleset):
            source, name = f"{folder}/{point['BS']}", f"reference at {point['BS']:,}"
            columns.append(Column(source, name, recipe.of_point(point), _mean(point["Epochs to converge"])))
    return RecipeTable(columns, list(_rows(columns)), results)


def _published(group: Sequence[PublishedResult]) -> Column:
    """Return the column of published results with equal values of ``SHARED``. For other fields it has the
    range of their values."""
    reached = [epochs for result in group for epochs in result.epochs_to_target]
    recipes = [result.recipe for result in group]
    spans: dict[str, Any] = {name: span(getattr(logged, name) for logged in recipes) for name in _NOT_SHARED}
    runs = (len(reached), sum(len(result.run_status) for result in group))
    name = f"published, {counted(len(group), 'result')}"
    return Column(group[0].name, name, dataclasses.replace(recipes[0], **spans), _mean(reached), runs)


def _mean(epochs: Sequence[float]) -> float | None:
    """Return the mean of some epochs; None if there are none."""
    return statistics.mean(epochs) if epochs else None


def span(values: Iterable[float | None], form: Callable[[float], str] | None = None) -> str | None:
    """Return the lowest and the highest of the known values, like "7 to 11", or one text, like "7", if both
    have the same. The function ``form``, by default ``number``, formats a value. Return None if no value is
    known."""
    numbers = sorted(value for value in values if value is not None)
    lowest_and_highest = map(form or number, (*numbers[:1], *numbers[-1:]))  # empty if no value is known
    return " to ".join(dict.fromkeys(lowest_and_highest)) or None


def _rows(columns: Sequence[Column]) -> Iterator[RecipeRow]:
    """Yield the rows of the table: a row for each hyperparameter, then the epochs and the runs."""
    for name, hyperparameter in HYPERPARAMETERS.items():
        values = [getattr(column.recipe, name) for column in columns]
        if name == "decay_epochs":
            row = _row(hyperparameter.shown, [_decay(column.recipe) for column in columns])
            # Mark a cell only if its epochs differ too, by 0.01 or more, because published results have
            # hundredths of an epoch. An unknown number of epochs does not differ.
            ours = finite(values[0])
            near = [ours is None or cell is None or abs(cell - ours) < 0.01 for cell in map(finite, values)]
            differs = [marked and not is_near for marked, is_near in zip(row.differs, near, strict=True)]
            yield RecipeRow(row.name, row.values, differs)
        elif name == "global_batch_size" or any(value is not None for value in values):
            yield _row(hyperparameter.shown, [number(value) for value in values])
    converged = [f"{column.runs[0]} of {column.runs[1]}" if column.runs[1] else "-" for column in columns]
    unmarked = [False] * len(columns)
    yield RecipeRow("epochs to target", [number(column.epochs) for column in columns], unmarked)
    yield RecipeRow("runs that converged", converged, unmarked)


def _row(name: str, values: list[str]) -> RecipeRow:
    """Return a row that marks each value that differs from the first one, if both are known."""
    return RecipeRow(name, values, [values[0] != "-" and value not in ("-", values[0]) for value in values])


def _decay(logged: Recipe) -> str:
    """Return the decay of a recipe for a cell: in epochs, and in steps if it was logged in steps."""
    epochs, steps = finite(logged.decay_epochs), logged.decay_steps  # a log may have any JSON value
    if epochs is None:
        return number(logged.decay_epochs if steps is None else steps)
    return f"{epochs:.3g} epochs" + ("" if steps is None else f" ({steps:,g} steps)")


def number(value: Any) -> str:
    """Format a logged value for people; ``-`` for None."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,d}" if isinstance(value, int) else f"{value:.6g}"

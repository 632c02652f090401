"""Table of a result's hyperparameters beside those of the nearest published results and reference convergence
points."""

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rn50.benchmark import rules
from rn50.results import published, recipe, sidecar
from rn50.results.parse import finite
from rn50.results.published import PublishedResult
from rn50.results.run import Run
from rn50.terminal import counted

_OFTEN_UNLIKE = ("label_smoothing", "model_bn_span", "gradient_accumulation_steps")
"""Hyperparameters in which results of one recipe may differ."""


@dataclass(frozen=True)
class Hyperparameters:
    """Table of hyperparameters; the first of the ``columns`` is ``ours``. ``results`` are the published
    results nearest in batch size and accelerators."""

    ours: recipe.Recipe
    columns: list["Column"]
    rows: list["Row"]
    results: list[PublishedResult]


@dataclass(frozen=True)
class Row:
    """Values of one hyperparameter, one per column. ``differs`` is True where a known value is not ours."""

    name: str
    values: list[str]
    differs: list[bool]


@dataclass(frozen=True)
class Column:
    """Column of the table, with the heading of its recipe. ``source`` is the name by which ``rn50 borrow``
    finds it, empty for ours."""

    source: str
    recipe: recipe.Recipe
    train_samples: int
    runs: tuple[int, int]
    """Number of runs that converged, and of all runs."""


def read(runs: Sequence[Run], ruleset: str, accelerators: int | None) -> Hyperparameters:
    """Return the hyperparameters of the first of ``runs`` and those nearest to it; ``ruleset`` selects the
    reference points."""
    ruleset = max(ruleset, rules.RCP_RULESETS[0])  # 0.7.0 has no reference points
    reached = [run.log.reached.epoch for run in runs if run.log.reached]
    logged = recipe.of_log(runs[0].log)
    if logged.values["label_smoothing"] is None:  # MLPerf has no log key for it; our runs save it
        saved = sidecar.section(runs[0].saved, "hyperparameters").get("label_smoothing")
        logged.values["label_smoothing"] = finite(saved)
    epochs = statistics.mean(reached) if reached else None
    ours = dataclasses.replace(logged, name="this result", epochs=epochs)
    samples = runs[0].log.train_samples or rules.TRAIN_SAMPLES
    columns = [Column("", ours, samples, (len(reached), len(runs)))]
    results: list[PublishedResult] = []
    if ours.batch_size and ours.batch_size > 0:
        optimizer = str(ours.values["optimizer"])
        columns += [_published(group) for group in published.nearest_recipes(ours.batch_size, optimizer)]
        results = published.nearest(ours.batch_size, optimizer, accelerators)
        for point in recipe.reference(ours.batch_size, ruleset):
            folder = "rcp" if ruleset == rules.RULESETS[-1] else f"rcp/{ruleset}"
            columns.append(Column(f"{folder}/{point.batch_size}", point, rules.TRAIN_SAMPLES, (0, 0)))
    return Hyperparameters(ours, columns, list(_rows(columns)), results)


def _published(group: Sequence[PublishedResult]) -> Column:
    reached = [epochs for result in group for epochs in result.epochs_to_target]
    first = recipe.of_published(group[0])
    values = first.values | {key: span(getattr(result, key) for result in group) for key in _OFTEN_UNLIKE}
    name = f"published, {counted(len(group), 'result')}"
    epochs = statistics.mean(reached) if reached else None
    group_recipe = dataclasses.replace(first, name=name, values=values, epochs=epochs)
    runs = (len(reached), sum(len(result.run_status) for result in group))
    return Column(group[0].name, group_recipe, rules.TRAIN_SAMPLES, runs)


def span(values: Iterable[float | None], form: Callable[[float], str] | None = None) -> str | None:
    """Return the lowest and the highest of the known values; None where there are none."""
    known = sorted(value for value in values if value is not None)
    return " to ".join(dict.fromkeys(map(form or number, (known[0], known[-1])))) if known else None


def _rows(columns: Sequence[Column]) -> Iterator[Row]:
    yield _row("global batch", [number(column.recipe.batch_size) for column in columns])
    for key, name in recipe.NAMES.items():
        if key == "learning_rate_decay_steps":
            # A decay logged in steps is off by about a hundredth of an epoch.
            epochs = [column.recipe.decay_epochs(column.train_samples) for column in columns]
            near = [epochs[0] is None or other is None or abs(other - epochs[0]) < 0.05 for other in epochs]
            row = _row(name, [_decay(column) for column in columns])
            differs = [other and not same for same, other in zip(near, row.differs, strict=True)]
            yield Row(name, row.values, differs)
        elif any(column.recipe.values.get(key) is not None for column in columns):
            yield _row(name, [number(column.recipe.values.get(key)) for column in columns])
    converged = [f"{column.runs[0]} of {column.runs[1]}" if column.runs[1] else "-" for column in columns]
    alike = [False] * len(columns)
    yield Row("epochs to target", [number(column.recipe.epochs) for column in columns], alike)
    yield Row("runs that converged", converged, alike)


def _row(name: str, values: list[str]) -> Row:
    return Row(name, values, [values[0] != "-" and value not in ("-", values[0]) for value in values])


def _decay(column: Column) -> str:
    epochs = column.recipe.decay_epochs(column.train_samples)
    logged = column.recipe.values.get("learning_rate_decay_steps")
    if epochs is None or logged is None:
        return number(logged)
    return f"{epochs:.3g} epochs" + (f" ({logged:,g} steps)" if epochs != logged else "")


def number(value: Any) -> str:
    """Format a logged value for people; ``-`` for None."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,d}" if isinstance(value, int) else f"{value:.6g}"

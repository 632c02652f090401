"""Table of a result's hyperparameters beside those of the nearest published results and reference convergence points."""

import dataclasses
import statistics
from dataclasses import dataclass
from typing import Any, Iterable, List, Optional, Sequence, Tuple

from rn50.benchmark import rules
from rn50.results import published, recipe
from rn50.results.parse import ResultLog
from rn50.results.published import PublishedResult


@dataclass(frozen=True)
class Hyperparameters:
    """Table of hyperparameters. ``rows`` are (name, one value per column); the first of the ``columns`` is ``ours``. ``results``
    are the published results nearest in batch size and accelerators."""

    ours: recipe.Recipe
    columns: List[str]
    rows: List[Tuple[str, List[str]]]
    results: List[PublishedResult]


@dataclass(frozen=True)
class _Column:
    name: str
    values: recipe.Recipe
    train_samples: int
    runs: Tuple[int, int]
    """Number of runs that converged, and of all runs."""


def read(logs: Sequence[ResultLog], ruleset: str, accelerators: Optional[int]) -> Hyperparameters:
    """Return the hyperparameters of the first of ``logs`` and those nearest to it; reference points are those of ``ruleset``."""
    reached = [log.reached.epoch for log in logs if log.reached]
    ours = dataclasses.replace(recipe.of_log(logs[0]), epochs=statistics.mean(reached) if reached else None)
    columns = [_Column("this result", ours, logs[0].train_samples or rules.TRAIN_SAMPLES, (len(reached), len(logs)))]
    results: List[PublishedResult] = []
    if ours.batch_size and ours.batch_size > 0:
        optimizer = str(ours.values["optimizer"])
        columns += [_published(group) for group in published.nearest_recipes(ours.batch_size, optimizer)]
        results = published.nearest(ours.batch_size, optimizer, accelerators)
        for point in recipe.reference(ours.batch_size, ruleset):
            columns.append(_Column(point.name, point, rules.TRAIN_SAMPLES, (0, 0)))
    return Hyperparameters(ours, [column.name for column in columns], _rows(columns), results)


def _published(group: Sequence[PublishedResult]) -> _Column:
    first = group[0]
    reached = [epochs for result in group for epochs in result.epochs_to_target]
    values = {
        "optimizer": first.optimizer,
        "base_learning_rate": first.base_learning_rate,
        "learning_rate_warmup_epochs": first.warmup_epochs,
        "learning_rate_decay_steps": first.decay_epochs,
        "momentum": first.momentum,
        "weight_decay": first.weight_decay,
        "label_smoothing": _range(result.label_smoothing for result in group),
        "model_bn_span": _range(result.model_bn_span for result in group),
        "gradient_accumulation_steps": _range(result.gradient_accumulation_steps for result in group),
    }
    name = f"published, {len(group)} {'result' if len(group) == 1 else 'results'}"
    said = recipe.Recipe(name, first.global_batch_size, values, statistics.mean(reached) if reached else None)
    return _Column(name, said, rules.TRAIN_SAMPLES, (len(reached), sum(len(result.run_status) for result in group)))


def _range(values: Iterable[Optional[float]]) -> Optional[str]:
    known = sorted({value for value in values if value is not None})
    return " to ".join(number(value) for value in sorted({known[0], known[-1]})) if known else None


def _rows(columns: Sequence[_Column]) -> List[Tuple[str, List[str]]]:
    rows = [("global batch", [number(each.values.batch_size) for each in columns])]
    for key, name in recipe.NAMES.items():
        if key == "learning_rate_decay_steps":
            rows.append((name, [_decay(each) for each in columns]))
        elif any(each.values.values.get(key) is not None for each in columns):
            rows.append((name, [number(each.values.values.get(key)) for each in columns]))
    rows.append(("epochs to target", [number(each.values.epochs) for each in columns]))
    return [*rows, ("runs that converged", [f"{each.runs[0]} of {each.runs[1]}" if each.runs[1] else "-" for each in columns])]


def _decay(column: _Column) -> str:
    epochs, logged = column.values.decay_epochs(column.train_samples), column.values.values.get("learning_rate_decay_steps")
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

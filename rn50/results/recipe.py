"""Read the hyperparameters of a run, whichever optimizer's log keys it uses, and the nearest reference
convergence points.

Source of the reference convergence points: ``rcps_resnet.json`` of the ``mlperf_logging`` package.
"""

import json
import math
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rn50.benchmark import rules, schedule
from rn50.packages import needed_for
from rn50.results.parse import ResultLog, finite
from rn50.results.published import PublishedResult

NAMES = {
    "optimizer": "optimizer",
    "base_learning_rate": "base learning rate",
    "end_learning_rate": "end learning rate",
    "learning_rate_warmup_epochs": "warm-up epochs",
    "learning_rate_decay_steps": "decay",
    "learning_rate_decay_poly_power": "power of the decay",
    "momentum": "momentum",
    "weight_decay": "weight decay",
    "epsilon": "epsilon",
    "label_smoothing": "label smoothing",
    "model_bn_span": "batch norm span",
    "gradient_accumulation_steps": "gradient accumulation",
}
"""Hyperparameters of a recipe besides the batch size: end of the log key, and display name."""
_COLUMNS = {"learning_rate_warmup_epochs": "warmup_epochs", "learning_rate_decay_steps": "decay_epochs"}
"""Key of a recipe -> its column in the table of published results, where the names differ."""
STEPS_FROM = 300
"""Logged decays from this number on are in steps, because no run lasts so many epochs. Smaller ones are in
epochs, as MXNet submissions log them."""


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of a run or reference point. ``values`` are as logged, by the keys of ``NAMES``;
    ``epochs`` is the mean number of epochs to target."""

    name: str
    batch_size: int | None
    values: dict[str, Any]
    epochs: float | None

    def decay_epochs(self, train_samples: int) -> float | None:
        """Return the epoch at whose end the learning rate has decayed, or None where it is not known."""
        logged = finite(self.values.get("learning_rate_decay_steps"))
        if logged is None or not self.batch_size:
            return None
        return logged * self.batch_size / train_samples if logged >= STEPS_FROM else logged


def of_log(log: ResultLog) -> Recipe:
    """Return the hyperparameters of a log; keys of the optimizer in use take precedence over another's."""
    logged: dict[str, Any] = {}
    for event in log.events:
        logged.setdefault(event.key, event.value)
    optimizer = logged.get("opt_name")
    values = {"optimizer": optimizer}
    for key in list(NAMES)[1:]:
        candidates = [f"{optimizer}_opt_{key}", f"{optimizer}_{key}", key, f"opt_{key}"]
        candidates += sorted(name for name in logged if name.endswith(f"_opt_{key}"))
        values[key] = next((logged[name] for name in candidates if logged.get(name) is not None), None)
    if values["label_smoothing"] is None and log.label_smoothing:
        values["label_smoothing"] = log.label_smoothing[1]
    reached = log.reached
    return Recipe("logged", log.global_batch_size, values, reached.epoch if reached else None)


def of_published(result: PublishedResult) -> Recipe:
    """Return the hyperparameters of a published result."""
    values = {key: getattr(result, _COLUMNS.get(key, key), None) for key in NAMES}
    return Recipe(result.name, result.global_batch_size, values, None)


def reference(batch_size: int, ruleset: str, number: int = 2) -> list[Recipe]:
    """Return the ``number`` reference convergence points of a ruleset that are nearest to a batch size, by
    ratio. A ruleset older than these points gets the first ruleset's."""
    known = ruleset if ruleset in rules.RCP_RULESETS else rules.RCP_RULESETS[0]
    points = json.loads(reference_file(known).read_text(encoding="utf-8")).values()
    nearest = sorted(points, key=lambda point: abs(math.log(point["BS"] / batch_size)))[:number]
    return [of_point(point) for point in sorted(nearest, key=lambda point: point["BS"])]


def reference_file(ruleset: str) -> pathlib.Path:
    """Return the path of a ruleset's reference convergence points in the package: by name, each with its
    ``Epochs to converge``."""
    with needed_for("reference convergence points"):
        import mlperf_logging
    checker = pathlib.Path(mlperf_logging.__file__).parent / "rcp_checker"
    return checker / f"training_{ruleset}" / "rcps_resnet.json"


def of_point(point: dict[str, Any]) -> Recipe:
    """Return the recipe of a reference convergence point, with its mean number of epochs."""
    hyperparameters, epochs = point["Hyperparams"], point["Epochs to converge"]
    values = {key: hyperparameters.get(key, hyperparameters.get(f"opt_{key}")) for key in NAMES}
    return Recipe(f"reference at {point['BS']:,}", point["BS"], values, sum(epochs) / len(epochs))


def learning_rates(recipe: Recipe, train_samples: int, epochs: float) -> Sequence[tuple[float, float]]:
    """Return (epoch, learning rate) along a run of ``epochs``; empty where the recipe lacks a value or has
    another schedule than ``rn50.benchmark.schedule``."""
    base = finite(recipe.values.get("base_learning_rate"))
    warmup = finite(recipe.values.get("learning_rate_warmup_epochs"))
    decay = recipe.decay_epochs(train_samples)
    fixed = {"end_learning_rate": rules.END_LEARNING_RATE, "learning_rate_decay_poly_power": rules.POLY_POWER}
    if any(recipe.values.get(key) not in (None, value) for key, value in fixed.items()):
        return ()
    if base is None or warmup is None or decay is None or not 0 <= warmup < decay:
        return ()
    # The schedule counts steps; hundredths of an epoch stand for them.
    last = round(100 * epochs)
    warm, end = round(100 * warmup), round(100 * decay)
    points = {round(last * i / 200) for i in range(1, 201)} | {warm}
    return [(p / 100, schedule.learning_rate(p, base, warm, end)) for p in sorted(points) if 0 < p <= last]

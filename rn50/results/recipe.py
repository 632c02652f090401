"""Read the hyperparameters of a run, whichever optimizer's log keys it uses, and the reference convergence
points.

Source of the reference convergence points: ``rcps_resnet.json`` of the ``mlperf_logging`` package.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from rn50.benchmark import rules, schedule
from rn50.benchmark.recipe import FIXED, HYPERPARAMETERS, Recipe
from rn50.packages import needed_for
from rn50.results.parse import ResultLog, finite

STEPS_FROM = 300
"""Logged decays from this number on are in steps, because no run lasts so many epochs. Smaller ones are in
epochs, as MXNet submissions log them."""


def of_log(log: ResultLog) -> Recipe:
    """Return the hyperparameters of a log; keys of the optimizer in use take precedence over another's."""
    logged: dict[str, Any] = {}
    for event in log.events:
        logged.setdefault(event.key, event.value)
    optimizer = logged.get("opt_name")
    values = {name: _value(logged, optimizer, row.end) for name, row in HYPERPARAMETERS.items()}
    if values["label_smoothing"] is None and log.label_smoothing:
        values["label_smoothing"] = log.label_smoothing[1]
    values |= {"optimizer": optimizer, "global_batch_size": log.global_batch_size}
    return _in_epochs(values, log.train_samples or rules.TRAIN_SAMPLES)


def _value(logged: Mapping[str, Any], optimizer: Any, end: str) -> Any:
    keys = [f"{optimizer}_opt_{end}", f"{optimizer}_{end}", end, f"opt_{end}"]
    keys += sorted(key for key in logged if key.endswith(f"_opt_{end}"))
    return next((logged[key] for key in keys if logged.get(key) is not None), None)


def _in_epochs(values: Mapping[str, Any], train_samples: int) -> Recipe:
    """Return a recipe whose decay, in steps or epochs, is in epochs: whole ones where that is a step off at
    most, whether an epoch has its last step, which is not full, or not."""
    steps, batch = finite(values["decay_epochs"]), values["global_batch_size"]
    if steps is None or steps < STEPS_FROM:
        return Recipe(**values)
    if not batch:
        return Recipe(**{**values, "decay_epochs": None, "decay_steps": steps})
    of_epoch = train_samples / batch
    counts = (of_epoch, math.ceil(of_epoch), math.floor(of_epoch))
    fitting = (count for count in counts if count >= 1 and abs(math.remainder(steps, count)) <= 1)
    whole = (round(steps / count) for count in fitting)
    return Recipe(**{**values, "decay_epochs": next(whole, steps / of_epoch), "decay_steps": steps})


def reference(batch_size: int, ruleset: str, number: int = 2) -> list[dict[str, Any]]:
    """Return the ``number`` reference convergence points of a ruleset that are nearest to a batch size, by
    ratio. A ruleset older than these points gets the first ruleset's."""
    ruleset = ruleset if ruleset in rules.RCP_RULESETS else rules.RCP_RULESETS[0]
    points = convergence_points(ruleset).values()
    nearest = sorted(points, key=lambda point: abs(math.log(point["BS"] / batch_size)))[:number]
    return sorted(nearest, key=lambda point: point["BS"])


def convergence_points(ruleset: str) -> dict[str, dict[str, Any]]:
    """Return the reference convergence points of a ruleset by name, as the official checker has them."""
    return dict(json.loads(reference_file(ruleset).read_text(encoding="utf-8")))


def reference_file(ruleset: str) -> pathlib.Path:
    """Return the path of a ruleset's reference convergence points in the package: by name, each with its
    ``Epochs to converge``."""
    with needed_for("reference convergence points"):
        import mlperf_logging
    checker = pathlib.Path(mlperf_logging.__file__).parent / "rcp_checker"
    return checker / f"training_{ruleset}" / "rcps_resnet.json"


def of_point(point: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a reference convergence point."""
    its = {**point["Hyperparams"], "global_batch_size": point["BS"]}
    its["opt_name"] = its.get("optimizer")
    values = {name: its.get(row.end, its.get(f"opt_{row.end}")) for name, row in HYPERPARAMETERS.items()}
    return _in_epochs(values, rules.TRAIN_SAMPLES)


def learning_rates(recipe: Recipe, epochs: float) -> Sequence[tuple[float, float]]:
    """Return (epoch, learning rate) along a run of ``epochs``; empty where the recipe lacks a value or has
    another schedule than ``rn50.benchmark.schedule``."""
    fixed = ((getattr(recipe, name), value) for name, value in FIXED.items() if name != "epsilon")
    warmup, decay = finite(recipe.warmup_epochs), finite(recipe.decay_epochs)
    if any(logged not in (None, value) for logged, value in fixed) or finite(recipe.learning_rate) is None:
        return ()
    if warmup is None or decay is None or not 0 <= warmup < decay:
        return ()
    # The schedule counts steps; hundredths of an epoch stand for them.
    whole, last = dataclasses.replace(recipe, **FIXED), round(100 * epochs)
    points = sorted({round(last * i / 200) for i in range(1, 201)} | {round(100 * warmup)})
    return [(at / 100, schedule.learning_rate(at, whole, 100)) for at in points if 0 < at <= last]

"""Read recipes (``rn50.benchmark.recipe.Recipe``) from logs, whose keys depend on the optimizer, and from the
reference convergence points, the table ``rcps_resnet.json`` in the ``mlperf_logging`` package.
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
"""A logged decay of at least so much is in steps, because no run lasts so many epochs. A smaller number is in
epochs, as MXNet submissions log it."""


def of_log(log: ResultLog) -> Recipe:
    """Return the hyperparameters of a log. Where it has the keys of two optimizers, those of the optimizer in
    use take precedence."""
    logged: dict[str, Any] = {}
    for event in log.events:
        logged.setdefault(event.key, event.value)
    optimizer = logged.get("opt_name")
    # ``row.end`` is the end of the hyperparameter's log key, without the optimizer's name before it.
    values = {name: _value(logged, optimizer, row.end) for name, row in HYPERPARAMETERS.items()}
    if values["label_smoothing"] is None and log.label_smoothing:
        values["label_smoothing"] = log.label_smoothing[1]  # behind its line number
    values |= {"optimizer": optimizer, "global_batch_size": log.global_batch_size}
    return _in_epochs(values, log.train_samples or rules.TRAIN_SAMPLES)


def _value(logged: Mapping[str, Any], optimizer: Any, end: str) -> Any:
    """Return the logged value of the hyperparameter whose key ends in ``end``; None if none is logged."""
    # The first key that is logged counts. With LARS the keys are lars_opt_momentum, lars_momentum, momentum,
    # opt_momentum, and then those of other optimizers, such as sgd_opt_momentum.
    keys = [f"{optimizer}_opt_{end}", f"{optimizer}_{end}", end, f"opt_{end}"]
    keys += sorted(key for key in logged if key.endswith(f"_opt_{end}"))
    return next((logged[key] for key in keys if logged.get(key) is not None), None)


def _in_epochs(values: Mapping[str, Any], train_samples: int) -> Recipe:
    """Return the recipe of ``values``. If their ``decay_epochs`` is in steps, convert it to epochs: to a
    whole number if so many epochs have this number of steps, give or take one, else to a fraction."""
    steps, batch_size = finite(values["decay_epochs"]), values["global_batch_size"]
    if steps is None or steps < STEPS_FROM:
        return Recipe(**values)
    if not batch_size:
        return Recipe(**{**values, "decay_epochs": None, "decay_steps": steps})
    epoch_steps = train_samples / batch_size
    # Programs count the steps of an epoch as a fraction, or with the partly filled last step, or without it.
    counts = (epoch_steps, math.ceil(epoch_steps), math.floor(epoch_steps))
    fitting = (count for count in counts if count >= 1 and abs(math.remainder(steps, count)) <= 1)
    epochs = next((round(steps / count) for count in fitting), steps / epoch_steps)
    return Recipe(**{**values, "decay_epochs": epochs, "decay_steps": steps})


def reference(batch_size: int, ruleset: str, number: int = 2) -> list[dict[str, Any]]:
    """Return the ``number`` reference convergence points whose batch sizes are nearest, by ratio, to
    ``batch_size``, in ascending order. A point has the fields of the official table, such as ``BS``, its
    batch size. For a ruleset that is too old to have points, take the oldest ruleset that has some."""
    ruleset = ruleset if ruleset in rules.RCP_RULESETS else rules.RCP_RULESETS[0]
    points = convergence_points(ruleset).values()
    nearest = sorted(points, key=lambda point: abs(math.log(point["BS"] / batch_size)))[:number]
    return sorted(nearest, key=lambda point: point["BS"])


def convergence_points(ruleset: str) -> dict[str, dict[str, Any]]:
    """Return the reference convergence points of a ruleset by name, as the official checker has them."""
    return dict(json.loads(reference_file(ruleset).read_text(encoding="utf-8")))


def reference_file(ruleset: str) -> pathlib.Path:
    """Return the path of the table of reference convergence points of a ruleset, a JSON file in the package
    ``mlperf_logging``."""
    with needed_for("reference convergence points"):
        import mlperf_logging
    checker = pathlib.Path(mlperf_logging.__file__).parent / "rcp_checker"
    return checker / f"training_{ruleset}" / "rcps_resnet.json"


def of_point(point: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a reference convergence point, an entry of the official table."""
    facts = {**point["Hyperparams"], "global_batch_size": point["BS"]}
    facts["opt_name"] = facts.get("optimizer")
    values = {name: facts.get(row.end, facts.get(f"opt_{row.end}")) for name, row in HYPERPARAMETERS.items()}
    return _in_epochs(values, rules.TRAIN_SAMPLES)


def learning_rates(recipe: Recipe, epochs: float) -> Sequence[tuple[float, float]]:
    """Return about 200 points (epoch, learning rate) of a run of ``epochs``. Return no points if the recipe
    lacks a value or its schedule is not that of ``rn50.benchmark.schedule``."""
    # The schedule is computed with the values that the rules fix. Epsilon has no part in it.
    fixed = ((getattr(recipe, name), value) for name, value in FIXED.items() if name != "epsilon")
    if any(logged not in (None, value) for logged, value in fixed):
        return ()
    warmup, decay = finite(recipe.warmup_epochs), finite(recipe.decay_epochs)
    if finite(recipe.learning_rate) is None or warmup is None or decay is None or not 0 <= warmup < decay:
        return ()
    complete = dataclasses.replace(recipe, **FIXED)
    # The schedule counts steps; let a step be a hundredth of an epoch. Take 200 steps at equal distances, and
    # the end of warm-up.
    last = round(100 * epochs)
    steps = sorted({round(last * i / 200) for i in range(1, 201)} | {round(100 * warmup)})
    return [(step / 100, schedule.learning_rate(step, complete, 100)) for step in steps if 0 < step <= last]

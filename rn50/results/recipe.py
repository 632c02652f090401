"""The hyperparameters of a run, under the names of any optimizer's log keys, and the reference's nearest to it.

Source of the reference convergence points: ``rcps_resnet.json`` of the ``mlperf_logging`` package.
"""

import importlib.util
import json
import math
import pathlib
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from rn50.benchmark import rules, schedule
from rn50.results.parse import ResultLog, finite

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
"""What a recipe holds beside the batch size: by the ends of the log keys, and as a person calls it."""
STEPS_FROM = 300
"""No run lasts as many epochs: a decay of this or more is in steps, one below in epochs, as MXNet submissions log it."""


@dataclass(frozen=True)
class Recipe:
    """``values`` by the keys of ``NAMES``, as logged; ``epochs`` are those that runs of it needed, on the mean."""

    name: str
    batch_size: Optional[int]
    values: Dict[str, Any]
    epochs: Optional[float]

    def decay_epochs(self, train_samples: int) -> Optional[float]:
        """The epochs at whose end the learning rate has decayed."""
        logged = finite(self.values.get("learning_rate_decay_steps"))
        if logged is None or not self.batch_size:
            return None
        return logged * self.batch_size / train_samples if logged >= STEPS_FROM else logged


def of_log(log: ResultLog) -> Recipe:
    """What a log says; a key of the optimizer in use goes before one of another."""
    logged: Dict[str, Any] = {}
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


def reference(batch_size: int, ruleset: str, number: int = 2) -> List[Recipe]:
    """The ``number`` reference convergence points that are nearest to a batch size, by their ratio to it: those of a ruleset, or
    the first ones for a ruleset of before."""
    known = ruleset if ruleset in rules.RCP_RULESETS else rules.RCP_RULESETS[0]
    points = json.loads(reference_file(known).read_text(encoding="utf-8")).values()
    nearest = sorted(points, key=lambda point: abs(math.log(point["BS"] / batch_size)))[:number]
    return [of_point(point) for point in sorted(nearest, key=lambda point: point["BS"])]


def reference_file(ruleset: str) -> pathlib.Path:
    """Where the package has the reference convergence points of a ruleset: by name, each with its ``Epochs to converge``."""
    package = importlib.util.find_spec("mlperf_logging")
    assert package is not None and package.submodule_search_locations
    return pathlib.Path(package.submodule_search_locations[0]) / "rcp_checker" / f"training_{ruleset}" / "rcps_resnet.json"


def of_point(point: Dict[str, Any]) -> Recipe:
    """The recipe of a reference convergence point, and the mean of its epochs."""
    hyperparameters, epochs = point["Hyperparams"], point["Epochs to converge"]
    values = {key: hyperparameters.get(key, hyperparameters.get(f"opt_{key}")) for key in NAMES}
    return Recipe(f"reference at {point['BS']:,}", point["BS"], values, sum(epochs) / len(epochs))


def learning_rates(recipe: Recipe, train_samples: int, epochs: float) -> Sequence[Tuple[float, float]]:
    """Return (epoch, learning rate) along a run of ``epochs``; empty where the recipe lacks a value or has another schedule than
    ``rn50.benchmark.schedule``."""
    base, warmup = (finite(recipe.values.get(key)) for key in ("base_learning_rate", "learning_rate_warmup_epochs"))
    decay = recipe.decay_epochs(train_samples)
    fixed = {"end_learning_rate": rules.END_LEARNING_RATE, "learning_rate_decay_poly_power": rules.POLY_POWER}
    if any(recipe.values.get(key) not in (None, value) for key, value in fixed.items()):
        return ()
    if base is None or warmup is None or decay is None or not 0 <= warmup < decay:
        return ()
    # By hundredths of an epoch, which stand for the steps.
    last = round(100 * epochs)
    points = sorted(({round(last * i / 200) for i in range(1, 201)} | {round(100 * warmup)}) - {0})
    return [(p / 100, schedule.learning_rate(p, base, round(100 * warmup), round(100 * decay))) for p in points if p <= last]

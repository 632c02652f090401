"""A recipe: the hyperparameters that the log of a run has, a row each.

Writer and reader of the log, the table of published results, what is borrowed, the rules of the closed
division and what is displayed derive from these rows.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from rn50.benchmark import rules
from rn50.printed import IfKnown, prints


@dataclasses.dataclass(frozen=True)
class Closed:
    """Values that the closed division allows, the rule, and what to do where a log breaks it. The rule is for
    some ``optimizers`` and ``below`` a global batch size."""

    allows: Callable[[Any], bool]
    rule: str
    remedy: str
    optimizers: tuple[str, ...] = rules.OPTIMIZERS
    below: float = math.inf


@dataclasses.dataclass(frozen=True)
class Hyperparameter:
    """Row of a hyperparameter.

    ``shown`` is its name on displays, ``heading`` a shorter one for narrow tables. ``end`` is its log key
    without the optimizer; ``keys`` are the keys that a run logs, by optimizer, none where MLPerf has none.
    ``column`` is its name in the published table and in JSON, by default that of its field, None where they
    do not have it. ``fixed`` is its value where the rules fix one.
    """

    shown: str
    end: str
    keys: Mapping[str, str]
    heading: str = ""
    column: str | None = ""
    fixed: float | None = None
    closed: Closed | None = None


def _row(shown: str, end: str, keys: Mapping[str, str] | None = None, **more: Any) -> Any:
    """Return a field of ``Recipe``. Its keys begin with the optimizer unless others are given."""
    keys = {optimizer: f"{optimizer}_opt_{end}" for optimizer in rules.OPTIMIZERS} if keys is None else keys
    return dataclasses.field(default=None, metadata={"row": Hyperparameter(shown, end, keys, **more)})


def _same_key(shown: str, key: str, heading: str = "") -> Any:
    """Return a field of ``Recipe`` whose key is the same for every optimizer."""
    return _row(shown, key, dict.fromkeys(rules.OPTIMIZERS, key), heading=heading)


def _fixed(value: float, remedy: str, optimizers: tuple[str, ...] = rules.OPTIMIZERS) -> dict[str, Any]:
    """Return what a row has more where the rules fix its value."""
    closed = Closed((value,).__contains__, f"the rules fix {value:g}", f"{remedy} {value}", optimizers)
    return {"fixed": value, "closed": closed, "column": None}


def _is_whole(value: float) -> bool:
    """Return whether a number is whole, with the tolerance of the official compliance checker."""
    return math.isfinite(value) and abs(value - round(value)) < 1e-5


_SGD_RATE = Closed(
    lambda value: _is_whole(value / rules.SGD_LEARNING_RATE_UNIT),
    f"the rules allow SGD {rules.SGD_LEARNING_RATE_UNIT:g} * k with a whole k",
    f"choose a learning rate of {rules.SGD_LEARNING_RATE_UNIT} * k for a whole number k",
    optimizers=("sgd",),
)
MOMENTUM = Closed(
    (rules.MOMENTUM_BELOW_32K,).__contains__,
    f"the rules fix {rules.MOMENTUM_BELOW_32K:g} below a global batch of {rules.LARGE_BATCH}",
    f"train with momentum {rules.MOMENTUM_BELOW_32K} (MOM)",
    below=rules.LARGE_BATCH,
)
_WEIGHT_DECAY = Closed(
    lambda value: value > 0 and _is_whole(math.log2(value / rules.WEIGHT_DECAY_BASE)),
    f"the rules allow {rules.WEIGHT_DECAY_BASE:g} * 2^n with a whole n",
    "choose a weight decay of 0.0001 * 2^N for a whole number N",
)
_ALLOWED_SMOOTHING = "train with a label smoothing of 0 or 0.1 (LABELSMOOTHING)"
SMOOTHING = Closed(rules.LABEL_SMOOTHING.__contains__, "the rules allow 0 and 0.1", _ALLOWED_SMOOTHING)
_END = _fixed(rules.END_LEARNING_RATE, "end the schedule at")
_POWER = _fixed(rules.POLY_POWER, "decay with power", optimizers=("lars",))
_EPSILON = _fixed(rules.LARS_EPSILON, "train with epsilon")
_WARMUP = "learning_rate_warmup_epochs"
_WARMUP_KEYS = {"lars": f"lars_opt_{_WARMUP}", "sgd": f"opt_{_WARMUP}"}  # as the rulesets have it


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Hyperparameters of a run, a published result or a reference point. None is not known; those of a log
    are as they were logged, which may be anything that JSON has."""

    global_batch_size: int = _same_key("global batch", "global_batch_size", heading="batch")
    optimizer: str = _same_key("optimizer", "opt_name")
    learning_rate: float = _row(
        "base learning rate",
        "base_learning_rate",
        heading="learning rate",
        column="base_learning_rate",
        closed=_SGD_RATE,
    )
    end_learning_rate: float = _row("end learning rate", "end_learning_rate", **_END)
    warmup_epochs: IfKnown[float] = _row("warm-up epochs", _WARMUP, _WARMUP_KEYS, heading="warm-up")
    decay_epochs: IfKnown[float] = _row("decay", "learning_rate_decay_steps")
    decay_power: float = _row("power of the decay", "learning_rate_decay_poly_power", **_POWER)
    momentum: IfKnown[float] = _row("momentum", "momentum", closed=MOMENTUM)
    weight_decay: IfKnown[float] = _row("weight decay", "weight_decay", closed=_WEIGHT_DECAY)
    epsilon: float | None = _row("epsilon", "epsilon", {"lars": "lars_epsilon"}, **_EPSILON)
    label_smoothing: float | None = _row("label smoothing", "label_smoothing", {}, closed=SMOOTHING)
    model_bn_span: int | None = _same_key("batch norm span", "model_bn_span")
    gradient_accumulation_steps: int | None = _same_key(
        "gradient accumulation", "gradient_accumulation_steps"
    )
    decay_steps: float | None = None
    """Steps of the decay where it was logged in steps, of which ``decay_epochs`` is made."""

    @property
    def shared(self) -> "Recipe":
        """The values ``SHARED`` alone: equal to those of every result with the same recipe."""
        shared = Recipe(**{name: getattr(self, name) for name in SHARED})
        # A decay logged in steps is off by about a hundredth of an epoch.
        return dataclasses.replace(shared, decay_epochs=shared.decay_epochs and round(shared.decay_epochs, 1))

    @property
    def is_whole(self) -> bool:
        """True if every value of ``SHARED`` is known."""
        return None not in [getattr(self, name) for name in SHARED]

    def logged(self) -> dict[str, Any]:
        """Return log key -> value, first those of every optimizer, in alphabetical order."""
        rows = [(name, row) for name, row in HYPERPARAMETERS.items() if self.optimizer in row.keys]
        values = {row.keys[self.optimizer]: getattr(self, name) for name, row in rows}
        every = {row.end for _, row in rows}
        order = sorted(values, key=lambda key: (key not in every, key.removeprefix(f"{self.optimizer}_")))
        return {key: values[key] for key in order}


HYPERPARAMETERS: dict[str, Hyperparameter] = {
    field.name: field.metadata["row"] for field in dataclasses.fields(Recipe) if field.metadata
}
"""Field of ``Recipe``, and of a configuration that can set it -> its row, in the order of displays."""
COLUMN_OF = {name: row.column or name for name, row in HYPERPARAMETERS.items() if row.column is not None}
"""Field of ``Recipe`` -> its name in the published table and in JSON."""
FIXED: dict[str, Any] = {name: row.fixed for name, row in HYPERPARAMETERS.items() if row.fixed is not None}
"""Field of ``Recipe`` -> value that the rules fix."""
SHARED: tuple[str, ...] = ("global_batch_size", "optimizer", "learning_rate", "warmup_epochs")
SHARED += ("decay_epochs", "weight_decay", "momentum")
"""Fields that are chosen together: results that share them have the same recipe."""
prints(Recipe, lambda r: {COLUMN_OF[name]: getattr(r, name) for name in SHARED})


def of_configuration(values: Mapping[str, Any], ranks: int | None) -> Recipe:
    """Return the recipe of ``ranks`` ranks that have these hyperparameters, by field of a configuration."""
    batch_size = values.get("batch_size")
    fields: dict[str, Any] = {
        **{name: values.get(name) for name in HYPERPARAMETERS},
        "global_batch_size": batch_size * ranks if type(batch_size) is int and ranks else None,
        "model_bn_span": batch_size,
        # In epochs, not steps, like every MXNet submission of this benchmark.
        "decay_epochs": values.get("decay_epochs") or values.get("num_epochs"),
    }
    return Recipe(**fields)


def departures(recipe: Recipe) -> dict[str, str]:
    """Return field -> broken rule, for each value that the closed division does not allow. What is not known
    counts as allowed."""
    return {
        name: row.closed.rule
        for name, row in HYPERPARAMETERS.items()
        if row.closed
        and getattr(recipe, name) is not None
        and recipe.optimizer in row.closed.optimizers
        and recipe.global_batch_size < row.closed.below
        and not row.closed.allows(getattr(recipe, name))
    }

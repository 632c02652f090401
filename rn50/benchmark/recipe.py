"""A recipe: the hyperparameters that the MLPerf log of a run has.

Each field of ``Recipe`` has a row, a ``Hyperparameter``, with its log keys, its names, and the rule of the
closed division. Writer and reader of the log, the table of published results, ``rn50 borrow``, the checks of
results and the displays take them from there, so a hyperparameter is described here only.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from rn50.benchmark import rules
from rn50.printed import IfKnown, prints

_WARMUP = "learning_rate_warmup_epochs"
_WARMUP_KEYS = {"lars": f"lars_opt_{_WARMUP}", "sgd": f"opt_{_WARMUP}"}  # in the rulesets SGD has no prefix
OPTIMIZERS = tuple(_WARMUP_KEYS)
"""Values of OPTIMIZER. The closed division allows those of ``rules.OPTIMIZERS`` alone; a framework has those
of its traits."""


@dataclasses.dataclass(frozen=True)
class Closed:
    """A rule of the closed division on the value of a hyperparameter."""

    allows: Callable[[Any], bool]
    """Function that returns whether a value keeps the rule."""
    rule: str
    """The rule in words."""
    remedy: str
    """Remedy for a log that breaks the rule."""
    optimizers: tuple[str, ...] = ()
    """Optimizers to which the rule applies. Empty: all, unknown ones too."""
    below: float = math.inf
    """Global batch size below which the rule applies."""


@dataclasses.dataclass(frozen=True)
class Hyperparameter:
    """Row of a hyperparameter."""

    shown: str
    """Name on displays."""
    end: str
    """Log key without the prefix of the optimizer, as "momentum" of "lars_opt_momentum"."""
    keys: Mapping[str, str]
    """Optimizer -> log key of its runs; an optimizer is missing if MLPerf has no key for it."""
    heading: str = ""
    """Shorter name for narrow tables; empty: ``shown``."""
    column: str | None = ""
    """Name in the table of published results and in JSON. Empty: the name of the field; None: they do not
    have it."""
    fixed: float | None = None
    """The only value that the rules allow; None: they allow several."""
    closed: Closed | None = None
    """Rule of the closed division; None: there is none."""


def _row(shown: str, end: str, keys: Mapping[str, str] | None = None, **more: Any) -> Any:
    """Return a field of ``Recipe`` with its row. By default its log keys are ``end`` with the prefix of each
    optimizer. ``more`` are further fields of ``Hyperparameter``."""
    keys = {optimizer: f"{optimizer}_opt_{end}" for optimizer in OPTIMIZERS} if keys is None else keys
    return dataclasses.field(default=None, metadata={"row": Hyperparameter(shown, end, keys, **more)})


def _same_key(shown: str, key: str, **more: Any) -> Any:
    """Return a field of ``Recipe`` with the same log key for every optimizer. ``more`` are further fields of
    ``Hyperparameter``."""
    return _row(shown, key, dict.fromkeys(OPTIMIZERS, key), **more)


def _fixed(value: float, remedy: str, optimizers: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the arguments of ``_row`` for a hyperparameter whose value the rules fix. ``remedy`` is a text
    that the value completes, such as "end the schedule at" 0.0001."""
    closed = Closed((value,).__contains__, f"the rules fix {value:g}", f"{remedy} {value}", optimizers)
    return {"fixed": value, "closed": closed, "column": None}


def _default_only(shown: str, default: Any, rule: str) -> Any:
    """Return a field of ``Recipe`` that MLPerf has no log key for. The closed division allows the default of
    its variable alone, because the reference of the benchmark does as ``rule`` says."""
    closed = Closed((default,).__contains__, rule, "train as the rules say, or submit to the open division")
    return _row(shown, "", {}, column=None, closed=closed)


def _is_whole(value: float) -> bool:
    """Return whether a number is whole, with the tolerance of the official compliance checker."""
    return math.isfinite(value) and abs(value - round(value)) < 1e-5


_OPTIMIZER = Closed(
    rules.OPTIMIZERS.__contains__, "the rules allow lars and sgd", "train with lars or sgd, and log that"
)
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
# Arguments of ``_row`` for hyperparameters that the rules fix.
_END = _fixed(rules.END_LEARNING_RATE, "end the schedule at")
_POWER = _fixed(rules.POLY_POWER, "decay with power", optimizers=("lars",))
_EPSILON = _fixed(rules.LARS_EPSILON, "train with epsilon")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Hyperparameters of a run, a published result or a reference convergence point. None means unknown.
    Values from a log may have any type of JSON, because they are kept as they were logged."""

    global_batch_size: int = _same_key("global batch", "global_batch_size", heading="batch")
    optimizer: str = _same_key("optimizer", "opt_name", closed=_OPTIMIZER)
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
    image_sizes: str | None = _default_only("image sizes", None, "the rules fix one size for all epochs")
    lr_decay: str | None = _default_only("form of the decay", "polynomial", "the rules fix polynomial decay")
    decoupled_weight_decay: bool | None = _default_only(
        "decoupled weight decay", False, "the rules fix the equations of the optimizer"
    )
    loss: str | None = _default_only("loss", "softmax", "the rules fix the cross-entropy of a softmax")
    blur_pool: bool | None = _default_only("BlurPool", False, "the rules fix the layers of the network")
    ema_half_life: float | None = _default_only(
        "half-life of the average", 0.0, "the rules have the trained weights evaluated"
    )
    decay_steps: float | None = None
    """Steps of the decay, if the log has steps in place of epochs. ``decay_epochs`` is computed from them."""

    @property
    def shared(self) -> "Recipe":
        """A recipe with the fields ``SHARED`` only, for comparison: two results with equal ones were trained
        by the same recipe."""
        shared = Recipe(**{name: getattr(self, name) for name in SHARED})
        # Rounded, because epochs that were computed from steps are off by about 0.01. None stays None.
        return dataclasses.replace(shared, decay_epochs=shared.decay_epochs and round(shared.decay_epochs, 1))

    @property
    def is_whole(self) -> bool:
        """True if no field of ``SHARED`` is unknown."""
        return None not in [getattr(self, name) for name in SHARED]

    def logged(self) -> dict[str, Any]:
        """Return log key -> value, without unknown values, in the order of the log: first the keys that all
        optimizers share, then those of the optimizer, each group in alphabetical order."""
        rows = [(name, row) for name, row in HYPERPARAMETERS.items() if self.optimizer in row.keys]
        values = {row.keys[self.optimizer]: getattr(self, name) for name, row in rows}
        common = {row.end for _, row in rows}  # a key that equals an ``end`` has no prefix
        order = sorted(values, key=lambda key: (key not in common, key.removeprefix(f"{self.optimizer}_")))
        return {key: values[key] for key in order if values[key] is not None}


HYPERPARAMETERS: dict[str, Hyperparameter] = {
    field.name: field.metadata["row"] for field in dataclasses.fields(Recipe) if field.metadata
}
"""Field of ``Recipe`` -> its row, in the order of displays. A configuration that sets it has a field of the
same name."""
COLUMN_OF = {name: row.column or name for name, row in HYPERPARAMETERS.items() if row.column is not None}
"""Field of ``Recipe`` -> its name in the table of published results and in JSON."""
FIXED: dict[str, Any] = {name: row.fixed for name, row in HYPERPARAMETERS.items() if row.fixed is not None}
"""Field of ``Recipe`` -> the value that the rules fix."""
SHARED: tuple[str, ...] = ("global_batch_size", "optimizer", "learning_rate", "warmup_epochs")
SHARED += ("decay_epochs", "weight_decay", "momentum")
"""Fields that are chosen together. Results with equal values of all of them have the same recipe."""
prints(Recipe, lambda r: {COLUMN_OF[name]: getattr(r, name) for name in SHARED})


def of_configuration(values: Mapping[str, Any], ranks: int | None) -> Recipe:
    """Return the recipe of a configuration. ``values`` are its hyperparameters by field name; ``ranks`` is
    the number of ranks, None if it is unknown."""
    batch_size = values.get("batch_size")  # of any type, if the values come from a file
    fields: dict[str, Any] = {
        **{name: values.get(name) for name in HYPERPARAMETERS},
        "global_batch_size": batch_size * ranks if type(batch_size) is int and ranks else None,
        "model_bn_span": batch_size,  # the samples of one rank
        # In epochs, not steps, like every MXNet submission of this benchmark.
        "decay_epochs": values.get("decay_epochs") or values.get("num_epochs"),
    }
    if values.get("lr_decay") == "cosine":
        fields["decay_power"] = None  # half a cosine has no power
    return Recipe(**fields)


def departures(recipe: Recipe) -> dict[str, str]:
    """Return field -> broken rule, for each value that the closed division does not allow. An unknown value
    breaks no rule."""
    broken = {}
    for name, row in HYPERPARAMETERS.items():
        value, closed = getattr(recipe, name), row.closed
        if closed is None or value is None:
            continue
        if closed.optimizers and recipe.optimizer not in closed.optimizers:
            continue
        # An unknown batch size counts as a small one, to which all rules apply.
        if (recipe.global_batch_size or 0) < closed.below and not closed.allows(value):
            broken[name] = closed.rule
    return broken

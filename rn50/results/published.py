"""Published ResNet-50 results of MLPerf Training, rounds v0.7 to v3.1: what they trained with, and what came of it.

``published.csv`` holds facts of the logs and system descriptions that MLCommons published, a row a result. The command that
makes it from those result trees is ``python -m rn50.results.collect``; ``collect.py`` says what each column is read from.
"""

import csv
import dataclasses
import functools
import io
import math
import pathlib
import typing
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from rn50.benchmark import rules

TABLE = pathlib.Path(__file__).with_name("published.csv")
Numbers = Tuple[Optional[float], ...]


@dataclass(frozen=True)
class PublishedResult:
    """One result; what its logs and its system description do not say is None, or empty where it is text.

    Text is as the submitter wrote it. ``accelerators`` are those of all nodes. ``decay_epochs`` says after which epoch the
    learning rate has decayed, whether steps or epochs were logged. ``first_evaluation_epoch`` and ``evaluation_interval`` are in
    epochs, and None where runs or evaluations differ in them. ``epochs``, ``run_status``, ``accuracy`` (a fraction) and
    ``minutes`` have a value a run, of the evaluation that decided it: the first one at the target, or the last one.
    ``olympic_minutes`` is the mean without the fastest and the slowest run, not scaled by reference convergence, and
    ``published_scaling_factor`` the factor that the tree holds for it; ``rcp_verdict`` is that of the official checker of the
    round, which v0.7 had not.
    """

    round: str
    organisation: str
    system: str
    division: str
    status: str
    nodes: Optional[int]
    accelerators: Optional[int]
    accelerator_model: str
    framework: str
    global_batch_size: Optional[int]
    optimizer: str
    base_learning_rate: Optional[float]
    warmup_epochs: Optional[float]
    decay_epochs: Optional[float]
    weight_decay: Optional[float]
    momentum: Optional[float]
    label_smoothing: Optional[float]
    model_bn_span: Optional[int]
    gradient_accumulation_steps: Optional[int]
    first_evaluation_epoch: Optional[float]
    evaluation_interval: Optional[float]
    epochs: Numbers
    run_status: Tuple[str, ...]
    accuracy: Numbers
    minutes: Numbers
    olympic_minutes: Optional[float]
    published_scaling_factor: Optional[float]
    rcp_verdict: str
    images_per_second_per_accelerator: Optional[int]

    @property
    def name(self) -> str:
        """As one asks for it, like v1.0/Inspur/nf5688m6_mxnet."""
        return f"{self.round}/{self.organisation}/{self.system}"

    @property
    def is_closed(self) -> bool:
        """Whether it is of the closed division; some descriptions call it ``Closed`` or ``close``."""
        return self.division.lower() in ("closed", "close")

    @property
    def epochs_to_target(self) -> List[float]:
        """Those of the runs that converged."""
        runs = zip(self.epochs, self.run_status, self.accuracy)
        return [e for e, status, a in runs if e is not None and status == "success" and (a or 0) >= rules.TARGET_ACCURACY]


GROUP = (
    "global_batch_size", "optimizer", "base_learning_rate", "warmup_epochs", "decay_epochs", "weight_decay", "momentum",
)  # fmt: skip
"""The hyperparameters that were chosen together; results that share them tell of one recipe."""


@functools.lru_cache(maxsize=None)
def results() -> Tuple[PublishedResult, ...]:
    """The whole table, by round, organisation and system."""
    with TABLE.open(newline="", encoding="utf-8") as table:
        return tuple(from_csv(table))


def nearest(global_batch_size: int, optimizer: str, accelerators: Optional[int] = None, number: int = 5) -> List[PublishedResult]:
    """The ``number`` results of an optimizer whose batch size is nearest by its ratio to this one; of equal ones those on the
    nearest number of accelerators, where it is given, and then the fastest. Empty where nobody published that optimizer."""

    def distance(result: PublishedResult) -> Tuple[float, float, float]:
        machine = _ratio(result.accelerators, accelerators) if accelerators else 0.0
        return _ratio(result.global_batch_size, global_batch_size), machine, result.olympic_minutes or math.inf

    return sorted(distinct(optimizer), key=distance)[:number]


def nearest_recipes(global_batch_size: int, optimizer: str, number: int = 3) -> List[Tuple[PublishedResult, ...]]:
    """The results that share a recipe (``GROUP``), of the ``number`` recipes nearest in batch size; of equal ones those that most
    results used."""

    def distance(recipe: Tuple[PublishedResult, ...]) -> Tuple[float, int]:
        return _ratio(recipe[0].global_batch_size, global_batch_size), -len(recipe)

    return sorted(recipes(optimizer).values(), key=distance)[:number]


def recipes(optimizer: str) -> Dict[Tuple[Any, ...], Tuple[PublishedResult, ...]]:
    """The results of an optimizer by the ``recipe_key`` that they share; logs that came again in a later round count once."""
    found: Dict[Tuple[Any, ...], Tuple[PublishedResult, ...]] = {}
    for result in distinct(optimizer):
        found[recipe(result)] = (*found.get(recipe(result), ()), result)
    return found


def recipe_key(*values: Any) -> Tuple[Any, ...]:
    """What tells whether two recipes are one, of their values in the order of ``GROUP``."""
    # A decay that was logged in steps is a hundredth of an epoch off.
    return tuple(round(value, 1) if name == "decay_epochs" and value else value for name, value in zip(GROUP, values))


def recipe(result: PublishedResult) -> Tuple[Any, ...]:
    """The values of ``GROUP``, the same for results of one recipe."""
    return recipe_key(*(getattr(result, name) for name in GROUP))


def distinct(optimizer: str) -> List[PublishedResult]:
    """The results of an optimizer; logs that were submitted to several rounds count once, for the first of them."""
    found: Dict[Tuple[Numbers, Numbers], PublishedResult] = {}
    for each in results():
        if each.optimizer.lower() == optimizer.lower() and each.global_batch_size:
            found.setdefault((each.minutes, each.accuracy), each)
    return list(found.values())


def _ratio(value: Optional[int], wanted: int) -> float:
    return abs(math.log(value / wanted)) if value else math.inf


_Cell = Tuple[Callable[[Any], str], Callable[[str], Any]]
"""How a value becomes the text of a cell, and back."""


def _shortest(value: Optional[float]) -> str:
    return "" if value is None else str(int(value)) if value == int(value) else repr(value)


_number: _Cell = (_shortest, lambda text: float(text) if text else None)
_CELLS: Dict[Any, _Cell] = {
    str: (str, str),
    Optional[int]: (_shortest, lambda text: int(text) if text else None),
    Optional[float]: _number,
    Tuple[str, ...]: (" ".join, lambda text: tuple(text.split())),
    Numbers: (
        lambda values: " ".join(_shortest(value) or "-" for value in values),
        lambda text: tuple(None if value == "-" else float(value) for value in text.split()),
    ),
}


def _columns() -> Dict[str, _Cell]:
    types = typing.get_type_hints(PublishedResult)
    return {field.name: _CELLS[types[field.name]] for field in dataclasses.fields(PublishedResult)}


def from_csv(lines: Iterable[str]) -> List[PublishedResult]:
    """The results that a table of this form holds."""
    columns = _columns()
    return [PublishedResult(**{name: columns[name][1](row[name]) for name in columns}) for row in csv.DictReader(lines)]


def to_csv(rows: Iterable[PublishedResult]) -> str:
    """The table of these results; of several runs the values stand side by side, ``-`` for one that is not there."""
    columns, table = _columns(), io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([write(getattr(row, name)) for name, (write, _) in columns.items()] for row in rows)
    return table.getvalue()

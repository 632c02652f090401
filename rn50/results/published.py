"""Published ResNet-50 results of MLPerf Training, rounds v0.7 to v4.0: machines, hyperparameters and scores.

``published.csv`` holds facts from the logs and system descriptions that MLCommons published, one row per
result. ``python -m tests.support.published_table`` makes it from those result trees, and names the source of
each column. Rows of v4.0 were taken from a table of the same facts, collected apart from this project.
"""

import csv
import dataclasses
import difflib
import functools
import math
import pathlib
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rn50.benchmark import rules
from rn50.benchmark.recipe import COLUMN_OF, SHARED, Recipe
from rn50.errors import UserError, excerpt

TABLE = pathlib.Path(__file__).with_name("published.csv")
Numbers = tuple[float | None, ...]


@dataclass(frozen=True)
class PublishedResult:
    """One result. A field that neither its logs nor its system description give is None, or empty where it is
    text.

    Text is as the submitter wrote it. ``accelerators`` counts those of all nodes. Of the ``recipe`` the table
    has ``COLUMN_OF``, the decay in epochs, whether steps or epochs were logged. ``first_evaluation_epoch``
    and ``evaluation_interval`` are in epochs, and None where runs or evaluations differ in them. ``epochs``,
    ``run_status``, ``accuracy`` (a fraction) and ``minutes`` have one value per run, of the evaluation that
    decided it: the first one at the target, else the last one. ``olympic_minutes`` is the mean without the
    fastest and the slowest run, not scaled by reference convergence. ``published_scaling_factor`` is the
    scaling factor that the tree holds. ``rcp_verdict`` is that of the round's official checker, which v0.7
    did not have.
    """

    round: str
    organisation: str
    system: str
    division: str
    status: str
    nodes: int | None
    accelerators: int | None
    accelerator_model: str
    framework: str
    recipe: Recipe
    first_evaluation_epoch: float | None
    evaluation_interval: float | None
    epochs: Numbers
    run_status: tuple[str, ...]
    accuracy: Numbers
    minutes: Numbers
    olympic_minutes: float | None
    published_scaling_factor: float | None
    rcp_verdict: str
    images_per_second_per_accelerator: int | None

    @property
    def name(self) -> str:
        """Name by which commands select the result, like v1.0/Inspur/nf5688m6_mxnet."""
        return f"{self.round}/{self.organisation}/{self.system}"

    @property
    def is_closed(self) -> bool:
        """True in the closed division, which some descriptions call ``Closed`` or ``close``."""
        return self.division.lower() in ("closed", "close")

    def is_of(self, minutes: Iterable[float | None]) -> bool:
        """Return whether this is the result of runs of these very minutes, which the table has to four
        decimals."""
        rounded = {round(of_run, 4) for of_run in minutes if of_run}
        return bool(rounded) and rounded == {*self.minutes} - {None}

    @property
    def runs(self) -> tuple[float | None, ...]:
        """Epochs of each run; None for one that missed the target."""
        reached = [(accuracy or 0) >= rules.TARGET_ACCURACY for accuracy in self.accuracy]
        runs = zip(self.epochs, self.run_status, reached, strict=True)
        return tuple(epochs if status == "success" and good else None for epochs, status, good in runs)

    @property
    def epochs_to_target(self) -> list[float]:
        """Epochs of the runs that converged."""
        return [epochs for epochs in self.runs if epochs is not None]


@functools.cache
def results() -> tuple[PublishedResult, ...]:
    """Return the whole table, sorted by round, organisation and system."""
    with TABLE.open(newline="", encoding="utf-8") as table:
        return tuple(from_csv(table))


def find(name: str, forms: str) -> PublishedResult:
    """Return the result of a name, in any case.

    Raises UserError if there is none, with the nearest names and ``forms``, what else may be given.
    """
    for result in results():
        if result.name.lower() == name.lower():
            return result
    near = difflib.get_close_matches(name, [result.name for result in results()], n=3, cutoff=0.4)
    meant = f", did you mean {', '.join(near)}?" if near else ""
    raise UserError(excerpt(name), f"neither a file nor a published result{meant}", f"give {forms}")


def nearest(
    global_batch_size: int, optimizer: str, accelerators: int | None = None, number: int = 5
) -> list[PublishedResult]:
    """Return the ``number`` results of an optimizer that are nearest in batch size, by ratio. Ties go to the
    nearest number of ``accelerators``, where it is given, then to the fastest. Empty where nobody published
    that optimizer."""

    def distance(result: PublishedResult) -> tuple[float, float, float]:
        batch = _ratio(result.recipe.global_batch_size, global_batch_size)
        machine = _ratio(result.accelerators, accelerators) if accelerators else 0.0
        return batch, machine, result.olympic_minutes or math.inf

    return sorted(distinct(optimizer), key=distance)[:number]


def nearest_recipes(global_batch_size: int, optimizer: str) -> list[tuple[PublishedResult, ...]]:
    """Return the three recipes nearest in batch size, each as the results that share it. Ties go
    to the recipe with most results."""
    every = sorted(by_recipe(distinct(optimizer)).values(), key=len, reverse=True)
    return sorted(every, key=lambda alike: _ratio(alike[0].recipe.global_batch_size, global_batch_size))[:3]


def by_recipe(results: Iterable[PublishedResult]) -> dict[Recipe, tuple[PublishedResult, ...]]:
    """Return results by the recipe that they share."""
    groups: dict[Recipe, tuple[PublishedResult, ...]] = {}
    for result in results:
        groups[result.recipe.shared] = (*groups.get(result.recipe.shared, ()), result)
    return groups


def distinct(optimizer: str) -> list[PublishedResult]:
    """Return the results of an optimizer; logs that were submitted to several rounds count once, for the
    first round."""
    unique: dict[tuple[Numbers, Numbers], PublishedResult] = {}
    for result in results():
        if result.recipe.optimizer.lower() == optimizer.lower() and result.recipe.global_batch_size:
            unique.setdefault((result.minutes, result.accuracy), result)
    return list(unique.values())


def _ratio(value: int | None, reference: int) -> float:
    return abs(math.log(value / reference)) if value else math.inf


_VALUES: dict[Any, Callable[[str], Any]] = {
    str: str,
    **dict.fromkeys((int, int | None), lambda text: int(text) if text else None),
    **dict.fromkeys((float, float | None), lambda text: float(text) if text else None),
    tuple[str, ...]: lambda text: tuple(text.split()),
    Numbers: lambda text: tuple(None if value == "-" else float(value) for value in text.split()),
}
"""Functions from the text of a cell to its value, by the type of the field."""
_OF_RECIPE = {COLUMN_OF[name]: f"recipe.{name}" for name in dict.fromkeys((*SHARED, *COLUMN_OF))}
COLUMNS: dict[str, str] = {}
"""Column of the table -> attribute of ``PublishedResult``, or of its recipe."""
for _field in dataclasses.fields(PublishedResult):
    COLUMNS |= _OF_RECIPE if _field.name == "recipe" else {_field.name: _field.name}


def from_csv(lines: Iterable[str]) -> list[PublishedResult]:
    """Return the results of a table; the values of several runs are separated by spaces, with ``-`` for a
    missing one."""
    of_result, of_recipe = map(typing.get_type_hints, (PublishedResult, Recipe))
    results = []
    for row in csv.DictReader(lines):
        recipe = {name: _VALUES[of_recipe[name]](row.pop(column)) for name, column in COLUMN_OF.items()}
        others = {name: _VALUES[of_result[name]](text) for name, text in row.items()}
        results.append(PublishedResult(recipe=Recipe(**recipe), **others))
    return results

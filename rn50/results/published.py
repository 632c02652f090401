"""Look up the published ResNet-50 results of MLPerf Training, rounds v0.7 to v4.0: machines, hyperparameters
and scores.

``published.csv`` has one row per result, with facts from the logs and system descriptions that MLCommons
published. ``python -m tests.support.published_table`` makes the file from MLCommons' result trees and names
the source of each column. The rows of v4.0 come from another table of such facts, not made by this project.
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
from rn50.gathered import gathered

TABLE = pathlib.Path(__file__).with_name("published.csv")
Numbers = tuple[float | None, ...]
"""A number of each run of a result, in the same order in all fields; None: not known."""


@dataclass(frozen=True)
class PublishedResult:
    """One row of the table. A field is None, or empty if it is text, where neither the logs nor the system
    description have it. Text is as the submitter wrote it."""

    round: str
    organisation: str
    system: str
    division: str
    status: str
    """Availability of the system, such as available or onprem."""
    nodes: int | None
    accelerators: int | None
    """Number of accelerators of all nodes."""
    accelerator_model: str
    framework: str
    recipe: Recipe
    """Hyperparameters, of which the table has ``COLUMN_OF``. The decay is in epochs, even if it was logged in
    steps."""
    first_evaluation_epoch: float | None
    """Epoch of the first evaluation; None where the runs differ in it."""
    evaluation_interval: float | None
    """Epochs between two evaluations; None where runs or evaluations differ in it."""
    epochs: Numbers
    """Epoch of the evaluation that decided each run: the first one at the target, else the last one."""
    run_status: tuple[str, ...]
    """Status of each run, as logged with run_stop."""
    accuracy: Numbers
    """Top-1 accuracy, a fraction, of the evaluation that decided each run."""
    minutes: Numbers
    """Minutes from run_start to run_stop of each run."""
    olympic_minutes: float | None
    """Mean minutes without the fastest and the slowest run, not scaled by reference convergence."""
    published_scaling_factor: float | None
    """Factor by which reference convergence scales the minutes, from MLCommons' result tree."""
    rcp_verdict: str
    """Verdict of the round's official checker of reference convergence, which v0.7 did not have."""
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
        """Return whether this is the published result of runs with these ``minutes``, in any order: whether
        all are equal to the four decimals of the table."""
        rounded = {round(run_minutes, 4) for run_minutes in minutes if run_minutes}
        return bool(rounded) and rounded == {*self.minutes} - {None}

    @property
    def runs(self) -> tuple[float | None, ...]:
        """Epochs to the target of each run; None for a run that missed the target."""
        reached = [(accuracy or 0) >= rules.TARGET_ACCURACY for accuracy in self.accuracy]
        runs = zip(self.epochs, self.run_status, reached, strict=True)
        return tuple(epochs if status == "success" and hit else None for epochs, status, hit in runs)

    @property
    def epochs_to_target(self) -> list[float]:
        """Epochs of the runs that reached the target."""
        return [epochs for epochs in self.runs if epochs is not None]


@functools.cache
def results() -> tuple[PublishedResult, ...]:
    """Return the whole table, sorted by round, organisation and system."""
    with TABLE.open(newline="", encoding="utf-8") as table:
        return tuple(from_csv(table))


def find(name: str, forms: str) -> PublishedResult:
    """Return the result with this name, in upper or lower case.

    Raises UserError if there is none. Its text has the most similar names, and ``forms``, a phrase on the
    arguments that the command takes.
    """
    for result in results():
        if result.name.lower() == name.lower():
            return result
    names = [result.name for result in results()]
    begun = [full for full in names if full.lower().startswith(name.lower().rstrip("."))]
    near = difflib.get_close_matches(name, begun or names, n=3, cutoff=0.4)
    meant = f", did you mean {', '.join(near)}?" if near else ""
    raise UserError(excerpt(name), f"neither a file nor a published result{meant}", f"give {forms}")


def nearest(
    global_batch_size: int, optimizer: str, accelerators: int | None = None, number: int = 5
) -> list[PublishedResult]:
    """Return the ``number`` results of an optimizer that are nearest in batch size, by ratio. Among equal
    batch sizes, results with nearly as many ``accelerators`` come first unless that is None, then faster
    results. Return an empty list for an optimizer that nobody used."""

    def distance(result: PublishedResult) -> tuple[float, float, float]:
        batch = _ratio(result.recipe.global_batch_size, global_batch_size)
        machine = _ratio(result.accelerators, accelerators) if accelerators else 0.0
        return batch, machine, result.olympic_minutes or math.inf

    return sorted(distinct(optimizer), key=distance)[:number]


def nearest_recipes(global_batch_size: int, optimizer: str) -> list[tuple[PublishedResult, ...]]:
    """Return the three recipes of an optimizer that are nearest in batch size, each as the results that share
    it. Among equal batch sizes, recipes with more results come first."""
    groups = sorted(by_recipe(distinct(optimizer)).values(), key=len, reverse=True)
    return sorted(groups, key=lambda group: _ratio(group[0].recipe.global_batch_size, global_batch_size))[:3]


def by_recipe(rows: Iterable[PublishedResult]) -> dict[Recipe, tuple[PublishedResult, ...]]:
    """Return groups of results with the same recipe, by ``Recipe.shared``."""
    groups = gathered((result.recipe.shared, result) for result in rows)
    return {recipe: tuple(group) for recipe, group in groups.items()}


def distinct(optimizer: str) -> list[PublishedResult]:
    """Return the results of an optimizer that logged a batch size. Logs that were submitted to several rounds
    count once, as the result of the first round."""
    unique: dict[tuple[Numbers, Numbers], PublishedResult] = {}
    for result in results():
        if result.recipe.optimizer.lower() == optimizer.lower() and result.recipe.global_batch_size:
            unique.setdefault((result.minutes, result.accuracy), result)
    return list(unique.values())


def _ratio(value: int | None, reference: int) -> float:
    """Return how far a value is from a reference by ratio: 0 for equal values, infinity for an unknown
    one."""
    return abs(math.log(value / reference)) if value else math.inf


_VALUES: dict[Any, Callable[[str], Any]] = {
    str: str,
    **dict.fromkeys((int, int | None), lambda text: int(text) if text else None),
    **dict.fromkeys((float, float | None), lambda text: float(text) if text else None),
    tuple[str, ...]: lambda text: tuple(text.split()),
    Numbers: lambda text: tuple(None if value == "-" else float(value) for value in text.split()),
}
"""Type of a field of ``PublishedResult`` or ``Recipe`` -> function from the text of a cell to its value."""
# The columns of a recipe: first the fields that identify it, then the others.
_RECIPE_COLUMNS = {COLUMN_OF[name]: f"recipe.{name}" for name in dict.fromkeys((*SHARED, *COLUMN_OF))}
COLUMNS: dict[str, str] = {}
"""Column of the table, in their order -> attribute of ``PublishedResult``, such as recipe.momentum."""
for _field in dataclasses.fields(PublishedResult):
    COLUMNS |= _RECIPE_COLUMNS if _field.name == "recipe" else {_field.name: _field.name}


def from_csv(lines: Iterable[str]) -> list[PublishedResult]:
    """Return the results of the lines of a table. A cell with values of several runs separates them by
    spaces, with ``-`` for an unknown value."""
    types, recipe_types = map(typing.get_type_hints, (PublishedResult, Recipe))
    parsed = []
    for row in csv.DictReader(lines):
        recipe = {name: _VALUES[recipe_types[name]](row.pop(column)) for name, column in COLUMN_OF.items()}
        others = {name: _VALUES[types[name]](text) for name, text in row.items()}
        parsed.append(PublishedResult(recipe=Recipe(**recipe), **others))
    return parsed

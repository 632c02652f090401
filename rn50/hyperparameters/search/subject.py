"""``Subject``, the configuration and data set for which a search looks for better hyperparameters. It makes
the configuration of every run of the search from a ``Point``, a set of hyperparameters."""

import dataclasses
import pathlib
from typing import Any

from rn50 import process
from rn50.benchmark import rules
from rn50.data import layout, preflight
from rn50.errors import UserError
from rn50.hyperparameters.borrow.origin import text
from rn50.hyperparameters.search.method import Point
from rn50.printed import prints
from rn50.settings import document, named, writing
from rn50.settings.config import Config
from rn50.settings.fields import VARIABLE_OF
from rn50.settings.fields import variables as config_variables
from rn50.settings.writing import Base

EVALUATION = {"EVAL_OFFSET": "0", "EVAL_PERIOD": "1"}
"""Variables by which every run of a search evaluates after each epoch, whatever the configuration says."""
EACH_RUNS_OWN = ("SEED", "RESULT_FILE", "CACHE_CLEARED")
"""Variables that the search sets for each run; those of the environment are ignored."""
DECIDE_TOO = ("DGXNGPU", "DGXNNODES", "FRAMEWORK", "DEVICE", "PRECISION")
"""Variables, besides hyperparameters and data, that must be the same in all calls of ``rn50 search`` that
continue one search."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """Configuration file, its configuration, and the folder of the data."""

    base: Base
    config: Config
    data: pathlib.Path

    @property
    def start(self) -> Point:
        """The hyperparameters of the configuration, as a point."""
        return Point(*(getattr(self.config.hyperparameters, field) for field in Point._fields))

    @property
    def learning_rate_unit(self) -> float:
        """The rules want learning rates to be whole multiples of this unit; 0: any learning rate will do."""
        return rules.SGD_LEARNING_RATE_UNIT if self.config.hyperparameters.optimizer == "sgd" else 0

    @property
    def identity(self) -> dict[str, Any]:
        """Values that must be the same in all calls of ``rn50 search`` that continue one search."""
        values = self.config.as_environment()
        of_data = [variable.name for section, _, variable in config_variables() if section == "data"]
        # ``writing.GROUP`` are the hyperparameters. DATADIR is left out, because the sizes of the files
        # identify the data set, which may move. EVALUATION is the same in every search.
        deciding = [name for name in (*writing.GROUP, *of_data, *DECIDE_TOO) if name in values]
        config = {name: values[name] for name in deciding if name not in ("DATADIR", *EVALUATION)}
        return {"config": config, "data": sizes(self.data)}

    def run_of(self, point: Point, data: pathlib.Path, seed: int, result_file: pathlib.Path) -> Config:
        """Return the configuration of a run with the hyperparameters ``point``, on the data set in the folder
        ``data``."""
        per_run = {"DATADIR": data, "SEED": seed, "RESULT_FILE": result_file, **EVALUATION}
        return self.config.replaced(**variables(point), **per_run)

    def possible(self, point: Point) -> bool:
        """Return True if a point can be run. In the closed division no point that breaks a rule can."""
        try:
            self.config.replaced(**variables(point), **EVALUATION)
        except UserError:
            return False
        return True


prints(Point, lambda r: {VARIABLE_OF[field]: getattr(r, field) for field in Point._fields})


def variables(point: Point) -> dict[str, str]:
    """Return the variables of the configuration that a point sets, with their texts."""
    return {VARIABLE_OF[field]: text(value) for field, value in point._asdict().items() if value is not None}


def changes(point: Point, before: Point) -> list[str]:
    """Return NAME=value of each variable of ``point`` that has another value in the point ``before``."""
    old = variables(before)
    return [f"{name}={value}" for name, value in variables(point).items() if old.get(name) != value]


def in_words(point: Point, before: Point) -> str:
    """Return ``changes`` in one line."""
    return " ".join(changes(point, before)) or "as it is"


def read(name: str | None) -> Subject:
    """Return the subject: the configuration ``name``, a path or a system of configs/, as the scripts would
    read it, and its data set.

    Raises UserError if the configuration cannot be run, or the data set cannot be found.
    """
    base = writing.split(document.find(name))
    left_out = (*EACH_RUNS_OWN, *EVALUATION)
    others = {key: value for key, value in process.environment().items() if key not in left_out}
    config = named.Choice(base.document, environ=others).config.replaced(**dict.fromkeys(EACH_RUNS_OWN))
    preflight.check(config)
    return Subject(base, config, pathlib.Path(config.data.folder).resolve())


def sizes(folder: pathlib.Path) -> dict[str, int]:
    """Return file -> bytes of a data set. The sizes identify the data set without opening its files; a run
    must be the first to open them, after its clock has started."""
    return {name: (folder / name).stat().st_size for name in layout.FILES}

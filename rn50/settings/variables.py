"""A variable of a configuration file, and the known variables that fill no field."""

import dataclasses
import string
from collections.abc import Callable, Mapping
from typing import Any, get_args

from rn50 import docstrings, files
from rn50.settings import parsers
from rn50.settings.parsers import Range

UNNAMED, UNNAMED_ORGANISATION = "unnamed", "unnamed organisation"
"""Default names of the system and of the submitting organisation."""


@dataclasses.dataclass(frozen=True)
class Variable:
    """One variable of a configuration file, stored as metadata of the dataclass field that it fills."""

    name: str
    default: Any
    """MISSING: it must be set."""
    bound: Range | None
    example: str
    """A value to name in an error."""
    parse: Callable[[str], Any] = parsers.text
    """Without one, the type of the field decides."""
    aliases: tuple[str, ...] = ()
    """Names of the same variable in published files of other makers."""
    only_with: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """It is not read, and is None, if one of these variables has another value than the one given here."""
    field: tuple[type, str] = (object, "")
    """Dataclass and name of the field."""

    @property
    def meaning(self) -> str:
        """Effect of the variable: the docstring below its field."""
        record, name = self.field
        return docstrings.of_attributes(record)[name]

    def given(self, environ: Mapping[str, str]) -> tuple[str, str | None]:
        """Return the name under which ``environ`` sets the variable, and the text. Empty counts as not set,
        as in ``${X:-}``."""
        for name in (self.name,) + self.aliases:
            if environ.get(name, "").strip(string.whitespace):
                return name, environ[name].strip(string.whitespace)
        return self.name, None

    def is_read(self, values: Mapping[str, Any]) -> bool:
        """Return True if the run reads the variable, given the ``values`` of the variables in
        ``only_with``."""
        return all(values.get(other, required) == required for other, required in self.only_with.items())

    def read(self, value: str) -> Any:
        """Return the parsed value. Raises ValueError with the rule that it breaks."""
        result = self.parse(value)
        if self.bound is not None and not self.bound.holds(result):
            raise ValueError(self.bound.text)
        return result

    def value(self, text: str | None, values: Mapping[str, Any]) -> Any:
        """Return the value of a text, or the default without one; None if ``is_read`` says no. Raises as
        ``read`` does."""
        if not self.is_read(values):
            return None
        return self.default if text is None else self.read(text)

    @staticmethod
    def write(value: Any) -> str:
        """Return the text of a value: the inverse of ``read``."""
        return str(int(value)) if isinstance(value, bool) else str(value)


_PARSERS = {int: parsers.integer, float: parsers.number, bool: parsers.flag}


def env(name: str, default: Any = dataclasses.MISSING, bound: Range | None = None, **more: Any) -> Any:
    """Return a dataclass field that is read from the environment variable ``name``; ``more`` as in
    ``Variable``, of which the example is by default the default."""
    variable = Variable(name, default, bound, **{"example": Variable.write(default), **more})
    return dataclasses.field(default=default, metadata={"variable": variable})


def variable_of(record: type, field: "dataclasses.Field[Any]") -> Variable:
    """Return the variable that fills a field of ``record``. A number or flag without a parser gets that of
    its type."""
    variable: Variable = field.metadata["variable"]
    type_, *_ = get_args(field.type) or (field.type,)  # of ``int | None``: int
    of_type = variable.parse is parsers.text and _PARSERS.get(type_)
    return dataclasses.replace(variable, parse=of_type or variable.parse, field=(record, field.name))


@dataclasses.dataclass(frozen=True)
class Fixed:
    """A variable of published files with only one implemented meaning. It is checked, and has no further
    effect."""

    pattern: str
    meaning: str
    refusal: str


FIXED = {name: Fixed(*row) for name, *row in files.table_beside(__file__, "fixed.csv")}
UNUSED = {name: (meaning, why) for name, meaning, why in files.table_beside(__file__, "unused.csv")}
"""Variables of published files that no run reads -> what they mean, and why they have no effect."""

LIBRARIES: dict[str, Callable[[str], Any]] = {"OMP_NUM_THREADS": parsers.threads}
"""Variables that are passed through but checked first, because no rank would start with an impossible
value."""

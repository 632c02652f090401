"""Description of a variable of configuration files (``Variable``), with which ``fields.py`` defines each.

``env`` makes a field of a dataclass that a variable fills; ``variable_of`` returns its ``Variable``.
``FIXED``, ``UNUSED`` and ``LIBRARIES`` list the known variables that fill no field.
"""

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
    """Value of a variable that is not set; ``dataclasses.MISSING``: the variable must be set."""
    bound: Range | None
    """Range of a number; None: there is no limit."""
    example: str
    """Text of a possible value, for error messages."""
    parse: Callable[[str], Any] = parsers.text
    """Function that makes the value of a text. ``parsers.text`` stands for the parser of the field's type."""
    aliases: tuple[str, ...] = ()
    """Names of the same variable in published files of other makers."""
    only_with: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Names of other variables, and the value that each must have. Otherwise nothing reads this variable, and
    its value is None."""
    field: tuple[type, str] = (object, "")
    """Dataclass and name of the field."""

    @property
    def meaning(self) -> str:
        """Effect of the variable: the docstring below its field."""
        record, name = self.field
        return docstrings.of_attributes(record)[name]

    def given(self, environ: Mapping[str, str]) -> tuple[str, str | None]:
        """Return the name or alias under which ``environ`` sets the variable, and its text. If the variable
        is not set or empty (as in ``${X:-}``), return its own name and None."""
        for name in (self.name,) + self.aliases:
            if environ.get(name, "").strip(string.whitespace):
                return name, environ[name].strip(string.whitespace)
        return self.name, None

    def is_read(self, values: Mapping[str, Any]) -> bool:
        """Return True if a run with these ``values`` of other variables, by name, reads this variable.
        ``only_with`` decides; a variable that ``values`` lacks counts as if it had the value required."""
        return all(values.get(other, required) == required for other, required in self.only_with.items())

    def read(self, value: str) -> Any:
        """Return the value that a text stands for. Raises ValueError with the rule that it breaks."""
        result = self.parse(value)
        if self.bound is not None and not self.bound.holds(result):
            raise ValueError(self.bound.text)
        return result

    def value(self, text: str | None, values: Mapping[str, Any]) -> Any:
        """Return the value of the variable with this ``text``: the default if the text is None, and None if
        ``is_read(values)`` is false. Raises ValueError as ``read`` does."""
        if not self.is_read(values):
            return None
        return self.default if text is None else self.read(text)

    @staticmethod
    def write(value: Any) -> str:
        """Return a text from which ``read`` makes this value."""
        return str(int(value)) if isinstance(value, bool) else str(value)


_PARSERS = {int: parsers.integer, float: parsers.number, bool: parsers.flag}


def env(name: str, default: Any = dataclasses.MISSING, bound: Range | None = None, **more: Any) -> Any:
    """Return a dataclass field whose value is read from the environment variable ``name``. ``more`` are
    further fields of ``Variable``; the example is by default the default."""
    variable = Variable(name, default, bound, **{"example": Variable.write(default), **more})
    return dataclasses.field(default=default, metadata={"variable": variable})


def variable_of(record: type, field: "dataclasses.Field[Any]") -> Variable:
    """Return the variable that fills a field of the dataclass ``record``. A number or flag for which ``env``
    was called without a parser gets the parser of its type."""
    variable: Variable = field.metadata["variable"]
    type_, *_ = get_args(field.type) or (field.type,)  # for ``int | None``: int
    parse = _PARSERS.get(type_, variable.parse) if variable.parse is parsers.text else variable.parse
    return dataclasses.replace(variable, parse=parse, field=(record, field.name))


@dataclasses.dataclass(frozen=True)
class Fixed:
    """A variable of published files of which only one meaning is implemented. Its value is checked and has no
    other effect."""

    pattern: str
    """Regular expression of the accepted values."""
    meaning: str
    refusal: str
    """Why another value is refused, as the end of a sentence that begins with "NAME=value "."""


# Tables beside this file: a row for each name.
FIXED = {name: Fixed(*row) for name, *row in files.table_beside(__file__, "fixed.csv")}
UNUSED = {name: (meaning, why) for name, meaning, why in files.table_beside(__file__, "unused.csv")}
"""Variable of published files that no run reads -> its meaning, and why it has no effect."""

LIBRARIES: dict[str, Callable[[str], Any]] = {"OMP_NUM_THREADS": parsers.threads}
"""Variable of a library -> its parser. These variables are passed through, but checked first, because no rank
starts with an impossible value."""

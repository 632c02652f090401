"""Read the description of a system, ``systems/<system>.json`` of a submission."""

import pathlib
from dataclasses import dataclass
from typing import Any

from rn50 import files
from rn50.errors import UserError
from rn50.results.tree import Place


@dataclass(frozen=True)
class SystemDescription:
    """Fields as written in the file; submitters write every number as text."""

    path: pathlib.Path
    fields: dict[str, Any]

    @property
    def accelerators(self) -> int | None:
        """Nodes times accelerators per node; None where there are none or the file does not say."""
        try:
            count = int(self.fields["number_of_nodes"]) * int(self.fields["accelerators_per_node"])
        except (KeyError, TypeError, ValueError):
            return None
        return count if count > 0 else None


def read(path: pathlib.Path) -> SystemDescription:
    """Read one description.

    Raises:
        UserError: the file is missing, cannot be read or is not a JSON object.
    """
    fields = files.read_json(path, remedy="fix the description of the system")
    if not isinstance(fields, dict):
        raise UserError(path, "not a JSON object", "fix the description of the system")
    return SystemDescription(path, fields)


def accelerators(place: Place | None) -> int | None:
    """Return the number of accelerators of a system in a published tree; None where no description names it,
    which ``rn50 check`` reports."""
    try:
        return read(place.description).accelerators if place else None
    except UserError:
        return None

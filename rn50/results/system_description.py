"""Read the description of a system, ``systems/<system>.json`` of a submission."""

import pathlib
from typing import Any

from rn50 import files
from rn50.errors import UserError
from rn50.results.tree import Place

_REMEDY = "fix the description of the system"


def read(path: pathlib.Path) -> dict[str, Any]:
    """Return the fields of a description as written; submitters write every number as text.

    Raises:
        UserError: the file is missing, cannot be read or is not a JSON object.
    """
    fields = files.read_json(path, remedy=_REMEDY)
    if not isinstance(fields, dict):
        raise UserError(path, "not a JSON object", _REMEDY)
    return fields


def known(place: Place | None) -> dict[str, Any]:
    """Return the fields of the description of a system in a published tree; empty where it is missing or
    broken, which ``rn50 check`` reports."""
    try:
        return read(place.description) if place else {}
    except UserError:
        return {}


def accelerators(place: Place | None) -> int | None:
    """Return nodes times accelerators per node of a system in a published tree; None where there are none or
    no description says how many."""
    fields = known(place)
    try:
        count = int(fields["number_of_nodes"]) * int(fields["accelerators_per_node"])
    except (KeyError, TypeError, ValueError):
        return None
    return count if count > 0 else None

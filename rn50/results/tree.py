"""Locate a folder of result files in a published tree, ``<organisation>/results/<system>/resnet``, and read
the description of its system, ``<organisation>/systems/<system>.json``.

MLCommons publishes such trees, and ``rn50 package`` writes them. For a folder outside of such a tree
``place`` returns None.
"""

import pathlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rn50 import files
from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.printed import prints

_REMEDY = "fix the description of the system"
_MOST = 1_000_000
"""Bound of the number of nodes, and of the accelerators of a node; no system has so many."""
_ROUND = re.compile(r"(?:.*[_-])?v(\d\.\d)")
"""Name of the folder of a round, like training_results_v1.0."""


@dataclass(frozen=True)
class Place:
    """Place of one system in a published tree."""

    organisation: pathlib.Path
    """Folder of the organisation."""
    system: str
    """Name of the system."""
    ruleset: str | None = None
    """Ruleset of the round that a folder above the organisation names; None if no folder names one."""

    @property
    def submitter(self) -> str:
        """Round and organisation, like v1.0/Inspur; the organisation alone if no folder names the round."""
        # A ruleset is named after its round: 1.0.0 after v1.0.
        name = self.organisation.name
        return f"v{self.ruleset.removesuffix('.0')}/{name}" if self.ruleset else name

    @property
    def results(self) -> pathlib.Path:
        """Folder of the result files."""
        return self.organisation / "results" / self.system / rules.BENCHMARK

    @property
    def implementations(self) -> pathlib.Path:
        """Folder of the code. It has a folder for each version of the code, and for each system a folder with
        its scripts."""
        return self.organisation / "benchmarks" / rules.BENCHMARK / "implementations"

    @property
    def description(self) -> pathlib.Path:
        """Path of the system description."""
        return self.organisation / "systems" / f"{self.system}.json"


# What ``--json`` prints of a place.
prints(Place, lambda r: (r.system, r.organisation, r.results))


def refuse_unknown(rulesets: Iterable[str]) -> None:
    """Raise UserError for a ruleset that does not know this benchmark."""
    for ruleset in rulesets:
        if ruleset not in rules.RULESETS:
            remedy = f"give one of {', '.join(rules.RULESETS)}"
            raise UserError(f"ruleset {ruleset}", f"not one that knows {rules.BENCHMARK}", remedy)


def place(folder: pathlib.Path) -> Place | None:
    """Return the place of a folder of result files; None outside a published tree."""
    folder = folder.resolve()
    if folder.name != rules.BENCHMARK or folder.parent.parent.name != "results":
        return None
    organisation = folder.parent.parent.parent
    rounds = (_ROUND.fullmatch(part) for part in reversed(organisation.parts))
    ruleset = next((f"{match.group(1)}.0" for match in rounds if match), None)
    return Place(organisation, folder.parent.name, ruleset if ruleset in rules.RULESETS else None)


def ruleset(folder: pathlib.Path) -> str:
    """Return the ruleset of the round in whose published tree a folder of result files is, else the newest
    ruleset."""
    location = place(folder)
    return (location.ruleset if location else None) or rules.RULESETS[-1]


def read_description(path: pathlib.Path) -> dict[str, Any]:
    """Return the fields of a system description as written; submitters write every number as text.

    Raises:
        UserError: the file is missing, cannot be read or is not a JSON object.
    """
    fields = files.read_json(path, remedy=_REMEDY)
    if not isinstance(fields, dict):
        raise UserError(path, "not a JSON object", _REMEDY)
    return fields


def described(folder: pathlib.Path) -> dict[str, Any]:
    """Return the fields of the description of the system whose result files are in a folder. Return an empty
    dictionary outside a published tree, and if the description is missing or broken: ``rn50 check`` reports
    that."""
    try:
        location = place(folder)
        return read_description(location.description) if location else {}
    except UserError:
        return {}


def accelerators(folder: pathlib.Path) -> int | None:
    """Return the number of accelerators on all nodes of the system whose result files are in a folder; None
    if it has none, or no description says how many."""
    nodes, per_node = counts(described(folder)) or (0, 0)
    return nodes * per_node if nodes * per_node > 0 else None


def counts(fields: dict[str, Any]) -> tuple[int, int] | None:
    """Return (nodes, accelerators per node) of a system description; None if one of the numbers is missing,
    is no number, or is not below ``_MOST``."""
    try:
        numbers = int(fields["number_of_nodes"]), int(fields["accelerators_per_node"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return numbers if max(numbers) < _MOST else None

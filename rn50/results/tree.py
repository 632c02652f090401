"""Locate a folder of results in a published tree: ``<organisation>/results/<system>/resnet``."""

import pathlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from rn50.benchmark import rules
from rn50.errors import UserError

_ROUND = re.compile(r"(?:.*[_-])?v(\d\.\d)")


@dataclass(frozen=True)
class Place:
    """The folder of the organisation, the name of the system, and the ruleset of the round that a folder
    above names, or None."""

    organisation: pathlib.Path
    """Its folder."""
    system: str
    """Name of the system."""
    ruleset: str | None = None

    @property
    def submitter(self) -> str:
        """Round, where a folder names it, and organisation, like v1.0/Inspur."""
        name = self.organisation.name
        return f"v{self.ruleset.removesuffix('.0')}/{name}" if self.ruleset else name

    @property
    def results(self) -> pathlib.Path:
        """Folder of the results."""
        return self.organisation / "results" / self.system / rules.BENCHMARK

    @property
    def implementations(self) -> pathlib.Path:
        """Folder of the code, a folder for each version and one with the scripts of each system."""
        return self.organisation / "benchmarks" / rules.BENCHMARK / "implementations"

    @property
    def description(self) -> pathlib.Path:
        """Path of the system description."""
        return self.organisation / "systems" / f"{self.system}.json"


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

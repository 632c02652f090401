"""The description of a system, ``systems/<system>.json`` of a submission."""

import json
import pathlib
from dataclasses import dataclass
from typing import Any, Dict, Optional

from rn50.errors import UserError


@dataclass(frozen=True)
class SystemDescription:
    """The fields as they stand in the file; submitters write every number as text."""

    path: pathlib.Path
    fields: Dict[str, Any]

    @property
    def accelerators(self) -> Optional[int]:
        """Nodes times accelerators per node; None where the system has none or the file does not say."""
        try:
            count = int(self.fields["number_of_nodes"]) * int(self.fields["accelerators_per_node"])
        except (KeyError, TypeError, ValueError):
            return None
        return count if count > 0 else None


def read(path: pathlib.Path) -> SystemDescription:
    """Reads one description.

    Raises:
        UserError: the file is missing, cannot be read, or is no JSON object.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); write the description of the system there") from error
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); mend the description of the system") from error
    if not isinstance(fields, dict):
        raise UserError(f"{path}: not a JSON object; mend the description of the system")
    return SystemDescription(path, fields)

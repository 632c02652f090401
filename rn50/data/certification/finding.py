"""The findings of ``rn50 verify`` about a data set. ``DataFinding`` is a fault or a remark; ``DataFindings``
gathers all faults, or all remarks."""

from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

KEPT = 20
"""Number of findings of each kind that are kept in full; further findings are only counted."""


class DataFinding(NamedTuple):
    """A fault, with which a data set does not pass, or a remark."""

    kind: str
    file: str
    record: int | None
    """Line of the index, from 0; null: the whole file."""
    text: str
    """Text of the finding."""
    remedy: str
    """Action that mends it; empty: none."""

    def __str__(self) -> str:
        where = self.file if self.record is None else f"{self.file}: record {self.record}"
        return f"{where}: {self.text}" + (f"; {self.remedy}" if self.remedy else "")


@dataclass
class DataFindings:
    """All faults of a data set, or all its remarks: the number of each kind, and the first ``KEPT`` of each
    kind in full."""

    # "kind" is the name of the keys in the page on JSON output.
    counts: dict[Annotated[str, "kind"], int] = field(default_factory=dict)
    """Number of findings of a kind."""
    kept: list[DataFinding] = field(default_factory=list)

    def add(self, kind: str, file: str, record: int | None, text: str, remedy: str = "") -> None:
        """Count a finding with these fields, and keep it if it is among the first ``KEPT`` of its kind."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.counts[kind] <= KEPT:
            self.kept.append(DataFinding(kind, file, record, text, remedy))

"""What a look at a data set found."""

from typing import Any, Dict, List, NamedTuple, Optional

KEPT = 20
"""Findings of one kind that are kept word for word; the others are counted."""


class Finding(NamedTuple):
    """Something that is wrong, or only worth knowing, with where it is and what to do."""

    kind: str
    file: str
    record: Optional[int]
    """The record's line in the index, from 0; None: it concerns the file."""
    text: str
    remedy: str

    def __str__(self) -> str:
        where = self.file if self.record is None else f"{self.file}: record {self.record}"
        return f"{where}: {self.text}" + (f"; {self.remedy}" if self.remedy else "")


class Findings:
    """Findings by kind, of which only the first are kept."""

    def __init__(self) -> None:
        self.kept: List[Finding] = []
        self.counts: Dict[str, int] = {}

    def add(self, finding: Finding) -> None:
        """Counts it, and keeps it where there are few of its kind."""
        self.counts[finding.kind] = self.counts.get(finding.kind, 0) + 1
        if self.counts[finding.kind] <= KEPT:
            self.kept.append(finding)

    def extend(self, others: "Findings") -> None:
        """Takes over those of another set."""
        for finding in others.kept:
            self.add(finding)
        for kind, count in others.counts.items():
            self.counts[kind] += count - min(count, KEPT)

    def to_json(self) -> Dict[str, Any]:
        """How many there are of each kind, and those that were kept."""
        return {"counts": self.counts, "kept": [finding._asdict() for finding in self.kept]}

"""Findings of ``rn50 verify`` about a data set."""

from typing import Any, NamedTuple

KEPT = 20
"""Findings of one kind that are kept in full; further ones are only counted."""


class DataFinding(NamedTuple):
    """A fault or a remark, with its place and the remedy."""

    kind: str
    file: str
    record: int | None
    """The record's line in the index, from 0; None: the finding concerns the file."""
    text: str
    remedy: str

    def __str__(self) -> str:
        where = self.file if self.record is None else f"{self.file}: record {self.record}"
        return f"{where}: {self.text}" + (f"; {self.remedy}" if self.remedy else "")


class DataFindings:
    """Findings counted by kind; the first ``KEPT`` of each kind are kept."""

    def __init__(self) -> None:
        self.kept: list[DataFinding] = []
        self.counts: dict[str, int] = {}

    @property
    def total(self) -> int:
        """Number of findings, kept or not."""
        return sum(self.counts.values())

    def add(self, kind: str, file: str, record: int | None, text: str, remedy: str = "") -> None:
        """Count a finding, and keep it if it is among the first of its kind."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.counts[kind] <= KEPT:
            self.kept.append(DataFinding(kind, file, record, text, remedy))

    def extend(self, others: "DataFindings") -> None:
        """Add the findings of ``others``."""
        for finding in others.kept:
            self.add(*finding)
        for kind, count in others.counts.items():
            self.counts[kind] += count - min(count, KEPT)

    def to_json(self) -> dict[str, Any]:
        """Return the count of each kind and the kept findings."""
        return {"counts": self.counts, "kept": [finding._asdict() for finding in self.kept]}

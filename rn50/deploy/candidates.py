"""Evaluate a network in float32 and quantised in several ways, and write the most accurate quantised one."""

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.table import Table

from rn50 import files
from rn50.deploy.evaluation import Evaluated
from rn50.errors import UserError
from rn50.terminal import Terminal
from rn50.weights.counts import margin

FLOAT = "float32"


class Candidate(NamedTuple):
    """A model and its evaluation."""

    way: str
    """Method that made it, or ``FLOAT``."""
    contents: Sequence[bytes]
    """The content of each of its files."""
    int8: tuple[int, int]
    """Convolutions and matrix products of the made model: those in int8, and all of them."""
    evaluated: Evaluated

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(map(len, self.contents))

    def drop(self, before: "Candidate") -> float:
        """Return the percentage points of top-1 that were lost; negative: gained."""
        return (before.evaluated.top_1 - self.evaluated.top_1) * 100

    def to_json(self, before: "Candidate") -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "method": self.way,
            "bytes": self.size,
            "top_1": self.evaluated.top_1,
            "correct": self.evaluated.counts.correct,
            "drop": self.drop(before),
            "images_per_second": self.evaluated.images_per_second,
            "int8_operators": self.int8[0],
            "operators": self.int8[1],
        }


class Choice(NamedTuple):
    """All candidates, float32 first, and the one that was written."""

    candidates: list[Candidate]
    written: Candidate
    file: pathlib.Path
    """The first of its files."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        before = self.candidates[0]
        return {
            "model": str(self.file),
            "written": self.written.way,
            "total": before.evaluated.counts.images,
            "results": [candidate.to_json(before) for candidate in self.candidates],
        }

    def show(self, source: pathlib.Path, console: Terminal) -> None:
        """Print a line for each candidate, then the one that was written."""
        before = self.candidates[0]
        counts = before.evaluated.counts
        table = Table(title=f"{source}: top-1 on {counts.images:,} images", title_justify="left")
        for heading in ("method", "MB", "of float32", "int8", "top-1", "drop", "images/s"):
            table.add_column(heading, justify="left" if heading == "method" else "right")
        for candidate in self.candidates:
            table.add_row(
                candidate.way,
                f"{candidate.size / 1e6:.2f}",
                f"{candidate.size / before.size:.3f}",
                "{} of {}".format(*candidate.int8),
                f"{candidate.evaluated.top_1:.4f}",
                f"{candidate.drop(before):.2f}",
                f"{candidate.evaluated.images_per_second:,.0f}",
            )
        console.print(table)
        known_to = margin(counts.correct, counts.images)
        console.print(
            f"float32's top-1 of {counts.images:,} images is known to {known_to:.1f} points either way "
            "(binomial, 95 %)"
        )
        console.print(f"{self.file}: {self.written.way}")


def choose(output: Sequence[pathlib.Path], candidates: list[Candidate], tolerance: float) -> Choice:
    """Write the files of the most accurate candidate; among equals, the fastest.

    Raises UserError, and writes nothing, if none has int8 operators and loses at most ``tolerance``
    percentage points of top-1.
    """
    before, *quantised = candidates
    good = [candidate for candidate in quantised if candidate.int8[0] and candidate.drop(before) <= tolerance]
    if not good:
        raise UserError(
            output[0],
            f"not written: {'; '.join(_why(candidate, before) for candidate in quantised)}",
            f"try another --method or --calibration, more --images, or a --tolerance above {tolerance:g}",
        )
    best = min(good, key=lambda candidate: (candidate.drop(before), -candidate.evaluated.images_per_second))
    if len(output) == 1:
        files.write(output[0], best.contents[0])
    else:
        files.write_all(dict(zip(output, best.contents, strict=False)))
    return Choice(candidates, best, output[0])


def _why(candidate: Candidate, before: Candidate) -> str:
    if not candidate.int8[0]:
        return f"{candidate.way}: no operator became int8"
    top_1 = candidate.evaluated.top_1
    return f"{candidate.way}: top-1 fell by {candidate.drop(before):.2f} points to {top_1:.4f}"

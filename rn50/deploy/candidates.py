"""Choose the best of the models that ``rn50 quantize`` has made and evaluated (``choose``), and print a table
of all of them (``Quantized.print_table``)."""

import pathlib
from typing import NamedTuple

from rn50 import files
from rn50.deploy.outcomes import Evaluated
from rn50.errors import UserError
from rn50.printed import prints
from rn50.terminal import Terminal, table
from rn50.weights.counts import margin

FLOAT = "float32"
"""``Candidate.method`` of the model before quantisation."""


class Candidate(NamedTuple):
    """A model and its evaluation."""

    method: str
    """Method that made it: float32, dynamic, or static and its calibration."""
    content: bytes
    """The content of its file."""
    int8_operators: int
    """Convolutions and matrix products in int8, counted in the file."""
    operators: int
    """All convolutions and matrix products, in int8 or not."""
    evaluated: Evaluated
    drop: float = 0.0
    """Percentage points of top-1 lost against float32, which ``choose`` computes. Below 0: top-1 rose."""

    @property
    def bytes(self) -> int:
        """Size of the model."""
        return len(self.content)


# What ``--json`` prints of a candidate.
prints(
    Candidate,
    lambda r: (r.method, r.bytes, {"top_1": r.evaluated.counts.top1}, r.evaluated.counts.correct),
    lambda r: (r.evaluated.images_per_second, r.int8_operators, r.operators, r.drop),
)


class Quantized(NamedTuple):
    """All candidates, the float32 model first, and the candidate that was written."""

    results: list[Candidate]
    written: Candidate
    model: pathlib.Path
    """File that was written."""

    def print_table(self, source: pathlib.Path, console: Terminal) -> None:
        """Print a line for each candidate, then the name of the file that was written. ``source`` is the file
        of the float32 model."""
        before = self.results[0]
        counts = before.evaluated.counts
        headings = ("method", "MB", "of float32", "int8", "top-1", "drop", "images/s")
        rows = table(headings, ("method",), f"{source}: top-1 on {counts.images:,} images")
        for candidate in self.results:
            sizes = f"{candidate.bytes / 1e6:.2f}", f"{candidate.bytes / before.bytes:.3f}"
            operators = f"{candidate.int8_operators} of {candidate.operators}"
            top_1 = f"{candidate.evaluated.counts.top1:.4f}", f"{candidate.drop:.2f}"
            rate = f"{candidate.evaluated.images_per_second:,.0f}"
            rows.add_row(candidate.method, *sizes, operators, *top_1, rate)
        console.print(rows)
        points = f"{margin(counts.correct, counts.images):.1f} points either way (binomial, 95 %)"
        console.print(f"float32's top-1 of {counts.images:,} images is known to {points}")
        console.print(f"{self.model}: {self.written.method}")


# What ``--json`` prints of all candidates.
prints(
    Quantized,
    lambda r: (r.model, {"written": r.written.method, "total": r.written.evaluated.counts.images}, r.results),
)


def choose(output: pathlib.Path, candidates: list[Candidate], tolerance: float) -> Quantized:
    """Write the most accurate quantised candidate to ``output``; if several are equally accurate, the fastest
    of them. The first of ``candidates`` is the float32 model, with which the others are compared.

    Raises UserError, and writes nothing, if no candidate has int8 operators and loses at most ``tolerance``
    percentage points of top-1.
    """
    before = candidates[0].evaluated.counts.top1
    candidates = [row._replace(drop=(before - row.evaluated.counts.top1) * 100) for row in candidates]
    good = [candidate for candidate in candidates if candidate.int8_operators and candidate.drop <= tolerance]
    if not good:
        problem = f"not written: {'; '.join(map(_why, candidates[1:]))}"
        remedy = f"try another --method or --calibration, more --images, or a --tolerance above {tolerance:g}"
        raise UserError(output, problem, remedy)
    best = min(good, key=lambda candidate: (candidate.drop, -candidate.evaluated.images_per_second))
    files.write(output, best.content)
    return Quantized(candidates, best, output)


def _why(candidate: Candidate) -> str:
    """Return the reason why a candidate is not written."""
    if not candidate.int8_operators:
        return f"{candidate.method}: no operator became int8"
    top_1 = candidate.evaluated.counts.top1
    return f"{candidate.method}: top-1 fell by {candidate.drop:.2f} points to {top_1:.4f}"

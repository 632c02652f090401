"""Output of ``rn50 borrow``: the changes, the rule findings and the expected epochs; candidates for a batch
size."""

import pathlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from rn50.hyperparameters.borrow.borrow import Borrowed
from rn50.hyperparameters.borrow.command import command
from rn50.hyperparameters.expected_epochs import DISTANCE_EPOCHS, Candidate
from rn50.process import environment
from rn50.terminal import Terminal, print_json

_SHARED: dict[str, Callable[[Candidate], str]] = {
    "batch": lambda candidate: str(candidate.global_batch_size),
    "learning rate": lambda candidate: f"{candidate.values['base_learning_rate']:g}",
    "warm-up": lambda candidate: f"{candidate.values['warmup_epochs']:g}",
    "decay": lambda candidate: f"{candidate.values['decay_epochs']:g}",
    "weight decay": lambda candidate: f"{candidate.values['weight_decay']:g}",
    "momentum": lambda candidate: f"{candidate.values['momentum']:g}",
}
"""Columns of a recipe's values. A value that all candidates share is printed once, above the table."""
_COLUMNS: dict[str, Callable[[Candidate], str]] = {
    **_SHARED,
    "epochs": lambda candidate: (
        f"{candidate.prediction.mean:.1f} ({candidate.prediction.low:g}-{candidate.prediction.high:g})"
    ),
    "missed": lambda candidate: f"{candidate.prediction.missed}/{candidate.prediction.runs}",
    "expected": lambda candidate: f"{candidate.expected:.1f}",
}


def to_json(borrowed: Borrowed, written: pathlib.Path | None) -> dict[str, Any]:
    """Return the result as plain data."""
    source, prediction = borrowed.origin, borrowed.prediction
    return {
        "source": {
            "name": source.name,
            "kind": source.kind,
            "global_batch_size": source.global_batch_size,
            "provenance": [list(line) for line in source.provenance],
            "notes": list(source.notes),
        },
        "base": str(borrowed.base),
        "global_batch_size": borrowed.config.global_batch_size,
        "changes": [asdict(change) for change in borrowed.changes],
        "assumed": list(borrowed.assumed),
        "partial": list(borrowed.mixed),
        "findings": borrowed.findings,
        "expected": borrowed.expected,
        "prediction": {**asdict(prediction), "missed_share": prediction.missed_share} if prediction else None,
        "written": str(written) if written else None,
        "config": borrowed.text,
    }


def print_table(borrowed: Borrowed, written: pathlib.Path | None, console: Terminal) -> None:
    """Print the changes, the rule findings and the expected epochs."""
    source = borrowed.origin
    console.print(f"{source.kind} {source.name} for {borrowed.config.run.system}", style="bold")
    table = Table()
    for heading in ("variable", "before", "after", "from"):
        table.add_column(heading)
    before, after = borrowed.config.ranks, borrowed.config.global_batch_size
    for change in borrowed.changes:
        style = "" if change.before == change.after else "bold"
        table.add_row(change.name, change.before or "-", change.after or "-", change.origin, style=style)
    console.print(table)
    lines = [
        f"global batch size: {after} on {before} ranks"
        + (
            f"; {source.global_batch_size} in the source"
            if source.global_batch_size not in (None, after)
            else ""
        )
    ]
    lines += [f"{what}: {who}" for what, who in source.provenance]
    if borrowed.assumed:
        lines.append(f"assumed, because the source does not say: {', '.join(borrowed.assumed)}")
    if borrowed.mixed:
        lines.append(
            f"partial: {', '.join(borrowed.mixed)} stay those of {borrowed.base.name}; nobody is known to "
            "have run this"
        )
    lines += [f"note: {note}" for note in source.notes]
    lines += [f"rules: {finding}" for finding in borrowed.findings]
    lines.append(f"epochs to expect: {borrowed.expected}")
    if borrowed.prediction and borrowed.prediction.runs and borrowed.config.is_imagenet:
        lines.append("a published set of five runs has one miss at most, so more may miss than that")
    lines.append(f"written: {written}" if written else "nothing is written; --output FILE writes it")
    for line in lines:
        console.print(line)


def print_suggestions(candidates: Sequence[Candidate], global_batch_size: int, console: Terminal) -> None:
    """Print a row for each candidate, what all have in common, and the command that borrows the first.

    The source comes last, or on its own line if it would not fit, because users copy it whole.
    """
    texts = {heading: [shown(candidate) for candidate in candidates] for heading, shown in _COLUMNS.items()}
    common = [heading for heading in _SHARED if len(candidates) > 1 and len(set(texts[heading])) == 1]
    columns = [[heading, *cells] for heading, cells in texts.items() if heading not in common]
    columns.insert(0, ["", *map(str, range(1, len(candidates) + 1))])
    widths = [max(map(len, column)) for column in columns]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=False))
        for row in zip(*columns, strict=False)
    ]
    sources = ["source", *(candidate.name for candidate in candidates)]
    fits = len(lines[0]) + 2 + max(map(len, sources)) <= console.width
    console.print(f"Recipes for a global batch size of {global_batch_size:,}", style="bold")
    if common:
        console.print(f"All have {', '.join(f'{heading} {texts[heading][0]}' for heading in common)}.")
    console.print("")
    for line, source in zip(lines, sources, strict=False):
        console.print(f"{line}  {source}" if fits else line)
        if not fits and line is not lines[0]:
            console.print(f"{' ' * widths[0]}  {source}")
    console.print("")
    for line in (
        "warm-up, decay: epochs in which the learning rate rises, and after which it has decayed",
        "epochs: mean (fewest-most) of the published runs that reached the target; missed: runs that did not",
        f"expected: epochs at this batch size as far as the reference tells, and {DISTANCE_EPOCHS:g} more "
        "for every factor of two between the batch sizes; it orders them, and promises nothing",
        command(candidates[0].name, candidates[0].global_batch_size, global_batch_size, environment()),
    ):
        console.print(line)


def show(borrowed: Borrowed, written: pathlib.Path | None, as_json: bool) -> None:
    """Print what was borrowed, and where it was written."""
    print_json(to_json(borrowed, written)) if as_json else print_table(borrowed, written, Terminal())


def suggest(candidates: Sequence[Candidate], global_batch_size: int, as_json: bool) -> None:
    """Print the candidates, the most promising first."""
    if as_json:
        print_json([asdict(candidate) for candidate in candidates])
    else:
        print_suggestions(candidates, global_batch_size, Terminal())

"""Output of ``rn50 borrow``: the changes, the rule findings and the expected epochs; candidates for a batch size."""

import pathlib
import shlex
from dataclasses import asdict
from typing import Any, Dict, Optional, Sequence

from rich.table import Table

from rn50.hyperparameters.borrow.borrow import Borrowed
from rn50.hyperparameters.expected_epochs import DISTANCE_EPOCHS, Candidate
from rn50.terminal import Terminal, print_json


def to_json(borrowed: Borrowed, written: Optional[pathlib.Path]) -> Dict[str, Any]:
    """Return the result as plain data."""
    source, said = borrowed.origin, borrowed.prediction
    return {
        "source": {
            "name": source.name, "kind": source.kind, "global_batch_size": source.global_batch_size,
            "provenance": [list(each) for each in source.provenance], "notes": list(source.notes),
        },
        "base": str(borrowed.base),
        "global_batch_size": borrowed.config.global_batch_size,
        "changes": [asdict(change) for change in borrowed.changes],
        "assumed": list(borrowed.assumed),
        "partial": list(borrowed.mixed),
        "findings": borrowed.findings,
        "prediction": {**asdict(said), "missed_share": said.missed_share} if said else None,
        "written": str(written) if written else None,
        "config": borrowed.text,
    }  # fmt: skip


def print_table(borrowed: Borrowed, written: Optional[pathlib.Path], console: Terminal) -> None:
    """Print the changes, the rule findings and the expected epochs."""
    source = borrowed.origin
    table = Table(title=f"{source.kind} {source.name} for {borrowed.config.run.system}", title_justify="left")
    for heading in ("variable", "before", "after", "from"):
        table.add_column(heading)
    before, after = borrowed.config.ranks, borrowed.config.global_batch_size
    for change in borrowed.changes:
        style = "" if change.before == change.after else "bold"
        table.add_row(change.name, change.before or "-", change.after or "-", change.origin, style=style)
    console.print(table)
    lines = [f"global batch size: {after} on {before} ranks" + (
        f"; {source.global_batch_size} in the source" if source.global_batch_size not in (None, after) else "")]
    lines += [f"{what}: {who}" for what, who in source.provenance]
    if borrowed.assumed:
        lines.append(f"assumed, because the source does not say: {', '.join(borrowed.assumed)}")
    if borrowed.mixed:
        lines.append(f"partial: {', '.join(borrowed.mixed)} stay those of {borrowed.base.name}; nobody is known to have run this")
    lines += [f"note: {note}" for note in source.notes]
    lines += [f"rules: {finding}" for finding in borrowed.findings]
    lines.append(f"epochs to expect: {borrowed.prediction or 'not known, because nobody published a run of it'}")
    if borrowed.prediction and borrowed.prediction.runs:
        lines.append("a published set of five runs has one miss at most, so more may miss than that")
    lines.append(f"written: {written}" if written else "nothing is written; --output FILE writes it")
    for line in lines:
        console.print(line)


def print_suggestions(found: Sequence[Candidate], global_batch_size: int, console: Terminal) -> None:
    """Print one line per candidate, and the command that borrows the first."""
    table = Table(title=f"recipes for a global batch size of {global_batch_size:,}", title_justify="left")
    for heading in ("", "source", "batch", "recipe", "epochs", "missed", "expected"):
        left = heading in ("source", "recipe")
        table.add_column(heading, justify="left" if left else "right", no_wrap=not left, overflow="fold")
    for number, each in enumerate(found, 1):
        v, p = each.values, each.prediction
        recipe = (f"lr {v['base_learning_rate']:g}, warm-up {v['warmup_epochs']:g}, decay {v['decay_epochs']:g}, "
                  f"wd {v['weight_decay']:g}, mom {v['momentum']:g}")
        epochs = f"{p.mean:.1f} ({p.low:g}-{p.high:g})"
        table.add_row(str(number), each.name, str(each.global_batch_size), recipe, epochs, f"{p.missed}/{p.runs}",
                      f"{each.expected:.1f}")
    console.print(table)
    lines = [
        f"expected: epochs at this batch size as far as the reference tells, and {DISTANCE_EPOCHS:g} more for every factor of "
        "two between the batch sizes; it orders them, and promises nothing",
        f"rn50 borrow {shlex.quote(found[0].name)} --gbs {global_batch_size} --for configs/config_NAME.sh",
    ]
    for line in lines:
        console.print(line)


def show(borrowed: Borrowed, written: Optional[pathlib.Path], as_json: bool) -> None:
    """Print what was borrowed, and where it was written."""
    print_json(to_json(borrowed, written)) if as_json else print_table(borrowed, written, Terminal())


def suggest(found: Sequence[Candidate], global_batch_size: int, as_json: bool) -> None:
    """Print the candidates, the most promising first."""
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        print_suggestions(found, global_batch_size, Terminal())

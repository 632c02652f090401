"""Output of ``rn50 config new``: the machine, what was chosen and why, the file, and the next commands."""

import pathlib
from typing import Any

from rich.table import Table

from rn50 import frameworks
from rn50.new_config.new_config import NewConfig, commands, expected, short
from rn50.terminal import Terminal, print_json


def to_json(new: NewConfig, written: pathlib.Path) -> dict[str, Any]:
    """Return the configuration as plain data."""
    return {
        "name": new.name,
        "machine": new.machine,
        "device": new.devices.device,
        "ranks": new.devices.ranks,
        "framework": new.framework._asdict(),
        "batch_size": new.config.hyperparameters.batch_size,
        "global_batch_size": new.config.global_batch_size,
        "batch_reason": new.source.batch.reason,
        "source": new.borrowed.origin.name,
        "assumed": list(new.borrowed.assumed),
        "accelerator": new.source.known,
        "minutes": new.source.minutes,
        "cautions": list(new.cautions),
        "findings": new.findings,
        "values": new.config.as_environment(),
        "written": str(written),
        "next": list(commands(new, written)),
    }


def print_lines(new: NewConfig, written: pathlib.Path, console: Terminal) -> None:
    """Print what was found, what was chosen and why, where it is, and what comes next."""
    source = new.borrowed.origin
    total = new.config.global_batch_size
    rows = [
        ("machine", new.machine),
        ("framework", f"{frameworks.traits(new.framework.value).name}: {new.framework.reason}"),
        (
            "batch size",
            f"{new.config.hyperparameters.batch_size} on {new.devices.ranks} {new.devices.unit}"
            f"{'s' if new.devices.ranks > 1 else ''}, {total} in all: {new.source.batch.reason}",
        ),
        (
            "recipe",
            f"{source.name}, whole"
            + (f", chosen there for {source.global_batch_size}" if source.global_batch_size != total else ""),
        ),
        *expected(new.borrowed, new.source),
        *(("caution", caution) for caution in new.cautions),
        *(("rules", finding) for finding in new.findings),
        ("written", short(written)),
        *(("next" if not number else "", command) for number, command in enumerate(commands(new, written))),
    ]
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def show(new: NewConfig, written: pathlib.Path, as_json: bool) -> None:
    """Print what was written."""
    print_json(to_json(new, written)) if as_json else print_lines(new, written, Terminal())

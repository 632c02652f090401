"""Output of ``rn50 config new``: the machine, what was chosen and why, the file, and the next commands."""

from rich.table import Table

from rn50 import frameworks
from rn50.new_config.new_config import NewConfig, expected, short
from rn50.terminal import Terminal, print_json


def print_lines(new: NewConfig, console: Terminal) -> None:
    """Print what was found, what was chosen and why, where it is, and what comes next."""
    source = new.borrowed.origin
    total, on = new.config.global_batch_size, new.devices
    devices = f"{on.ranks} {on.unit}{'s' if on.ranks > 1 else ''}"
    recipe = f"{source.name}, whole"
    if source.global_batch_size != total:
        recipe += f", chosen there for {source.global_batch_size}"
    rows = [
        ("machine", new.machine),
        ("framework", f"{frameworks.traits(new.framework.value).name}: {new.framework.reason}"),
        ("batch size", f"{new.batch_size} on {devices}, {total} in all: {new.source.batch.reason}"),
        ("recipe", recipe),
        *expected(new.borrowed, new.source),
        *(("caution", caution) for caution in new.cautions),
        *(("rules", finding) for finding in new.findings),
        ("written", short(new.file)),
        *(("next" if not number else "", command) for number, command in enumerate(new.commands)),
    ]
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def show(new: NewConfig, as_json: bool) -> None:
    """Print what was written."""
    print_json(new) if as_json else print_lines(new, Terminal())

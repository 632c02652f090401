"""The machines of tests/golden/machines, which stand in for this one."""

import pathlib
import re

from rn50.machine import hardware
from rn50.machine.sources import Sources

MACHINES = pathlib.Path(__file__).resolve().parent.parent / "golden" / "machines"
NAMES = sorted(path.name for path in MACHINES.iterdir() if path.is_dir())


def commands(folder):
    """A ``run`` that answers as the commands of a machine do."""

    def run(argv):
        query = (
            argv[1][len("--query-gpu=") :].split(",") if argv[1:] and argv[1].startswith("--query-gpu=")
            else None)
        file = folder / (" ".join(argv) if query is None else f"{argv[0]} --query-gpu")
        if not file.exists():
            return 127, ""
        return (0, file.read_text()) if query is None else _query(file.read_text(), query)

    return run


def _query(printed, fields):
    """The columns of ``fields``; status 2 and the tool's words for one that this driver does not know."""
    heading, *rows = (line.split(", ") for line in printed.splitlines())
    columns = {re.sub(r" \[.*", "", name): column for column, name in enumerate(heading)}
    for field in fields:
        if field not in columns:
            return 2, f'Field "{field}" is not a valid field to query.\n\n'
    return 0, "".join(", ".join(row[columns[field]] for field in fields) + "\n" for row in [heading, *rows])


def source(name):
    """The files and commands of one of the machines."""
    return Sources(MACHINES / name / "root", commands(MACHINES / name / "commands"))


def simulated(name, environ=None):
    """The facts of one of the machines."""
    return hardware.read(source(name)._replace(environ=environ or {}))

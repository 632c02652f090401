"""Check that the folder of results has room for another one, and that a campaign can go on from the files in
it."""

import os
import pathlib
import shutil
from collections.abc import Iterator

from rn50.benchmark import rules
from rn50.doctor.finding import FAILURE, OK, Finding
from rn50.doctor.host import shown
from rn50.errors import UserError
from rn50.results.parse import read_log

ROOM = 100 << 20
"""A campaign's logs take some hundred kilobytes. With less free space than this, something else is about to
fill the disk."""


def findings(result_file: pathlib.Path) -> Iterator[Finding]:
    """Yield findings on the folder of ``result_file``, the next result of a campaign."""
    yield _room(result_file)
    for file in sorted(result_file.parent.glob("result_*.txt")):
        fault = _fault(file)
        if fault is not None:
            yield Finding(
                FAILURE, "results", fault, f"move {file} away, and the same command makes that run again"
            )


def _fault(file: pathlib.Path) -> str | None:
    """Return the reason why an existing file is no result of an earlier run; None if it is one."""
    try:
        log = read_log(file)
    except UserError as error:
        return f"{error.subject}: {error.problem}"
    if log.benchmark != rules.BENCHMARK:
        return f"{file}: is a log of {log.benchmark or 'no benchmark'}, not of {rules.BENCHMARK}"
    if log.minutes is None:
        return f"{file}: its clock did not start, or never stopped"
    return None


def _room(result_file: pathlib.Path) -> Finding:
    folder = next(
        parent for parent in pathlib.Path(os.path.realpath(result_file)).parents if os.path.exists(parent)
    )
    free = shutil.disk_usage(str(folder)).free
    found = f"{shown(free)} free in {folder}"
    if free < ROOM:
        return Finding(FAILURE, "results", found, "make room there, or set RESULTS to a folder elsewhere")
    return Finding(OK, "results", found)

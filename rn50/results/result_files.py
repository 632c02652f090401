"""Find the result files, ``result_*.txt``, that the arguments of a command mean: ``find_result_files``."""

import os
import pathlib
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from rn50 import files
from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.results import published

RESULT_FILE = re.compile(r"result_.*\.txt", re.DOTALL)
"""Names of result files: MLPerf submission rules, section "Directory structure", Training."""


def find_result_files(paths: Sequence[pathlib.Path]) -> list[pathlib.Path]:
    """Return the result files that ``paths`` mean, each once. A file means itself, whatever its name. A
    folder means every ``result_*.txt`` below it, in the order of the numbers in their names; without any,
    every ``*.log`` in it.

    Folders of published results also have files of other benchmarks, ``results/<system>/<benchmark>/``. So
    if some files below a folder lie in a folder with the name of this benchmark, only these count.

    Raises:
        UserError: a path does not exist, no result file lies below it, or a folder cannot be read.
    """
    unique: dict[str, pathlib.Path] = {}
    for path in paths:
        for file in _below(path):
            unique.setdefault(os.path.realpath(file), file)
    return list(unique.values())


def _below(path: pathlib.Path) -> list[pathlib.Path]:
    """Return the result files that one path means. Raise UserError if there are none."""
    if not os.path.lexists(path):
        # Users may give the name of a published result, which other commands accept.
        if any(result.name.lower() == str(path).lower() for result in published.results()):
            raise UserError(path, "the name of a published result", "give its logs; rn50 compare takes names")
        remedy = "give result files or a folder of them; rn50 run CONFIG makes one in results/"
        raise UserError(path, "no such file or folder", files.nearest(path) or remedy)
    if not os.path.isdir(path):
        return [path]
    logs = sorted(_walk(path), key=_in_order) or sorted(path.glob("*.log"), key=_in_order)
    if not logs:
        remedy = "give a folder that holds result files, or the files themselves"
        if any(path.glob("result_*.txt.partial")):
            remedy = f"a run goes on there, or was interrupted: rn50 watch {shlex.quote(str(path))} tells"
        raise UserError(path, "no result_*.txt below it", remedy)
    # Files of this benchmark in a published tree: ``realpath``, because their folder may be a link.
    of_tree = [file for file in logs if os.path.basename(os.path.realpath(file.parent)) == rules.BENCHMARK]
    return of_tree or logs


def _walk(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the result files below ``folder``. Do not follow links to folders, because they may form a
    loop."""

    def refuse(error: OSError) -> None:
        remedy = "make the folder readable, or name those that are"
        raise UserError(error.filename, f"cannot be read ({error.strerror})", remedy)

    for below, _, names in os.walk(folder, onerror=refuse):
        yield from (pathlib.Path(below, name) for name in names if RESULT_FILE.fullmatch(name))


def _in_order(file: pathlib.Path) -> Any:
    """Return a sort key that puts ``result_10.txt`` after ``result_9.txt``."""
    return file.parent, [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", file.name)]

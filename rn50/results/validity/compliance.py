"""Run the official compliance checker, ``mlperf_logging.compliance_checker``, on result files: ``check``.

The checker's verdict is the last line that it writes, ``SUCCESS`` or ``FAILED``. Its exit status is not used,
because it is 1 both for a log that failed and for a crash. ``explain`` turns its messages into findings.
"""

import itertools
import pathlib
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rn50 import files
from rn50.packages import needed_for
from rn50.results import tree
from rn50.results.parse import copy_records
from rn50.results.validity import checkers
from rn50.terminal import Terminal, styled, table

CRASHED = "the checker gave no verdict:"
"""Beginning of the message that takes the place of the checker's if it crashed."""
_CACHE: dict[tuple[str, str], tuple[bool, tuple[str, ...]]] = {}
"""(SHA-256 of the records, ruleset) -> verdict and messages. A command that first checks and then writes a
report thus runs the checker once for each log."""


@dataclass(frozen=True)
class CheckerVerdict:
    """The checker's verdict on one file under one ruleset."""

    file: pathlib.Path
    """Log."""
    ruleset: str
    """Version of the rules."""
    ok: bool
    """True if the official compliance checker accepts the log."""
    messages: tuple[str, ...]
    """Messages of the checker: its reasons if it refuses the log, else its warnings."""


def check(
    logs: Sequence[pathlib.Path], rulesets: Sequence[str], count: Callable[[], None] = lambda: None
) -> list[CheckerVerdict]:
    """Check every log under every ruleset, as many at a time as there are processors. ``count`` is called,
    for a progress bar, at the end of each check.

    Raises:
        UserError: an unknown ruleset, or a file that cannot be read.
    """
    tree.refuse_unknown(rulesets)
    with needed_for("the official checkers"):
        import mlperf_logging  # noqa: F401  (only to find out that it is there: another process runs it)
    with tempfile.TemporaryDirectory() as folder, checkers.at_once() as pool:
        copies = {file: pathlib.Path(folder) / f"{number}.txt" for number, file in enumerate(logs)}
        for file, copy in copies.items():
            copy_records(file, copy)
        jobs = [(file, copies[file], ruleset) for file in logs for ruleset in dict.fromkeys(rulesets)]
        verdicts = []
        for verdict in pool.map(lambda job: _check_file(*job), jobs):
            verdicts.append(verdict)
            count()
        return verdicts


def _check_file(file: pathlib.Path, copy: pathlib.Path, ruleset: str) -> CheckerVerdict:
    """Return the verdict on a log, from ``copy``, a file of only its records."""
    key = (files.sha256(copy), ruleset)
    if key not in _CACHE:
        _CACHE[key] = _run_checker(copy, ruleset)
    return CheckerVerdict(file, ruleset, *_CACHE[key])


def _run_checker(copy: pathlib.Path, ruleset: str) -> tuple[bool, tuple[str, ...]]:
    """Return the checker's verdict, True for SUCCESS, and its messages."""
    options = ("--usage", "training", "--ruleset", ruleset, "--", str(copy))
    lines = checkers.run("compliance_checker", *options)[1].strip().splitlines()
    last = lines.pop() if lines else "it wrote nothing"
    if last not in ("INFO - SUCCESS", "ERROR - FAILED"):
        return False, (f"{CRASHED} {last}",)
    # One "WARNING -  " begins all messages, and a line of 30 dashes separates them:
    # WARNING -  Required EXACTLY_ONE occurrence of 'seed' but found 0
    # ------------------------------
    # Failed checks for eval_accuracy
    text = "\n".join(line for line in lines if not line.startswith("INFO - "))
    messages = re.split(r"^(?:WARNING - |-{30}$)", text, flags=re.MULTILINE)
    return last == "INFO - SUCCESS", tuple(message.strip() for message in messages if message.strip())


def print_table(verdicts: Sequence[CheckerVerdict], console: Terminal) -> None:
    """Print for each folder a table of its files and their verdicts under each ruleset."""
    words = {True: styled("SUCCESS", "green"), False: styled("FAILED", "red")}
    headings = ("file", *dict.fromkeys(verdict.ruleset for verdict in verdicts))
    # In the order of ``check``: the verdicts on a file are neighbours.
    for folder, of_folder in itertools.groupby(verdicts, key=lambda verdict: verdict.file.parent):
        console.print(str(folder), style="italic")
        rows = table(headings, headings)
        for file, of_file in itertools.groupby(of_folder, key=lambda verdict: verdict.file):
            rows.add_row(file.name, *(words[verdict.ok] for verdict in of_file))
        console.print(rows)

"""``rn50 run A --against B``: make the runs of two configurations in turn, and compare them.

The order is A B, B A, A B, ...: a drift of the machine slows both alike. Each configuration has a campaign of
its own, whose parts ``run_experiments.sh`` makes one at a time.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rn50 import rates
from rn50.errors import Status, UserError
from rn50.launch.campaign import summary, watch
from rn50.results import compare, pairs, score
from rn50.results.compare import Comparison
from rn50.results.pairs import Pairs
from rn50.results.parse import read_log
from rn50.results.score import SystemScore
from rn50.terminal import Terminal

PART = "RN50_PART"
"""Environment variable that has ``run_experiments.sh`` make one part of a campaign."""
EXAMINE, END = "examine", "end"
"""Parts of a campaign before its first run and after its last; the others are the numbers of the runs."""


class Side(NamedTuple):
    """One of the two campaigns."""

    config_file: pathlib.Path
    folder: pathlib.Path


class Turns(NamedTuple):
    """The scores of two configurations whose runs were made in turn, and their comparison."""

    systems: Sequence[SystemScore]
    comparison: Comparison
    pairs: Sequence[Pairs]
    """Every quantity of the comparison, pair by pair."""


def make_missing(sides: Sequence[Side], runs: int, as_json: bool, variables: Mapping[str, str]) -> int:
    """Make those of the ``runs`` runs of both sides that are missing, in turn, and the summary of each side.
    Return the exit status of the part that failed, after which no other is made; if none has failed, the
    larger of the two summaries' exit statuses.

    ``as_json`` and ``variables`` are as in ``watch.make_missing``. Raises UserError as ``_missing`` does.
    """
    parts = [(EXAMINE, side) for side in sides]
    parts += [(str(number), side) for number, side in _missing(sides, runs)]
    parts += [(END, side) for side in sides]
    outcome = 0
    for part, side in parts:
        other = sides[1] if side == sides[0] else sides[0]
        inner = {**variables, summary.NEXT_IS_SAID: "1", PART: part}
        status = watch.make_missing(*side, runs, as_json, inner, other.folder)
        # A summary that reports a fault is no reason to leave out the other summary.
        if status and (part != END or status != Status.FAULT):
            return status
        outcome = max(outcome, status)
    return outcome


def _missing(sides: Sequence[Side], runs: int) -> list[tuple[int, Side]]:
    """Return (number of the run, side) of the runs that are missing, in the order in which to make them.

    Raises UserError if the runs that exist were not made in this order, because then they are no pairs.
    """
    order = [(number, side) for number in range(runs) for side in rates.alternated(sides, number)]
    logs = {(number, side): side.folder / f"result_{number}.txt" for number, side in order}
    made = [turn for turn in order if logs[turn].exists()]
    made.sort(key=lambda turn: read_log(logs[turn]).run_start_ms or 0)
    if made != order[: len(made)]:
        problem = f"its runs and those of {sides[1].folder} were not made in turn"
        raise UserError(sides[0].folder, problem, "give another --output, where all are made anew")
    return order[len(made) :]


def compared(sides: Sequence[Side]) -> Turns:
    """Return the scores of two complete campaigns, and their comparison."""
    systems = score.score([side.folder for side in sides])
    [comparison] = compare.compare(systems)
    return Turns(systems, comparison, pairs.paired(comparison, *systems))


def show(turns: Turns, console: Terminal) -> None:
    """Print the comparison: of the two results as ``rn50 compare`` prints it, then pair by pair."""
    compare.print_table([turns.comparison], console)
    for sentence in pairs.sentences(turns.pairs):
        console.print(sentence)

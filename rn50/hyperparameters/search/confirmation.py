"""The confirmation of a search: the winner of the trials and the baseline, with which it is compared, are run
again with fresh seeds (``slots``), and ``verdict`` says whether their epochs differ by more than chance."""

import heapq
import pathlib
import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from rn50.hyperparameters.search import method
from rn50.hyperparameters.search.journal import Trial
from rn50.hyperparameters.search.method import Point
from rn50.results import compare, score
from rn50.results.compare import Difference
from rn50.results.score import SystemScore

FOLDER = "confirmed"
"""Folder of the confirmation's results, in the folder of the search."""
BASELINE, WINNER = "baseline", "winner"
"""The two sides of the comparison."""
MOST_SEED = 2**31 - 1
"""Largest value of SEED."""


class Pair(NamedTuple):
    """The points of baseline and winner, and the seeds of their runs, by side."""

    points: dict[str, Point]
    seeds: dict[str, list[int]]


class Slot(NamedTuple):
    """A run of the confirmation."""

    who: str
    """Its side: ``BASELINE`` or ``WINNER``."""
    number: int
    """Number of the run on its side, from 0."""
    seed: int
    result_file: pathlib.Path


@dataclass(frozen=True)
class Confirmation:
    """Outcome of the confirmation, in figures and in words."""

    stands: bool
    """True if the winner's gain is confirmed."""
    difference: Difference | None
    """Difference of the epochs; None: a side has no run that reached the target."""
    missed: dict[Annotated[str, "side"], int]
    """Number of runs of a side that missed the target; null: no confirmation."""
    epochs: dict[str, list[float]]
    """Side -> epochs of its runs that reached the target."""
    scores: dict[str, SystemScore]
    """Side -> its score."""
    sentence: str
    """The outcome in words."""


def fresh_seeds(number: int, used: Iterable[int]) -> list[int]:
    """Return random seeds from the operating system, all different and none among ``used``."""
    before = set(used)
    # Enough seeds even if all of ``before`` are drawn again.
    seeds = random.SystemRandom().sample(range(1, MOST_SEED + 1), number + len(before))
    return [seed for seed in seeds if seed not in before][:number]


def pair(baseline: Point, winner: Point, runs: int, used: Iterable[int]) -> Pair:
    """Return the pair of baseline and winner, with seeds for ``runs`` runs of each, all different and none
    among ``used``."""
    seeds = fresh_seeds(2 * runs, used)
    return Pair({BASELINE: baseline, WINNER: winner}, {BASELINE: seeds[:runs], WINNER: seeds[runs:]})


def baseline_of(start: Point, trials: list[Trial]) -> Point | None:
    """Return the point to compare the winner with: ``start`` if a run of it reached the target, else the
    point of the first trial that reached it. None: no trial reached the target."""
    reached = [trial.point for trial in trials if trial.value is not None and trial.value < method.MISSED]
    return start if start in reached else next(iter(reached), None)


def duration(baseline: float, winner: float, seeds: int, workers: int) -> float:
    """Return the seconds of a confirmation with ``workers`` runs at a time, if a run takes ``baseline`` or
    ``winner`` seconds and each side has ``seeds`` runs."""
    ends = [0.0] * workers  # time at which each worker is free again, as a heap
    for seconds in (baseline, winner) * seeds:
        heapq.heapreplace(ends, ends[0] + seconds)  # the worker that is free first makes the run
    return max(ends)


def slots(folder: pathlib.Path, confirmed: Pair) -> list[Slot]:
    """Return all runs of the confirmation. Baseline and winner take turns, so that both suffer if the machine
    becomes slower."""
    return [
        Slot(who, number, seeds[number], folder / FOLDER / who / f"result_{number}.txt")
        for number in range(len(confirmed.seeds[BASELINE]))  # both sides have equally many seeds
        for who, seeds in confirmed.seeds.items()
    ]


def runs_left(folder: pathlib.Path, confirmed: Pair) -> int:
    """Return the number of runs that have no result yet."""
    return sum(not slot.result_file.exists() for slot in slots(folder, confirmed))


def next_slot(folder: pathlib.Path, confirmed: Pair, in_hand: Collection[pathlib.Path]) -> Slot | None:
    """Return the next run that has no result file and is not alive, and make its folder; None if there is no
    such run. ``in_hand`` are the result files of the runs that are alive."""
    for slot in slots(folder, confirmed):
        if slot.result_file not in in_hand and not slot.result_file.exists():
            slot.result_file.parent.mkdir(parents=True, exist_ok=True)
            return slot
    return None


def verdict(folder: pathlib.Path) -> Confirmation:
    """Return the outcome of the confirmation: the comparison of the finished runs of baseline and winner in
    the ``folder`` of a search."""
    # ``score`` returns a list, here of one element, because the runs of a side are in one folder.
    scores = {who: score.score([folder / FOLDER / who])[0] for who in (BASELINE, WINNER)}
    epochs: dict[str, list[float]] = {}
    for who, result in scores.items():
        epochs[who] = [run.epochs for run in result.runs if run.converged and run.epochs is not None]
    missed = {who: sum(not run.converged for run in result.runs) for who, result in scores.items()}
    if not epochs[BASELINE] or not epochs[WINNER]:
        who = WINNER if epochs[BASELINE] else BASELINE
        sentence = f"It does not stand: no run of the {who} reached the target."
        return Confirmation(False, None, missed, epochs, scores, sentence)
    comparison = compare.difference("epochs", epochs[BASELINE], epochs[WINNER], "the winner")
    # ``shown``: True if the difference is more than chance. ``difference``: winner's epochs minus baseline's.
    fewer = comparison.shown and comparison.difference < 0
    stands = fewer and missed[WINNER] <= missed[BASELINE]
    words = "The difference stands" if stands else "The difference does not stand"
    sentence = f"{words}: {comparison.sentence}."
    for who, count in missed.items():
        if count:
            runs = f"{count} of {len(scores[who].runs)} runs of the {who}"
            sentence += f" {runs} missed the target; its epochs are those of the others."
    if fewer and not stands:
        sentence += " A winner that misses more often than the baseline is none."
    return Confirmation(stands, comparison, missed, epochs, scores, sentence)

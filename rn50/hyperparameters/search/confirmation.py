"""Confirmation of a search: baseline and winner run again with fresh seeds, and what so few runs show."""

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
BASELINE, WINNER = "baseline", "winner"
MOST_SEED = 2**31 - 1


class Pair(NamedTuple):
    """Points to compare, and the seeds of each."""

    points: dict[str, Point]
    seeds: dict[str, list[int]]


class Slot(NamedTuple):
    """Run of the confirmation."""

    who: str
    number: int
    seed: int
    result_file: pathlib.Path


@dataclass(frozen=True)
class Confirmation:
    """Outcome of the confirmation, in figures and in words. ``stands`` says whether the winner's gain is
    confirmed; ``missed`` counts the runs that did not reach the target, and ``epochs`` are those of the
    others."""

    stands: bool
    difference: Difference | None
    missed: dict[Annotated[str, "side"], int]
    """Runs of a side that missed the target; null: no confirmation."""
    epochs: dict[str, list[float]]
    scores: dict[str, SystemScore]
    sentence: str


def fresh_seeds(number: int, used: Iterable[int]) -> list[int]:
    """Return random seeds from the operating system, all different and none among ``used``."""
    before = set(used)
    drawn = random.SystemRandom().sample(range(1, MOST_SEED + 1), number + len(before))
    return [seed for seed in drawn if seed not in before][:number]


def pair(baseline: Point, winner: Point, runs: int, used: Iterable[int]) -> Pair:
    """Return the pair with ``runs`` fresh seeds each."""
    seeds = fresh_seeds(2 * runs, used)
    return Pair({BASELINE: baseline, WINNER: winner}, {BASELINE: seeds[:runs], WINNER: seeds[runs:]})


def baseline_of(start: Point, trials: list[Trial]) -> Point | None:
    """Return ``start`` if any of its runs reached the target, else the point of the first trial that did,
    else None."""
    reached = [trial.point for trial in trials if trial.value is not None and trial.value < method.MISSED]
    return start if start in reached else next(iter(reached), None)


def takes(baseline: float, winner: float, seeds: int, workers: int) -> float:
    """Return the seconds of a confirmation whose runs take ``baseline`` and ``winner`` seconds, ``workers``
    at a time."""
    busy = [0.0] * workers
    for seconds in (baseline, winner) * seeds:  # in this order; the first free worker makes the next run
        heapq.heapreplace(busy, busy[0] + seconds)
    return max(busy)


def slots(folder: pathlib.Path, confirmed: Pair) -> list[Slot]:
    """Return all runs, baseline and winner in turn, so that a machine that slows down affects both."""
    return [
        Slot(who, number, seed, folder / FOLDER / who / f"result_{number}.txt")
        for number, both in enumerate(zip(*confirmed.seeds.values(), strict=True))
        for who, seed in zip(confirmed.seeds, both, strict=True)
    ]


def runs_left(folder: pathlib.Path, confirmed: Pair) -> int:
    """Return the number of runs that have no result yet."""
    return sum(not slot.result_file.exists() for slot in slots(folder, confirmed))


def next_slot(folder: pathlib.Path, confirmed: Pair, in_hand: Collection[pathlib.Path]) -> Slot | None:
    """Return the next run that is neither finished nor ``in_hand``, as its result file tells; None if there
    is none."""
    for slot in slots(folder, confirmed):
        if slot.result_file not in in_hand and not slot.result_file.exists():
            slot.result_file.parent.mkdir(parents=True, exist_ok=True)
            return slot
    return None


def verdict(folder: pathlib.Path) -> Confirmation:
    """Compare the finished runs of baseline and winner."""
    scores = {who: score.score([folder / FOLDER / who])[0] for who in (BASELINE, WINNER)}
    epochs, missed = dict[str, list[float]](), dict[str, int]()
    for who, result in scores.items():
        epochs[who] = [run.epochs for run in result.runs if run.converged and run.epochs is not None]
        missed[who] = sum(not run.converged for run in result.runs)
    if not epochs[BASELINE] or not epochs[WINNER]:
        who = WINNER if epochs[BASELINE] else BASELINE
        sentence = f"It does not stand: no run of the {who} reached the target."
        return Confirmation(False, None, missed, epochs, scores, sentence)
    comparison = compare.difference("epochs", epochs[BASELINE], epochs[WINNER], "the winner")
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

"""Recognise that a run shared its machine with other work, from its speed. The score, the report and the end
of a campaign print the sentence of ``caution``."""

from collections.abc import Sequence

from rn50.results import timing
from rn50.results.run import Run
from rn50.settings import header
from rn50.terminal import minutes

PROBABLY = "other load on this machine, probably"
MOST_MOVED = 1 / 3
"""Fraction by which the images/s of a run's slowest epoch may be below those of its fastest epoch. On
machines without other load it was at most 0.12 in our runs, and 0.18 in published runs."""


def caution(runs: Sequence[Run]) -> list[str]:
    """Return a list of one sentence, that other load probably slowed these runs down, with the evidence: the
    images/s move within a run, or a run took more minutes than its configuration expects. Return an empty
    list if there is no such evidence. Runs of other programs than rn50 are left out."""
    ours = [run for run in runs if run.is_ours]
    moving, slow = _moving(ours), _slow(ours)
    cause = PROBABLY if moving else f"{PROBABLY}, or a slower machine than those measured"
    return [f"{cause}: {'; '.join(moving + slow)}"] if moving or slow else []


def _moving(runs: Sequence[Run]) -> list[str]:
    """Return a list of one phrase, on the run whose images/s move most, if they move more than
    ``MOST_MOVED``; else an empty list. The first epoch, which warms up, does not count, nor does the time of
    evaluations."""
    moving = []  # (images/s of the slowest epoch over those of the fastest, phrase)
    for run in runs:
        rates = [rate for _, rate in timing.throughput(run.log).epochs[1:]]  # pairs (epoch, images/s)
        if rates and min(rates) / max(rates) < 1 - MOST_MOVED:
            text = f"images/s of {run.file.stem} moved between {min(rates):,.0f} and {max(rates):,.0f}"
            moving.append((min(rates) / max(rates), text))
    return [min(moving, key=lambda item: item[0])[1]] if moving else []


def _slow(runs: Sequence[Run]) -> list[str]:
    """Return a list of one phrase, on the slowest of the runs that took more minutes than the header of their
    configuration expects, although they did not need more epochs; an empty list if there is no such run."""
    late = []  # (minutes, phrase)
    for run in runs:
        expected, reached = header.expected(run.header), run.log.reached
        run_minutes = run.log.minutes or 0.0
        if expected and reached and reached.epoch <= expected.epoch and run_minutes > expected.minutes:
            text = f"{run.file.stem} took {minutes(run_minutes)} minutes, and at most {expected.minutes:g}"
            late.append((run_minutes, f"{text} are expected"))
    return [max(late)[1]] if late else []

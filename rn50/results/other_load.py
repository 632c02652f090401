"""Tell that a run shared its machine with other work: the one rule for the report, the score and the end of a
campaign."""

from collections.abc import Sequence

from rn50.results import timing
from rn50.results.run import Run
from rn50.settings import header
from rn50.terminal import minutes

PROBABLY = "other load on this machine, probably"
MOST_MOVED = 1 / 3
"""Part of its fastest epoch's images/s by which a run's slowest epoch may fall behind. On machines without
other load it was at most 0.12 in runs of ours, and 0.18 in published ones."""


def caution(runs: Sequence[Run]) -> list[str]:
    """Return that other load slowed these runs down, and what shows it: images/s that move within a run, or
    more minutes than its configuration expects. Nothing where neither is so, and for runs of others."""
    ours = [run for run in runs if run.is_ours]
    moving, slow = _moving(ours), _slow(ours)
    cause = PROBABLY if moving else f"{PROBABLY}, or a slower machine than those measured"
    return [f"{cause}: {'; '.join(moving + slow)}"] if moving or slow else []


def _moving(runs: Sequence[Run]) -> list[str]:
    """Return the run whose images/s move most, if they move too much. The first epoch, which warms up, does
    not count, and evaluations are no part of an epoch's time."""
    by_run = [(run, [rate for _, rate in timing.throughput(run.log).epochs[1:]]) for run in runs]
    kept = [(min(rates) / max(rates), run, rates) for run, rates in by_run if rates]
    left, run, rates = min(kept, key=lambda moved: moved[0], default=(1.0, None, []))
    if run is None or left >= 1 - MOST_MOVED:
        return []
    return [f"images/s of {run.file.stem} moved between {min(rates):,.0f} and {max(rates):,.0f}"]


def _slow(runs: Sequence[Run]) -> list[str]:
    """Return the slowest of the runs that took more minutes than a run of no more epochs is expected to."""
    late = []
    for run in runs:
        expected = header.expected(run.header)
        reached, taken = run.log.reached, run.log.minutes or 0.0
        if expected and reached and reached.epoch <= expected.epoch and taken > expected.minutes:
            text = f"{run.file.stem} took {minutes(taken)} minutes, and at most {expected.minutes:g}"
            late.append((taken, f"{text} are expected"))
    return [max(late)[1]] if late else []

"""Tests of a set against published runs: whether it needed too few epochs (``epochs``), and whether its
minutes are too much alike (``spread``).

``epochs`` compares with published runs and reference convergence points near the batch size. If the set
stands out, it says how many runs somebody would have to make so that the best of them are as good.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rn50.audit.run_set import FEWER_THAN_3, NOT_OF_BENCHMARK, Evidence, RunSet, not_tested
from rn50.benchmark import rules
from rn50.errors import excerpt
from rn50.hyperparameters import reference
from rn50.results import published
from rn50.results.recipe import convergence_points, of_point

NEAR_OCTAVES = 0.25
"""Standard deviation, in octaves of batch size, of the normal curve by which known runs are weighted. It is
that of ``rn50 plan``."""
FEWEST_KNOWN = 20
"""If the weights of the known runs have a smaller sum, too little is known for a comparison."""
DRAWS = 10_000
"""Sets drawn at random from the known runs."""
TOO_GOOD = 1e-3
"""A set may stand out if sets drawn from the known runs have as few epochs with a smaller probability."""
EARLIER = rules.EVAL_PERIOD_EPOCHS / 4
"""A set stands out only if its mean is also below the reference by at least so many epochs: results of
different makers differ by less."""
TIE = 0.5
"""Epochs by which means may differ by chance, because the reference at a batch size is interpolated."""
MOST_MADE = 100
"""Largest number of runs that is tried as an explanation of a good set."""
TOO_EVEN = 0.5
"""Spread of the minutes below which a set stands out, as a multiple of the smallest published spread."""


_Population = tuple[Any, Any]
"""Known runs, as two arrays: their epochs to target as differences from the reference at their batch size,
with infinity for a run that missed the target; and their probabilities."""


def epochs(runs: RunSet) -> Evidence:
    """Test "epochs": how probable so few epochs are among known runs and, if a set stands out, of how many
    runs its runs would be the best. Not possible for fewer than three runs."""
    batch_size = runs.batch_size
    reached = [log.reached.epoch for log in runs.logs if log.reached]
    logged = (event.value for log in runs.logs if (event := log.first("opt_name")))
    optimizer = next((name for name in logged if isinstance(name, str)), "an optimizer that is not logged")
    if len(runs.logs) < 3:
        return not_tested("epochs", FEWER_THAN_3)
    if runs.not_closed or not batch_size:
        why = runs.not_closed or "no log has a batch size above 0"
        return not_tested("epochs", why)
    population = _population(batch_size, optimizer, runs)
    if population is None or len(reached) < 3:
        little = f"too little is known of {excerpt(optimizer)} at a batch size of {batch_size:,}"
        return not_tested("epochs", "fewer than 3 runs reached the target" if population else little)
    # Mean epochs less those of the reference: if it is negative, the set is better than the reference.
    difference = float(np.mean(reached)) - reference.interpolated(batch_size).mean
    drawn_means = _drawn(population, (DRAWS, len(reached))).mean(1)
    p = max(float((drawn_means <= difference + TIE).mean()), 1 / DRAWS)  # so many draws show no smaller p
    text = f"{np.mean(reached):.1f} epochs on average"
    if p > 0.05:
        return Evidence("epochs", False, f"{text}, as known runs at this batch", difference, p)
    text += f", as few as known runs at this batch with probability {p:.2g}"
    if p >= TOO_GOOD or difference >= -EARLIER:
        return Evidence("epochs", False, text, difference, p)
    return Evidence("epochs", True, f"{text}; {_tries(population, difference, len(reached))}", difference, p)


def _tries(population: _Population, difference: float, count: int) -> str:
    """Return a phrase on how many runs somebody would have to make, so that the best ``count`` of them have a
    mean ``difference`` from the reference, or a smaller one."""
    draws = _drawn(population, (2_000, MOST_MADE))
    probabilities = {}  # number of runs -> probability that the best ``count`` of them are so good
    for runs in range(count, MOST_MADE + 1):
        best = np.sort(draws[:, :runs], axis=1)[:, :count]
        probabilities[runs] = float((best.mean(1) <= difference + TIE).mean())

    def fewest(least: float) -> int | None:
        """Return the fewest runs whose probability is at least ``least``; None: more than were tried."""
        return next((runs for runs, p in probabilities.items() if p >= least), None)

    low, half, high = map(fewest, (0.05, 0.5, 0.95))
    if half is None:
        return f"not even the best {count} of {MOST_MADE} would have as few"
    interval = f"{low} to {high}" if high else f"from {low} on"
    return f"the best {count} of {half} would have as few (90 % interval {interval})"


def _population(batch_size: int, optimizer: str, runs: RunSet) -> _Population | None:
    """Return the known runs near a batch size, without ``runs``; None if their weights have a sum below
    ``FEWEST_KNOWN``."""
    by_size: list[tuple[int, Sequence[float | None]]] = []  # (batch size, epochs of each run)
    for result in published.distinct(optimizer):
        if result.is_closed and not runs.are_of(result):
            by_size.append((result.recipe.global_batch_size or 0, result.runs))
    for point in convergence_points(rules.RULESETS[-1]).values():
        recipe = of_point(point)
        if recipe.optimizer == optimizer:
            by_size.append((recipe.global_batch_size, point["Epochs to converge"]))
    differences, weights = [], []
    for size, run_epochs in by_size:
        weight = math.exp(-((math.log2(size / batch_size) / NEAR_OCTAVES) ** 2) / 2)
        mean = reference.interpolated(size).mean
        differences += [math.inf if number is None else number - mean for number in run_epochs]
        weights += [weight] * len(run_epochs)
    return (np.array(differences), np.array(weights) / sum(weights)) if sum(weights) >= FEWEST_KNOWN else None


def _drawn(population: _Population, shape: tuple[int, int]) -> Any:
    """Return an array of this ``shape``: differences from the reference, drawn from a population."""
    return np.random.default_rng(0).choice(population[0], shape, p=population[1])


def spread(runs: RunSet) -> Evidence:
    """Test "spread": compare the spread of the minutes of a set with that of published sets. Not possible for
    fewer than five converged runs, for runs that reached the target at different epochs, and for runs that
    are not of the benchmark."""
    logs = [run.log for run in runs.runs if run.converged]
    if len(logs) < rules.RUNS:
        return not_tested("spread", f"fewer than {rules.RUNS} runs reached the target")
    if runs.label:
        return not_tested("spread", NOT_OF_BENCHMARK)
    if len({log.reached.epoch for log in logs if log.reached}) > 1:
        return not_tested("spread", "the runs reached the target after different numbers of epochs")
    set_spread = _relative_range([log.minutes or 0.0 for log in logs])
    # Published sets whose runs all ended at one epoch, with minutes that are all different.
    equal_epochs = (row for row in published.results() if len({*row.runs}) == 1 and None not in row.runs)
    sets = (row for row in equal_epochs if len({*row.minutes}) == len(row.minutes) and not runs.are_of(row))
    times = ([minutes for minutes in row.minutes if minutes] for row in sets)
    spreads = sorted(_relative_range(minutes) for minutes in times if minutes)
    share = sum(other <= set_spread for other in spreads) / len(spreads)
    text = f"{set_spread:.2%} between the fastest and the slowest; {share:.0%} of published sets have less"
    p = max(share, 1 / len(spreads))  # so many sets show no smaller p
    return Evidence("spread", set_spread < TOO_EVEN * spreads[0], text, set_spread, p)


def _relative_range(minutes: Sequence[float]) -> float:
    """Return (longest - shortest) / mean."""
    return (max(minutes) - min(minutes)) / float(np.mean(minutes))


TESTS = epochs, spread
"""Tests of this file, which ``audit`` makes."""

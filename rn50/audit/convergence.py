"""The epochs of the runs against all that is known: published runs and reference convergence points near
their batch size, and how many runs somebody would have to make to choose as good ones."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rn50.audit.run_set import Evidence, RunSet, not_tested
from rn50.benchmark import rules
from rn50.errors import excerpt
from rn50.hyperparameters import reference
from rn50.results import published
from rn50.results.recipe import convergence_points, of_point

NEAR_OCTAVES = 0.25
"""Standard deviation of the bell curve that weighs known runs, in octaves of batch size, as for a plan."""
FEWEST_KNOWN = 20
"""Known runs, by weight, that a comparison takes."""
DRAWS = 10_000
TOO_GOOD, EARLIER = 1e-3, rules.EVAL_PERIOD_EPOCHS / 4
"""Probability of as few epochs below which a set stands out, if it also has so many fewer than the reference:
between makers they differ by less."""
TIE = 0.5
"""Epochs by which means differ without meaning: the reference at a batch size is interpolated."""
MOST_MADE = 100
"""Largest campaign that is tried as an explanation."""
TOO_EVEN = 0.5
"""Spread of the minutes that stands out, as a multiple of the smallest published one."""


_Population = tuple[Any, Any]
"""Epochs of known runs, as differences from the reference at their batch size, and their probabilities; a run
that missed the target has infinitely many."""


def epochs(runs: RunSet) -> Evidence | None:
    """Ask how probable so few epochs are, and of how many runs they would be the best; None with fewer than
    three runs."""
    batch_size, reached = runs.batch_size, [log.reached.epoch for log in runs.logs if log.reached]
    logged = (event.value for log in runs.logs if (event := log.first("opt_name")))
    optimizer = next((name for name in logged if isinstance(name, str)), "an optimizer that is not logged")
    if len(runs.logs) < 3:
        return None
    if not (runs.is_closed and batch_size):
        why = "no log has a batch size above 0" if runs.is_closed else "not of the closed division"
        return not_tested("epochs", why)
    population = _population(batch_size, optimizer, runs)
    if population is None or len(reached) < 3:
        little = f"too little is known of {excerpt(optimizer)} at a batch size of {batch_size:,}"
        return not_tested("epochs", "fewer than 3 runs reached the target" if population else little)
    mean = float(np.mean(reached)) - reference.interpolated(batch_size).mean
    means = _drawn(population, (DRAWS, len(reached))).mean(1)
    p = max(float((means <= mean + TIE).mean()), 1 / DRAWS)
    text = f"{np.mean(reached):.1f} epochs on average"
    if p > 0.05:
        return Evidence("epochs", False, f"{text}, as known runs at this batch", mean, p)
    text += f", as few as known runs at this batch with probability {p:.2g}"
    if p >= TOO_GOOD or mean >= -EARLIER:
        return Evidence("epochs", False, text, mean, p)
    return Evidence("epochs", True, f"{text}; {_explained(population, mean, len(reached))}", mean, p)


def _explained(population: _Population, mean: float, count: int) -> str:
    """Say of how many runs the best ``count`` would be as good."""
    drawn = _drawn(population, (2_000, MOST_MADE))
    shares = {
        made: float((np.sort(drawn[:, :made], axis=1)[:, :count].mean(1) <= mean + TIE).mean())
        for made in range(count, MOST_MADE + 1)
    }
    low, half, high = (
        next((made for made, share in shares.items() if share >= at), None) for at in (0.05, 0.5, 0.95)
    )
    if half is None:
        return f"not even the best {count} of {MOST_MADE} would have as few"
    interval = f"{low} to {high}" if high else f"from {low} on"
    return f"the best {count} of {half} would have as few (90 % interval {interval})"


def _population(batch_size: int, optimizer: str, runs: RunSet) -> _Population | None:
    """Return what is known near a batch size, without the runs themselves."""
    at: list[tuple[int, Sequence[float | None]]] = []
    for result in published.distinct(optimizer):
        if result.is_closed and not runs.are_of(result):
            at.append((result.recipe.global_batch_size or 0, result.runs))
    for point in convergence_points(rules.RULESETS[-1]).values():
        recipe = of_point(point)
        if recipe.optimizer == optimizer:
            at.append((recipe.global_batch_size, point["Epochs to converge"]))
    differences, weights = [], []
    for size, needed in at:
        weight = math.exp(-((math.log2(size / batch_size) / NEAR_OCTAVES) ** 2) / 2)
        mean = reference.interpolated(size).mean
        differences += [math.inf if epochs is None else epochs - mean for epochs in needed]
        weights += [weight] * len(needed)
    return (np.array(differences), np.array(weights) / sum(weights)) if sum(weights) >= FEWEST_KNOWN else None


def _drawn(population: _Population, shape: tuple[int, int]) -> Any:
    """Return differences drawn at random."""
    return np.random.default_rng(0).choice(population[0], shape, p=population[1])


def spread(runs: RunSet) -> Evidence | None:
    """Compare the spread of the minutes of runs of equal epochs with that of published sets."""
    logs = [run.log for run in runs.runs if run.converged]
    minutes = [log.minutes or 0.0 for log in logs]
    if len(logs) < rules.RUNS or len({log.reached.epoch for log in logs if log.reached}) > 1 or runs.label:
        return None
    apart = (max(minutes) - min(minutes)) / float(np.mean(minutes))
    alike = (row for row in published.results() if len({*row.runs}) == 1 and None not in row.runs)
    others = (row for row in alike if len({*row.minutes}) == len(row.minutes) and not runs.are_of(row))
    sets = ([minutes for minutes in row.minutes if minutes] for row in others)
    every = sorted((max(timed) - min(timed)) / float(np.mean(timed)) for timed in sets if timed)
    share = sum(other <= apart for other in every) / len(every)
    text = f"{apart:.2%} between the fastest and the slowest; {share:.0%} of published sets have less"
    return Evidence("spread", apart < TOO_EVEN * every[0], text, apart, max(share, 1 / len(every)))


TESTS = epochs, spread

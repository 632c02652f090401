"""Tests of the accuracies over the epochs: two logs too alike to be of two runs (``copies`` within a set,
``Curves`` across all sets), and a run that lies one evaluation ahead of the others (``shifted``).

Two runs of one recipe differ by far more in their early epochs than in their last. A copy whose digits were
changed differs by the same small amount everywhere. These two explanations of a pair of curves are compared
by their likelihood ratio; its inverse bounds the p-value (see ``launches``).
"""

import functools
import itertools
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from rn50.audit.run_set import NOT_OF_BENCHMARK, Evidence, RunSet, not_tested, ratio_of
from rn50.results import published
from rn50.results.parse import ResultLog
from rn50.results.validity import result_rules

DEVIATIONS = (0.0165, 0.0186, 0.0194, 0.0167, 0.0128, 0.0087, 0.0055, 0.0030, 0.0014, 0.0012, 0.0007)
"""Standard deviation of the top-1 accuracy among the runs of one set, a fraction, by tenth of the set's
epochs: the median of published rounds v0.7 to v2.1. The last value is for the last epoch itself."""
CHANGED = np.geomspace(3e-5, 2.5e-3, 12)
"""Possible standard deviations of the difference between a run and a copy of it whose digits were changed."""
FEWEST, MOST = 5, 100
"""Fewest evaluations that two runs must share to be compared, and largest number of a run's evaluations that
are compared."""
NEAREST = 16
"""Number of logs with which a log is compared by the likelihood ratio: those with the nearest accuracies."""
ALIKE = 1000.0
"""Likelihood ratio from which a pair of runs of one set stands out. The highest of published pairs is 194,
not counting a log that was published twice."""


def _curve(log: ResultLog) -> dict[float, float]:
    """Return epoch -> top-1 accuracy of the evaluations of a log."""
    return {evaluation.epoch: evaluation.accuracy for evaluation in log.evaluations}


def _deviations(epochs: Sequence[float]) -> Any:
    """Return the usual standard deviation of the accuracy at each of ``epochs``, which ascend: ``DEVIATIONS``
    has one for each tenth of the last epoch."""
    return np.array([DEVIATIONS[min(int(10 * epoch / epochs[-1]), 10)] for epoch in epochs])


def likeness(curve: Sequence[float], others: Any, epochs: Sequence[float]) -> Any:
    """Return for each row of ``others`` the logarithm of the likelihood ratio of two explanations: the log of
    the row is a copy of the log of ``curve``, or they are of two runs.

    ``curve`` has the accuracies of a run at ``epochs``. A row has those of another run, NaN for one that it
    lacks. NaN does not count, and neither does the last evaluation, because its accuracy is why a run stops.
    """
    differences = (np.array(curve) - others)[:, :-1]
    usual = math.sqrt(2) * _deviations(epochs)[:-1]  # of the difference of two runs
    # The density of a difference between two runs is the mean of two densities, with the usual deviation and
    # with half of it, because some recipes vary half as much as the median. 1e-4 is added, because runs of
    # two recipes may differ by any amount.
    with np.errstate(invalid="ignore"):  # differences may be NaN
        two_runs = np.logaddexp(_log_normal(differences, usual), _log_normal(differences, usual / 2))
        two_runs = np.logaddexp(two_runs - math.log(2), math.log(1e-4))
    # The likelihood of a copy is the mean over ``CHANGED``, because its deviation is not known.
    ratios = np.stack([np.nansum(_log_normal(differences, sigma) - two_runs, axis=1) for sigma in CHANGED])
    return np.logaddexp.reduce(ratios) - math.log(len(CHANGED))


def copies(runs: RunSet) -> Evidence | None:
    """Test "curves alike": look for two logs of the set with equal accuracies or equal times, and for a
    published result with its minutes and other accuracies. None if there are none; then ``Curves.alike``
    looks for copies with changed digits."""
    for first, second in itertools.combinations(runs.logs, 2):
        # Return at the first phrase on what the two share.
        for text in result_rules.alike(second, first):
            return Evidence("curves alike", True, f"{second.path.name}: {text} those of {first.path.name}")
    for row in published.results():
        if runs.are_of(row) and not runs.reached_as(row):
            text = f"the minutes of all runs are those of {row.name}, their accuracies are not"
            return Evidence("curves alike", True, text)
    return None


class Curves:
    """The accuracies of the runs of all sets, a row for each run, to compare each run with all others."""

    def __init__(self) -> None:
        self._runs: list[tuple[pathlib.Path, tuple[Any, ...], list[tuple[float, float]]]] = []
        """(path of the log, (run_start in ms, run_stop in ms, seed), [(epoch, top-1)]) of each row."""

    def add(self, runs: RunSet) -> range:
        """Keep the accuracies of a set. Return the rows of its runs."""
        first = len(self._runs)
        for log in runs.logs:
            facts = log.run_start_ms, log.run_stop_ms, log.seed
            self._runs.append((log.path, facts, sorted(_curve(log).items())[:MOST]))
        return range(first, len(self._runs))

    def contents(self, rows: range) -> frozenset[Any]:
        """Return times, seeds and accuracies of the runs of a set: equal ones are of the same logs, which
        may have another organisation's name."""
        return frozenset((facts, tuple(curve)) for _, facts, curve in self._runs[rows.start : rows.stop])

    @functools.cached_property
    def _table(self) -> Any:
        """Four arrays: a number for each log, the same for the same logs (rows); run_start and run_stop in ms
        (rows, 2); epochs and accuracies (rows, ``MOST``), with NaN at the end."""
        table = np.full((2, len(self._runs), MOST), math.nan)
        for row, (*_, curve) in enumerate(self._runs):
            table[:, row, : len(curve)] = np.reshape(curve, (-1, 2)).T
        numbers: dict[Any, int] = {}
        logs = [numbers.setdefault((facts, tuple(curve)), len(numbers)) for _, facts, curve in self._runs]
        return np.array(logs), np.array([facts[:2] for _, facts, _ in self._runs]), *table

    def alike(self, rows: range) -> Evidence:
        """Test "curves alike": look for copies of each other among the runs of a set, whose rows are
        ``rows``, and for copies of them in other sets. Another set may have the very same logs, which are not
        compared. A run of another set with the times of a run of this one, but another seed or other
        accuracies, is a copy that was edited."""
        logs, times, epochs, top_1 = self._table
        best = -math.inf, ""  # (highest logarithm of a ratio, names of the two logs)
        pairs = 0
        for row in rows:
            n = np.count_nonzero(~np.isnan(epochs[row]))  # evaluations of the run
            # True for the rows to compare with: runs of other sets, and the later runs of this set, so that
            # each pair counts once; in both cases only if the first ``FEWEST`` epochs are the same.
            others = ~np.isin(logs, logs[rows.start : rows.stop])
            for copy in np.flatnonzero(others & (times == times[row]).all(axis=1)):
                of_both = f"{self._runs[row][0].name} has the times of {self._runs[copy][0]}"
                return Evidence("curves alike", True, f"{of_both}, but another seed or other accuracies")
            others[row + 1 : rows.stop] = True
            others &= (epochs[:, :FEWEST] == epochs[row, :FEWEST]).all(axis=1)
            if not others.any():
                continue
            pairs += np.count_nonzero(others)
            # Accuracies of the others at the epochs of this run, NaN where theirs are after another epoch.
            shared = np.where(epochs[others, :n] == epochs[row, :n], top_1[others, :n], math.nan)
            distances = np.nanmean((shared - top_1[row, :n]) ** 2, axis=1)
            near = np.argsort(distances, kind="stable")[:NEAREST]
            ratios = likeness(top_1[row, :n], shared[near], epochs[row, :n])
            nearest = int(np.flatnonzero(others)[near[ratios.argmax()]])
            path = self._runs[nearest][0]  # shown whole if it is of another set
            names = f"{self._runs[row][0].name} and {path.name if nearest in rows else path}"
            best = max(best, (float(ratios.max()), names))
        if not pairs:
            return not_tested("curves alike", f"no two runs share {FEWEST} evaluations")
        # ``ALIKE`` is the limit for 10 pairs, as many as five runs have; with more pairs it grows.
        ratio = ratio_of(best[0])
        stands_out = ratio > ALIKE * max(1, pairs / 10)
        text = f"{best[1]} have nearly the same accuracies at every epoch" if stands_out else "all differ"
        return Evidence("curves alike", stands_out, text, ratio, min(1.0, pairs / ratio))


def shifted(runs: RunSet) -> Evidence:
    """Test "curves shifted": look for a converged run whose accuracies are those that the others reach one
    evaluation later, and for a run that alone is evaluated at other epochs. Not possible for runs that are
    not of the benchmark, whose curves vary by other amounts."""
    logs = [log for log in runs.logs if log.reached and len(log.evaluations) >= FEWEST]
    curves = [_curve(log) for log in logs]
    # Of each run the first three epochs after which it is evaluated.
    first_epochs = [[*curve][:3] for curve in curves]
    for log, epochs in zip(logs, first_epochs, strict=True):
        if first_epochs.count(epochs) == 1 and len(first_epochs) > 3:
            listed = ", ".join(f"{epoch:g}" for epoch in epochs)
            text = f"{log.path.name} is evaluated after epochs {listed}, the others are not"
            return Evidence("curves shifted", True, text)
    shared = sorted(set.intersection(*({*curve} for curve in curves))) if curves else []
    if len(curves) < 4 or len(shared) < FEWEST:
        return not_tested("curves shifted", f"fewer than 4 runs share {FEWEST} evaluations and the target")
    if runs.label:
        return not_tested("curves shifted", NOT_OF_BENCHMARK)
    table = np.array([[curve[epoch] for epoch in shared] for curve in curves])
    # Standard deviations of a run minus the mean of the n others: sqrt(1 + 1 / n) times those of a run.
    deviations = math.sqrt(1 + 1 / (len(curves) - 1)) * _deviations(shared)
    scores = []
    for index, log in enumerate(logs):
        # Log-likelihoods that the run is one evaluation ahead of the median of the others, and that it is
        # level with it: mean per evaluation, times the number of evaluations that can be compared one ahead.
        others = np.median(np.delete(table, index, 0), axis=0)
        ahead, level = (_fit(table[index], others, deviations, step) * (len(shared) - 1) for step in (1, 0))
        scores.append((ahead - level, log.path.name))
    score, name = max(scores)
    text = f"{name} is one evaluation ahead of the others" if score > 0 else "no run is ahead of the others"
    return Evidence("curves shifted", score > 0, text, ratio_of(score), min(1.0, ratio_of(-score)))


def _fit(curve: Any, others: Any, deviations: Any, step: int) -> float:
    """Return the mean over the evaluations of the log-likelihood that a curve has the accuracies which the
    others have ``step`` evaluations later. An evaluation counts as -12 at least, the value at 4.9 standard
    deviations."""
    n = len(curve) - step
    differences = (curve[:n] - others[step:]) / deviations[:n]
    return float(np.maximum(-(differences**2) / 2, -12).mean())


def _log_normal(value: Any, deviation: Any) -> Any:
    """Return the logarithm of the density of a normal distribution, without a constant."""
    return -((value / deviation) ** 2) / 2 - np.log(deviation)


TESTS = copies, shifted
"""Tests of this file that ``audit`` makes on a single set; it makes ``Curves.alike`` on all sets together."""

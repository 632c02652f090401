"""The accuracies over the epochs: runs too alike to be two, and a run that lies an evaluation ahead.

Two runs of one recipe differ by far more in their early epochs than in their last. A copy whose digits were
changed differs by the same small amount everywhere. The two explanations of each pair are compared by their
likelihood ratio; its inverse bounds the p-value (see ``launches``).
"""

import functools
import itertools
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from rn50.audit.run_set import Evidence, RunSet, not_tested, ratio_of
from rn50.results.parse import ResultLog
from rn50.results.validity import result_rules

DEVIATIONS = (0.0165, 0.0186, 0.0194, 0.0167, 0.0128, 0.0087, 0.0055, 0.0030, 0.0014, 0.0012, 0.0007)
"""Standard deviation of the top-1 of the runs of one set, by tenth of its epochs: the median of published
rounds v0.7 to v2.1."""
CHANGED = np.geomspace(3e-5, 2.5e-3, 12)
"""Standard deviations of the difference of a copy whose digits were changed."""
FEWEST, MOST = 5, 100
"""Evaluations that two runs must share, and of a run that are compared."""
NEAREST = 16
"""Logs for which the likelihood ratio is computed: those whose accuracies are nearest."""
ALIKE = 1000.0
"""Likelihood ratio from which a pair of runs of one set stands out; of published pairs the highest, but for
one log that is there twice, is 194."""


def _of(log: ResultLog) -> dict[float, float]:
    return {evaluation.epoch: evaluation.accuracy for evaluation in log.evaluations}


def _deviations(epochs: Sequence[float]) -> Any:
    return np.array([DEVIATIONS[min(int(10 * epoch / epochs[-1]), 10)] for epoch in epochs])


def likeness(curve: Sequence[float], others: Any, epochs: Sequence[float]) -> Any:
    """Return the logarithms of the likelihood ratios of ``one`` and each row of ``others`` being copies, to
    their being two runs. The accuracies are at ``epochs``, of which the last, where runs stop, does not
    count; NaN, where a row has none, does not either."""
    apart = (np.array(curve) - others)[:, :-1]
    usual = math.sqrt(2) * _deviations(epochs)[:-1]
    # Some recipes vary half as much as the median, and runs of two recipes differ by anything.
    with np.errstate(invalid="ignore"):  # NaN
        runs = np.logaddexp(_normal(apart, usual), _normal(apart, usual / 2)) - math.log(2)
        runs = np.logaddexp(runs, math.log(1e-4))
    copies = np.stack([np.nansum(_normal(apart, changed) - runs, axis=1) for changed in CHANGED])
    return np.logaddexp.reduce(copies) - math.log(len(CHANGED))


def copies(runs: RunSet) -> Evidence | None:
    """Look for logs that share their accuracies or their times with another of the set."""
    for first, second in itertools.combinations(runs.logs, 2):
        for text in result_rules.alike(second, first):
            return Evidence("curves alike", True, f"{second.path.name}: {text} those of {first.path.name}")
    return None


class Curves:
    """The accuracies of the logs of all sets, which are compared with each other."""

    def __init__(self) -> None:
        self._logs: list[tuple[pathlib.Path, int, list[tuple[float, float]]]] = []

    def add(self, runs: RunSet) -> range:
        """Keep the accuracies of a set; return their rows."""
        begin = len(self._logs)
        self._logs += [
            (log.path, log.run_start_ms or 0, sorted(_of(log).items())[:MOST]) for log in runs.logs
        ]
        return range(begin, len(self._logs))

    @functools.cached_property
    def _table(self) -> Any:
        """Begin, epochs and accuracies of each run."""
        table = np.full((2, len(self._logs), MOST), math.nan)
        for row, (*_, curve) in enumerate(self._logs):
            table[:, row, : len(curve)] = np.reshape(curve, (-1, 2)).T
        return np.array([begun for _, begun, _ in self._logs]), *table

    def alike(self, rows: range) -> Evidence:
        """Look for copies among the runs of a set, which are in these rows, and of them in other sets."""
        begun, epochs, top_1 = self._table
        best, tried = (-math.inf, ""), 0
        for row in rows:
            n = np.count_nonzero(~np.isnan(epochs[row]))
            others = ~np.isin(begun, begun[rows.start : rows.stop])
            others[row + 1 : rows.stop] = True
            others &= (epochs[:, :FEWEST] == epochs[row, :FEWEST]).all(axis=1)
            if not others.any():
                continue
            tried += np.count_nonzero(others)
            shared = np.where(epochs[others, :n] == epochs[row, :n], top_1[others, :n], math.nan)
            apart = np.nanmean((shared - top_1[row, :n]) ** 2, axis=1)
            near = np.argsort(apart, kind="stable")[:NEAREST]
            ratios = likeness(top_1[row, :n], shared[near], epochs[row, :n])
            nearest = int(np.flatnonzero(others)[near[ratios.argmax()]])
            path = self._logs[nearest][0]
            names = f"{self._logs[row][0].name} and {path.name if nearest in rows else path}"
            best = max(best, (float(ratios.max()), names))
        if not tried:
            return not_tested("curves alike", f"no two runs share {FEWEST} evaluations")
        ratio = ratio_of(best[0])
        stands_out = ratio > ALIKE * max(1, tried / 10)
        text = f"{best[1]} have nearly the same accuracies at every epoch" if stands_out else "all differ"
        return Evidence("curves alike", stands_out, text, ratio, min(1.0, tried / ratio))


def shifted(runs: RunSet) -> Evidence | None:
    """Look for a converged run whose accuracies are those of the others an evaluation later; None for runs
    of other data, whose curves vary otherwise."""
    logs = [log for log in runs.logs if log.reached and len(log.evaluations) >= FEWEST]
    curves = [_of(log) for log in logs]
    begun = [[*curve][:3] for curve in curves]
    for log, epochs in zip(logs, begun, strict=True):
        if begun.count(epochs) == 1 and len(begun) > 3:
            listed = ", ".join(f"{epoch:g}" for epoch in epochs)
            text = f"{log.path.name} is evaluated after epochs {listed}, the others are not"
            return Evidence("curves shifted", True, text)
    shared = sorted(set.intersection(*({*curve} for curve in curves))) if curves else []
    if len(curves) < 4 or len(shared) < FEWEST:
        return not_tested("curves shifted", f"fewer than 4 runs share {FEWEST} evaluations and the target")
    if runs.label:
        return None
    table = np.array([[curve[epoch] for epoch in shared] for curve in curves])
    deviations = math.sqrt(1 + 1 / (len(curves) - 1)) * _deviations(shared)
    scores = []
    for index, log in enumerate(logs):
        others = np.median(np.delete(table, index, 0), axis=0)
        ahead, level = (_fit(table[index], others, deviations, step) * (len(shared) - 1) for step in (1, 0))
        scores.append((ahead - level, log.path.name))
    score, name = max(scores)
    text = f"{name} is one evaluation ahead of the others" if score > 0 else "no run is ahead of the others"
    return Evidence("curves shifted", score > 0, text, ratio_of(score), min(1.0, ratio_of(-score)))


def _fit(curve: Any, others: Any, deviations: Any, step: int) -> float:
    """Return the mean logarithm of the likelihood of a curve being that of the others ``step`` evaluations
    later."""
    n = len(curve) - step
    apart = (curve[:n] - others[step:]) / deviations[:n]
    return float(np.maximum(-(apart**2) / 2, -12).mean())


def _normal(value: Any, deviation: Any) -> Any:
    """Return the logarithm of the density, without a constant."""
    return -((value / deviation) ** 2) / 2 - np.log(deviation)


TESTS = copies, shifted
"""The tests of a set without other sets."""

"""Test whether a few runs of two results show a difference: p-values and intervals, corrected for several
tests made at once. ``compare`` and ``audit`` use them.

The interval of a difference of means is Welch's (B. L. Welch, Biometrika 34, 1947), which does not assume
equal variances. The p-value is that of the exact permutation test (R. A. Fisher, The Design of Experiments,
1935), which assumes no distribution at all. Ten runs can be divided into five and five in 252 ways, so p is
never below 2/252 = 0.008 for five runs against five.

Among several tests made at once, some succeed by chance. The p-values are therefore adjusted by the method of
Y. Benjamini and Y. Hochberg (J. R. Stat. Soc. B 57, 1995): of all differences that are reported as shown, at
most 5 % are expected not to exist. The intervals are widened to match: of the intervals of shown differences,
at most 5 % are expected to miss the true difference (Y. Benjamini and D. Yekutieli, J. Am. Stat. Assoc. 100,
2005). Bonferroni's and Holm's corrections, which guard against a single mistake, are not used: with seven
tests or more, five runs against five could not show any difference under them, however large.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any

Interval = tuple[float | None, float | None]
CONFIDENCE = 0.95
"""Confidence level of an interval that stands alone; a difference is shown if its p is below 1 - this."""
LEAST_PAIRS = 6
"""Fewest pairs whose p can be below 1 - CONFIDENCE: all of them differ in one direction by chance in one of
32 cases. Of five pairs it is one of 16."""


def welch_interval(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the confidence interval of mean(b) - mean(a), with the degrees of freedom of Welch and
    Satterthwaite. ``a`` and ``b`` are the values of the runs of two results. Return (None, None) if a result
    has fewer than two runs, or if in both results all values are equal."""
    from scipy import stats  # takes a second to load

    if min(len(a), len(b)) < 2 or len({*a}) == len({*b}) == 1:
        return None, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # SciPy warns if the values of one are all equal
        low, high = stats.ttest_ind(b, a, equal_var=False).confidence_interval(confidence)
    return float(low), float(high)


def permutation_p(a: Sequence[float], b: Sequence[float], paired: bool = False) -> float:
    """Return the two-sided p-value of the difference of means over all divisions of the runs into two groups,
    or over 9,999 random divisions if there are more. Return 1 if one result has fewer than two runs, which
    show nothing.

    If ``paired``, the n-th run of ``a`` and that of ``b`` are a pair, and the divisions are those that swap
    the two runs of some pairs: for n pairs 2 to the power of n."""
    import numpy as np
    from scipy import stats

    if min(len(a), len(b)) < 2:
        return 1.0

    def mean_difference(x: Any, y: Any, axis: int) -> Any:
        return np.mean(x, axis=axis) - np.mean(y, axis=axis)

    kind = "samples" if paired else "independent"
    test = stats.permutation_test(
        (a, b), mean_difference, permutation_type=kind, vectorized=True, random_state=0
    )
    return float(test.pvalue)


def lowest_p(a: int, b: int) -> float:
    """Return the lowest value that ``permutation_p`` can have for ``a`` runs against ``b`` runs."""
    # If there are more divisions, it takes 9,999 random ones and the observed one.
    return 2 / min(math.comb(a + b, a), 10_000) if min(a, b) > 1 else 1.0


def adjusted(p: Sequence[float]) -> list[float]:
    """Return the p-values of tests made at once, adjusted by Benjamini and Hochberg."""
    from scipy import stats

    return list(map(float, stats.false_discovery_control(p)))


def confidence_at_once(adjusted_p: Sequence[float]) -> float:
    """Return the confidence level that every interval needs by Benjamini and Yekutieli, from the adjusted
    p-values of all tests: 1 - 5 % * (number of shown differences, at least 1) / (number of tests)."""
    shown = sum(p < 1 - CONFIDENCE for p in adjusted_p)
    return 1 - (1 - CONFIDENCE) * max(1, shown) / max(1, len(adjusted_p))

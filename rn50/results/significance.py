"""Test whether so few runs show a difference: p-values and intervals, corrected for several tests made at
once.

The interval of a difference of means is Welch's (B. L. Welch, Biometrika 34, 1947), which does not assume
equal variances. The p-value is that of the exact permutation test (R. A. Fisher, The Design of Experiments,
1935), which assumes no distribution at all. Five runs against five can be divided in 252 ways, so p is never
below 2/252 = 0.008.

Among several tests made at once, some succeed by chance. The p-values are therefore adjusted by Y. Benjamini
and Y. Hochberg (J. R. Stat. Soc. B 57, 1995): at most 5 % of the differences called shown are expected to be
none. The intervals are widened to match: at most 5 % of the intervals of shown differences are expected to
miss the true one (Y. Benjamini and D. Yekutieli, J. Am. Stat. Assoc. 100, 2005). Bonferroni's and Holm's
corrections, which guard against a single mistake, are not used: with seven tests or more, five runs against
five could not show any difference under them, however large.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any

Interval = tuple[float | None, float | None]
CONFIDENCE = 0.95


def welch_interval(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the interval of mean(b) - mean(a), with the degrees of freedom of Welch and Satterthwaite;
    (None, None) where a side has fewer than two runs or neither has any spread."""
    from scipy import stats  # takes a second to load

    if min(len(a), len(b)) < 2 or len({*a}) == len({*b}) == 1:
        return None, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # SciPy doubts a side without spread
        low, high = stats.ttest_ind(b, a, equal_var=False).confidence_interval(confidence)
    return float(low), float(high)


def permutation_p(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the two-sided p-value of the difference of means over all divisions of the runs, or over 9,999
    random ones where there are more; 1 where a side has one run, which shows nothing."""
    import numpy as np
    from scipy import stats

    if min(len(a), len(b)) < 2:
        return 1.0

    def mean_difference(x: Any, y: Any, axis: int) -> Any:
        return np.mean(x, axis=axis) - np.mean(y, axis=axis)

    return float(stats.permutation_test((a, b), mean_difference, vectorized=True, random_state=0).pvalue)


def lowest_p(a: int, b: int) -> float:
    """Return the lowest value that ``permutation_p`` can have for so many runs."""
    return 2 / math.comb(a + b, a) if min(a, b) > 1 else 1.0


def adjusted(p: Sequence[float]) -> list[float]:
    """Return the p-values of tests made at once, adjusted by Benjamini and Hochberg."""
    from scipy import stats

    return list(map(float, stats.false_discovery_control(p)))


def confidence_at_once(adjusted_p: Sequence[float]) -> float:
    """Return the confidence that every interval needs, by Benjamini and Yekutieli: 1 - 5 % x differences
    shown / tests. Where none is shown, one is counted."""
    shown = sum(p < 1 - CONFIDENCE for p in adjusted_p)
    return 1 - (1 - CONFIDENCE) * max(1, shown) / max(1, len(adjusted_p))

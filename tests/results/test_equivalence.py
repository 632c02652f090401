"""Equivalence within a margin: never called so at the margin's edge more than once in 20 times."""

import numpy as np
import pytest

from rn50.results import equivalence
from rn50.results.equivalence import DIFFERENT, EQUIVALENT, UNDECIDED


def runs(random, mean, spread, count=5):
    return list(mean * np.exp(random.normal(0, spread, count)))


@pytest.mark.parametrize("edge", [1.03, 1 / 1.03])
@pytest.mark.parametrize("spread", [0.003, 0.01])
def test_at_the_edge_of_the_margin_it_is_seldom_called_equivalent_or_different(edge, spread):
    random = np.random.default_rng(31)
    verdicts = [
        equivalence.judge(runs(random, 27, spread), runs(random, 27 * edge, spread), 0.03).verdict
        for _ in range(1000)]
    for verdict in (EQUIVALENT, DIFFERENT):  # 5 % of 1,000, and three standard deviations of that
        assert verdicts.count(verdict) <= 50 + 21
    assert verdicts.count(UNDECIDED) > 850


@pytest.mark.parametrize("ratio, verdict", [(1.0, EQUIVALENT), (1.06, DIFFERENT), (0.94, DIFFERENT)])
def test_what_is_well_inside_or_outside_is_found(ratio, verdict):
    random = np.random.default_rng(0)
    found = [
        equivalence.judge(runs(random, 27, 0.008), runs(random, 27 * ratio, 0.008), 0.03).verdict
        for _ in range(200)]
    assert found.count(verdict) > 180


def test_the_figures_are_those_of_welch():
    from scipy import stats

    random = np.random.default_rng(5)
    one, other = runs(random, 30, 0.02), runs(random, 31, 0.05, 7)
    judged = equivalence.judge(one, other, 0.03)
    test = stats.ttest_ind(np.log(other), np.log(one), equal_var=False)
    assert np.log([judged.low, judged.high]) == pytest.approx(test.confidence_interval(0.9), rel=1e-6)
    assert judged.claimed == pytest.approx(stats.gmean(one)) and judged.runs == (5, 7)
    assert judged.ratio == pytest.approx(stats.gmean(other) / stats.gmean(one))


@pytest.mark.parametrize(
    "one, other, verdict",
    [([7] * 5, [7] * 5, EQUIVALENT), ([7] * 5, [11] * 5, DIFFERENT),
     ([7] * 5, [11, 11, 7, 11, 11], DIFFERENT), ([7] * 5, [7, 7, 7, 7, 11], UNDECIDED),
     ([100, 100], [103, 103], EQUIVALENT)])
def test_whole_epochs(one, other, verdict):
    assert equivalence.judge(one, other, 0.03).verdict == verdict


def test_so_many_more_runs_would_decide_in_most_cases():
    """Of two equal sides, after as many runs as it asks for."""
    random = np.random.default_rng(1)
    claimed = runs(random, 27, 0.01, 40)
    asked = equivalence.judge(claimed, [26.2, 27.9, 27.0], 0.03)
    assert asked.verdict == UNDECIDED and 3 < asked.more_runs < 60
    decided = [
        equivalence.judge(claimed, runs(random, 27, 0.0315, 3 + asked.more_runs), 0.03).verdict
        for _ in range(200)]
    assert decided.count(EQUIVALENT) > 150


def test_no_number_of_runs_makes_up_for_a_claim_that_spreads():
    assert equivalence.judge([20, 27, 36], [27, 27.1, 26.9], 0.03).more_runs is None


def test_the_interval_of_further_runs_holds_their_mean():
    random = np.random.default_rng(3)
    held = 0
    for _ in range(500):
        low, high = equivalence.prediction_interval(runs(random, 27, 0.02), 5)
        held += low <= np.exp(np.mean(np.log(runs(random, 27, 0.02)))) <= high
    assert 0.92 <= held / 500 <= 0.98

"""Comparison pair by pair: the figures against counted ones, and what few pairs can say."""

import itertools
import statistics

import pytest

from rn50.results import compare, pairs, score, significance
from tests.results import scored


def in_pairs(folder, first, second, **options):
    for side, seconds in (("A", first), ("B", second)):
        for number, each in enumerate(seconds):
            given = {name: values[side][number] for name, values in options.items()}
            scored.write_run(folder / side / f"result_{number}.txt", each, **given)
    systems = score.score([folder / "A", folder / "B"])
    [comparison] = compare.compare(systems)
    return {row.quantity: row for row in pairs.paired(comparison, *systems)}


@pytest.mark.parametrize("count", [2, 5, 6, 8])
def test_p_is_the_share_of_swaps_that_differ_as_much(count):
    a = [10_000.0, 9_000, 11_000, 12_000, 10_500, 9_700, 10_100, 11_300][:count]
    b = [value - 300 - 7 * number for number, value in enumerate(a)]
    b[-1] = a[-1] + 1  # one of them differs the other way
    differences = [y - x for x, y in zip(a, b, strict=True)]
    swaps = [
        abs(sum(sign * value for sign, value in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=count)]
    expected = sum(each >= abs(sum(differences)) - 1e-9 for each in swaps) / len(swaps)
    assert significance.permutation_p(a, b, paired=True) == pytest.approx(expected)


def test_so_many_pairs_can_show_a_difference():
    least = significance.LEAST_PAIRS
    p = {
        count: significance.permutation_p(range(count), range(20, 20 + count), paired=True)
        for count in (least - 1, least)}
    assert p[least] < 0.05 <= p[least - 1]


def test_drift_that_hides_a_difference_leaves_it_in_the_pairs(tmp_path):
    first = [10_000, 11_000, 12_000, 13_000, 14_000, 15_000]
    found = in_pairs(tmp_path, first, [each - 200 for each in first])["minutes"]
    assert found.p == 2 / 2**6 < 0.05 < significance.permutation_p(first, [each - 200 for each in first])
    assert found.ratio.median == statistics.median((each - 200) / each for each in first)
    assert found.ratio.shown and found.ratio.rounds == 6
    assert found.first.noise == pytest.approx(statistics.stdev(first) / statistics.mean(first))
    assert found.sentence == (
        "minutes to target in 6 pairs: 166.7 to 250 (noise 15.0%) -> 163.3 to 246.7 (noise 15.2%); "
        "ratio 0.984, 0.980 to 0.987; p = 0.031")


def test_a_run_that_missed_the_target_makes_no_pair_of_minutes(tmp_path):
    found = in_pairs(
        tmp_path, [10_000, 9_000, 11_000, 12_000, 10_500], [9_900, 8_800, 10_700, 11_600, 10_000],
        status={"A": ["success"] * 5, "B": ["success", "aborted", *["success"] * 3]},
        accuracy={"A": [0.76] * 5, "B": [0.76, 0.7, *[0.76] * 3]})
    assert found["minutes"].ratio.rounds == 4
    assert found["minutes"].first.lowest == pytest.approx(10_000 / 60)  # 9,000 is that of the pair left out
    said = list(pairs.sentences(list(found.values())))
    assert said[-1].startswith("p of 5 pairs is never below 0.0625, whatever the difference; from 6 pairs on")


def test_a_single_pair_tells_nothing_more_than_its_runs(tmp_path):
    assert in_pairs(tmp_path, [10_000], [9_000]) == {}
    assert list(pairs.sentences([])) == []

"""Keys of our own logs beside MLPerf's: the order of each epoch's samples, and top-5."""

import pytest

from rn50.results import score
from tests.results.mutations import ALL, change, rewrite

pytestmark = pytest.mark.xdist_group("campaign")


def ordered(orders):
    """A mutation: the epochs of a log have had their samples in ``orders``."""

    def mutate(text):
        lines, left = text.splitlines(keepends=True), list(orders)
        for i, line in enumerate(lines):
            if '"key": "tracked_stats"' in line and left:
                lines[i] = line.replace('"step":', f'"sample_order": "{left.pop(0):016x}", "step":')
        return "".join(lines)

    return mutate


def test_epochs_whose_samples_had_one_order_are_found(results, judged):
    for number, name in enumerate(ALL):
        rewrite(results, ordered(range(100 * number, 100 * number + 35)), [name])
    assert judged(results) == ([], [], [])
    rewrite(results, lambda text: text.replace(f"{205:016x}", f"{203:016x}"), ["result_2.txt"])
    [first, second] = [
        place for place, text in enumerate((results / "result_2.txt").read_text().splitlines(), 1)
        if f"{203:016x}" in text]
    for said in judged(results):
        assert len(said) == 1 and f"the order of the samples is that of result_2.txt:{first} too" in said[0]
    [error] = score.score([results])[0].errors
    assert error.line == second


def test_seeds_that_shuffle_alike_are_found(results, judged):
    for name in ALL:
        rewrite(results, ordered(range(35)), [name])
    for said in judged(results):
        assert len(said) == 4
        assert all("the order of the samples is that of result_0.txt:" in message for message in said)


def with_top_5(value):
    return change("eval_accuracy", -1, metadata={"top_5": value})


@pytest.mark.parametrize("top_5", [0.1, 1.5, "0.93", [0.93], True, float("nan")])
def test_a_top_5_that_is_none_is_found(results, refused, top_5):
    refused(results, lambda folder: rewrite(folder, with_top_5(top_5)), "is not a fraction from top-1 to 1")


def test_a_top_5_above_top_1_is_one(results, judged):
    rewrite(results, with_top_5(0.93))
    assert judged(results) == ([], [], [])

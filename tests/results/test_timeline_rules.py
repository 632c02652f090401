"""Timelines that no run has, and copies of a log: score, check and package refuse them."""

import re

import pytest

from rn50.results import run
from rn50.results.validity import result_rules
from tests.results.mutations import ALL, both, delete, move, rewrite, times, value
from tests.results.mutations import change as change_record
from tests.support import imagenet_run

pytestmark = pytest.mark.xdist_group("campaign")
EVALUATION = ("start", "accuracy", "stop")
HALF = 3 * imagenet_run.EPOCH_MS + 500
"""Milliseconds in which three epochs are over."""


def at_once(text):
    stop = re.search(
        r'"time_ms": (\d+), "event_type": "INTERVAL_END", "key": "epoch_stop"[^\n]*"epoch_num": 20', text)
    return change_record("epoch_start", 19, time_ms=int(stop[1]) - 1)(text)


def one_log_for_all(*mutations):
    """Return a function that puts result_0.txt in the place of the others, each with a seed of its own and
    mutated by its number."""

    def spoil(folder):
        text = (folder / "result_0.txt").read_text()
        for number, name in enumerate(ALL[1:], 1):
            mutated = value("seed", 17 * number**2 + 5)(text)
            for mutation in mutations:
                mutated = mutation(number)(mutated)
            (folder / name).write_text(mutated)

    return spoil


def other_accuracies(number):
    return both(*[value("eval_accuracy", 0.3 + 0.05 * i + 0.01 * number, i) for i in range(8)])


def one_epoch_late(number):
    """The log of a run whose tenth epoch took a second more for each ``number``."""
    return times(lambda t, first: t + 1000 * number * (t > first + 10 * imagenet_run.EPOCH_MS))


COPIED = "of its 9 accuracies are those of result_0.txt"
SAME_TIMES = "events are, but for a factor and 5 ms, those of result_0.txt"
FAULTS = {
    "the last four epochs never trained": (
        lambda f: rewrite(f, both(*[delete(key, -1) for key in ("epoch_start", "epoch_stop")] * 4)),
        "an accuracy after epoch 35, and 31 epochs are trained before it"),
    "an accuracy before its epochs": (
        lambda f: rewrite(f, both(*[move(f"eval_{key}", "epoch_start", 4, 16) for key in EVALUATION])),
        "an accuracy after epoch 19, and 16 epochs are trained before it"),
    "an accuracy in the evaluation of another epoch": (
        lambda f: rewrite(
            f,
            both(*[change_record(f"eval_{key}", 3, metadata={"epoch_num": 14}) for key in ("start", "stop")]),
        ),
        "the accuracy of epoch 15 is in the evaluation of 14"),
    "an epoch of a millisecond": (
        lambda f: rewrite(f, at_once),
        "epoch 20: 1,281,167,000 images/s, more than 10 times those of the fastest 8 published accelerators"),
    "eight times as fast from the fourth epoch on": (
        lambda f: rewrite(f, times(lambda t, first: min(t, first + HALF) + max(0, t - first - HALF) // 8)),
        "images/s, and others 28,"),
    "one log five times": (one_log_for_all(), f"9 {COPIED}"),
    "its accuracies at other times": (one_log_for_all(one_epoch_late), f"9 {COPIED}"),
    "its times with other accuracies": (one_log_for_all(other_accuracies), SAME_TIMES),
    "its times moved by up to a millisecond": (
        one_log_for_all(other_accuracies, lambda number: times(lambda t, first: t + t * number % 3 - 1)),
        SAME_TIMES),
    "its times made longer by a thousandth": (
        one_log_for_all(
            other_accuracies, lambda number: times(lambda t, first: t + number * (t - first) // 1000)),
        SAME_TIMES)}


@pytest.mark.parametrize("name", FAULTS)
def test_a_timeline_that_cannot_be_is_refused_by_all(results, refused, name):
    refused(results, *FAULTS[name])


def test_runs_that_are_alike_as_two_runs_can_be_are_no_copies(results):
    one_log_for_all(one_epoch_late, other_accuracies)(results)
    for name in ALL:
        (results / name).with_suffix(".json").unlink()
    assert result_rules.judge([run.read_run(results / name) for name in ALL], ["1.0.0"]).errors == []

"""The schedule of learning rates and evaluations, against values worked out by hand from the formulas of the
rules."""

import pytest

from rn50.benchmark import schedule


@pytest.mark.parametrize(
    "samples, ranks, batch_size, expected",
    [
        (1281167, 8, 408, 393),  # 160145 / 408 = 392.5
        (1281167, 1, 408, 3141),  # 3140.1
        (10000, 1, 64, 157),
        (128, 2, 64, 1),
    ],
)
def test_steps_per_epoch(samples, ranks, batch_size, expected):
    assert schedule.steps_per_epoch(samples, ranks, batch_size) == expected


@pytest.mark.parametrize(
    "step, expected",
    [
        (1, 1.05),  # 10.5 * 1 / 10
        (10, 10.5),  # the end of the warm-up
        (55, 1e-4 + (10.5 - 1e-4) * 0.25),  # half way down: (1 - 45 / 90) ** 2
        (100, 1e-4),
        (150, 1e-4),  # past the schedule it stays
    ],
)
def test_learning_rate(step, expected):
    assert schedule.learning_rate(step, 10.5, warmup_steps=10, total_steps=100) == pytest.approx(
        expected, rel=1e-12)


def test_without_warm_up_the_decay_begins_at_once():
    assert schedule.learning_rate(1, 1.0, warmup_steps=0, total_steps=2) == pytest.approx(
        1e-4 + (1 - 1e-4) * 0.25)


def test_a_decay_as_short_as_its_warm_up_ends_at_once():
    assert schedule.learning_rate(6, 1.0, warmup_steps=5, total_steps=5) == pytest.approx(1e-4)


def test_evaluation_epochs_of_the_published_settings():
    assert schedule.evaluation_epochs(37, 2, 4) == [3, 7, 11, 15, 19, 23, 27, 31, 35]

"""The schedule of learning rates and evaluations, against values worked out by hand from the formulas of the
rules."""

import pytest

from rn50.benchmark import schedule
from rn50.benchmark.recipe import FIXED, Recipe


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
    "step, warmup, decay, expected",
    [
        (1, 1, 10, 1.05),  # 10.5 * 1 / 10
        (10, 1, 10, 10.5),  # the end of the warm-up
        (55, 1, 10, 1e-4 + (10.5 - 1e-4) * 0.25),  # half way down: (1 - 45 / 90) ** 2
        (100, 1, 10, 1e-4),
        (150, 1, 10, 1e-4),  # past the schedule it stays
        (1, 0, 0.2, 1e-4 + (10.5 - 1e-4) * 0.25),  # without warm-up the decay begins at once
        (6, 0.5, 0.5, 1e-4),  # a decay as short as its warm-up ends at once
    ],
)
def test_learning_rate(step, warmup, decay, expected):
    recipe = Recipe(learning_rate=10.5, warmup_epochs=warmup, decay_epochs=decay, **FIXED)
    assert schedule.learning_rate(step, recipe, 10) == pytest.approx(expected, rel=1e-12)


def test_end_and_power_are_those_of_the_recipe():
    recipe = Recipe(
        learning_rate=10.5, warmup_epochs=1, decay_epochs=10, end_learning_rate=0.5, decay_power=3)
    assert [schedule.learning_rate(step, recipe, 10) for step in (55, 100)] == [0.5 + 10.0 * 0.125, 0.5]


def test_evaluation_epochs_of_the_published_settings():
    assert schedule.evaluation_epochs(37, 2, 4) == [3, 7, 11, 15, 19, 23, 27, 31, 35]

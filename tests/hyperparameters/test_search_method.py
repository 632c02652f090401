"""The method of ``rn50 search`` on response surfaces that are made up."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rn50.benchmark import rules
from rn50.hyperparameters.search import method
from rn50.hyperparameters.search.method import MISSED, Evidence, Point

START = Point(2.0, 64, 1, 5e-5, 12, None)


def walk(surface, start=START, repeats=1, possible=lambda point: True, unit=0, stop_early=False):
    """A whole search, one run at a time; returns the runs in their order and the plan at its end. With
    ``stop_early`` a run that cannot be better than the best is stopped, as the search does."""
    evidence, runs = {}, []
    while True:
        plan = method.plan(start, evidence, repeats, possible, unit)
        if not plan.undecided:
            return runs, plan
        assert len(runs) < 1000
        point = min(plan.undecided, key=lambda each: len(evidence.get(each, Evidence()).values))
        known = evidence.get(point, Evidence())
        value = surface(point, len(known.values))
        runs.append(point)
        if stop_early and plan.value is not None and value >= method.limit(known, plan.value, repeats):
            evidence[point] = known._replace(ruled_out=True)
        else:
            evidence[point] = known._replace(values=(*known.values, value))


def bowl(learning_rate, batch_size=64, warmup=1.0, weight_decay=5e-5, epochs=12):
    """Epochs to the target with one minimum; the learning rate that is best grows with the batch size."""

    def surface(point, run):
        del run
        return (
            4 + math.log(point.learning_rate / point.batch_size * 64 / learning_rate) ** 2
            + math.log2(point.batch_size / batch_size) ** 2 / 2 + (point.warmup_epochs - warmup) ** 2 / 3
            + math.log2(point.weight_decay / weight_decay) ** 2 / 3 + (point.num_epochs - epochs) ** 2 / 9)

    return surface


@given(
    st.floats(0.001, 1000), st.sampled_from([16, 32, 64, 128]), st.integers(0, 3),
    st.sampled_from([2.5e-5, 5e-5, 1e-4, 2e-4]), st.integers(8, 16), st.booleans())
@settings(max_examples=200, deadline=None)
def test_it_finds_the_neighbourhood_of_the_one_minimum(
    learning_rate, batch_size, warmup, weight_decay, epochs, stop_early
):
    runs, plan = walk(bowl(learning_rate, batch_size, warmup, weight_decay, epochs), stop_early=stop_early)
    assert plan.best.batch_size == batch_size and plan.best.warmup_epochs == warmup
    assert plan.best.weight_decay == pytest.approx(weight_decay)
    assert abs(plan.best.num_epochs - epochs) <= 1
    wanted = learning_rate * batch_size / 64
    assert abs(math.log(plan.best.learning_rate / wanted)) <= math.log(1.1)
    assert len(set(runs)) == len(runs)


@given(st.integers(0, 2**32), st.integers(1, 3), st.booleans())
@settings(max_examples=100, deadline=None)
def test_on_any_surface_it_ends_repeats_nothing_and_keeps_the_best_that_it_saw(seed, repeats, stop_early):
    def surface(point, run):
        draw = random.Random(f"{seed} {point} {run}").random()
        return 3 + 5 * draw if draw < 0.8 else MISSED + draw

    runs, plan = walk(surface, repeats=repeats, stop_early=stop_early)
    assert max(runs.count(point) for point in runs) <= repeats
    assert all(
        point.learning_rate > 0 and point.warmup_epochs >= 0 and point.num_epochs >= 1 for point in runs)
    first = [surface(START, run) for run in range(runs.count(START))]
    assert plan.value <= sum(first) / len(first)
    values = [surface(plan.best, run) for run in range(runs.count(plan.best))]
    assert plan.value == pytest.approx(sum(values) / len(values))


@given(st.integers(0, 2**32), st.integers(1, 3))
@settings(max_examples=50, deadline=None)
def test_what_is_left_never_grows_and_is_enough(seed, repeats):
    def surface(point, run):
        return 3 + 5 * random.Random(f"{seed} {point} {run}").random()

    evidence, said, done = {}, [], 0
    while True:
        plan = method.plan(START, evidence, repeats)
        said.append(plan.most_runs + done)
        if not plan.undecided:
            break
        known = evidence.get(plan.undecided[0], Evidence())
        evidence[plan.undecided[0]] = known._replace(
            values=(*known.values, surface(plan.undecided[0], len(known.values))))
        done += 1
    assert min(said) >= done


def test_the_same_evidence_gives_the_same_plan_in_whatever_order_it_came():
    surface, evidence = bowl(8.0), {}
    for _ in range(12):
        for point in method.plan(START, evidence, 1).undecided:
            evidence[point] = Evidence((surface(point, 0),))
    assert method.plan(START, dict(reversed(list(evidence.items()))), 1) == method.plan(START, evidence, 1)


def test_both_ways_are_wanted_at_once_so_that_two_workers_have_work():
    plan = method.plan(START, {START: Evidence((6.0,))}, 1)
    assert [point.learning_rate for point in plan.undecided] == [20.0, 0.2]


def test_of_two_ways_the_one_that_is_told_first_is_the_one_to_beat():
    up, down = START._replace(learning_rate=20.0), START._replace(learning_rate=0.2)
    known = {START: Evidence((6.0, 6.0)), up: Evidence((4.0, 5.0)), down: Evidence((4.4,))}
    plan = method.plan(START, known, 2)
    assert (plan.best, plan.value, plan.undecided) == (up, 4.5, (down,))
    plan = method.plan(START, {**known, down: Evidence((5.0,))}, 2)  # one run tells that it is worse
    assert plan.best == up and plan.undecided == (START._replace(learning_rate=200.0),)
    plan = method.plan(START, {**known, down: Evidence((4.4, 4.4))}, 2)
    assert plan.best == down and plan.undecided == (START._replace(learning_rate=0.02),)


def test_the_direction_is_told_even_where_nothing_reaches_the_target():
    def surface(point, run):
        del run
        away = abs(math.log10(point.learning_rate / 2000))
        return 5.0 if away < 0.5 else MISSED + 1 - 0.7 / (1 + away)

    runs, plan = walk(surface)
    assert [point.learning_rate for point in runs[:5]] == [2.0, 20.0, 0.2, 200.0, 2000.0]
    assert plan.value == 5.0


def test_a_single_lucky_run_makes_no_best_point():
    def surface(point, run):
        return 6.0 if point == START else (4.0, 9.0)[run]

    runs, plan = walk(surface, repeats=2)
    assert plan.best == START
    assert runs.count(START._replace(learning_rate=20.0)) == 2


@pytest.mark.parametrize(
    "known, best_value, repeats, value",
    [
        (Evidence(), 5.0, 2, None),
        (Evidence((4.0,)), 5.0, 2, None),  # better so far
        (Evidence((5.4,)), 5.0, 2, None),  # worse, but by no more than chance may make of one run
        (Evidence((5.6,)), 5.0, 2, 5.6),
        (Evidence((5.4, 5.0)), 5.0, 3, None),  # 4 % worse
        (Evidence((5.25, 5.5)), 5.0, 3, 5.375),  # 7.5 % worse
        (Evidence((5.2,)), 5.0, 1, 5.2),  # no more runs to come
        (Evidence((4.0, 5.5)), 5.0, 2, 4.75),
        (
            Evidence((MISSED + 0.3,)),
            math.inf,
            3,
            MISSED + 0.3,
        ),  # it takes no second run to see that it misses
        (Evidence((4.0,), ruled_out=True), 5.0, 2, math.inf),
    ],
)
def test_what_decides_a_point(known, best_value, repeats, value):
    assert method.decided(known, best_value, repeats) == value


@pytest.mark.parametrize(
    "known, best_value, repeats, limit",
    [
        (Evidence(), 5.0, 1, 5.0),
        (Evidence(), 5.0, 3, 5.5),
        (Evidence((4.0,)), 5.0, 2, 6.0),  # a mean of 5 is no better
        (Evidence((4.0,)), 5.0, 3, 6.7071068),
        (Evidence((4.0, 4.5)), 5.0, 3, 6.5),
        (Evidence(), MISSED + 0.2, 3, math.inf),
    ],
)
def test_from_which_epoch_on_a_run_is_in_vain(known, best_value, repeats, limit):
    assert method.limit(known, best_value, repeats) == pytest.approx(limit)
    if limit < math.inf:
        with_it = known._replace(values=(*known.values, limit + 1e-6))
        assert method.decided(with_it, best_value, repeats) >= best_value
        with_less = known._replace(values=(*known.values, limit - 1e-6))
        verdict = method.decided(with_less, best_value, repeats)
        assert verdict is None or verdict < best_value


def test_learning_rates_of_sgd_are_multiples_of_the_unit_of_the_rules():
    runs, _ = walk(bowl(1e-9), START._replace(learning_rate=0.123), unit=rules.SGD_LEARNING_RATE_UNIT)
    assert len(runs) > 10
    for point in runs:
        steps = point.learning_rate / rules.SGD_LEARNING_RATE_UNIT
        assert steps == pytest.approx(round(steps), abs=1e-9) and steps > 0.5


def test_what_is_not_possible_is_not_tried():
    runs, plan = walk(
        bowl(200.0, 256), possible=lambda point: point.batch_size <= 64 and point.learning_rate <= 20)
    assert len(runs) > 5 and all(point.batch_size <= 64 and point.learning_rate <= 20 for point in runs)
    assert plan.best.batch_size == 64


def test_weight_decay_stays_on_the_grid_of_the_rules():
    runs, _ = walk(bowl(2.0, weight_decay=2e-4))
    assert len({point.weight_decay for point in runs}) > 3
    for point in runs:
        power = math.log2(point.weight_decay / rules.WEIGHT_DECAY_BASE)
        assert power == pytest.approx(round(power), abs=1e-9)


def test_a_decay_of_its_own_length_changes_with_the_schedule():
    schedule = next(stage for stage in method.stages() if stage.name == "schedule")
    longer = schedule.step(START._replace(num_epochs=14, decay_epochs=7.0), 1)
    assert (longer.num_epochs, longer.decay_epochs) == (18, 9.0)


def test_an_odd_batch_cannot_be_halved():
    batch = next(stage for stage in method.stages() if stage.name == "batch size")
    assert batch.step(START._replace(batch_size=51), -1) is None
    assert batch.step(START._replace(batch_size=51), 1) == START._replace(batch_size=102, learning_rate=4.0)

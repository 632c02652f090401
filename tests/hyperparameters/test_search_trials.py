"""A run of a search: what it is worth, when it is stopped, and what the confirmation makes of logs."""

import math
import re

import pytest

from rn50.hyperparameters.search import confirmation, journal, objective
from rn50.hyperparameters.search.confirmation import BASELINE, WINNER
from rn50.hyperparameters.search.journal import Journal, Trial
from rn50.hyperparameters.search.method import MISSED, Evidence, Point
from rn50.results.parse import Evaluation, read_log
from tests.hyperparameters.searches import trials
from tests.support import imagenet_run

START = Point(2.0, 64, 1, 5e-5, 12, None)
OTHER = START._replace(learning_rate=20.0)


def log(file, *accuracies, **changes):
    """A log of ours with an evaluation after every epoch."""
    file.parent.mkdir(parents=True, exist_ok=True)
    return imagenet_run.write(file, accuracies=accuracies, EVAL_OFFSET="0", EVAL_PERIOD="1", **changes)


def curve(*accuracies):
    return [Evaluation(epoch, accuracy) for epoch, accuracy in enumerate(accuracies, 1)]


@pytest.mark.parametrize(
    "accuracies, value",
    [
        ((0.4, 0.6, 0.659, 0.859), 3.5),
        ((0.4, 0.759), 2.0),
        ((0.4, 0.7590001, 0.5), 2.0),  # where it crosses first
        ((0.759 * 2,), 0.5),
        ((0.4, 0.7, 0.6), MISSED + 0.3),  # its best counts
        ((), MISSED + 1),
    ],
)
def test_value_of_a_run(accuracies, value):
    assert objective.value(curve(*accuracies)) == pytest.approx(value, abs=1e-4)


def test_value_of_a_log(tmp_path):
    reached = read_log(log(tmp_path / "result_0.txt", 0.4, 0.659, 0.859)).evaluations
    assert objective.value(reached) == pytest.approx(2.5)
    missed = read_log(log(tmp_path / "result_1.txt", 0.4, 0.7589)).evaluations
    assert objective.value(missed) == pytest.approx(MISSED + 1 - 0.7589)


def test_value_of_a_log_that_still_grows(tmp_path):
    whole = log(tmp_path / "result_0.txt", 0.4, 0.659, 0.859).read_text()
    growing = tmp_path / "growing"
    seen = set()
    for end in range(whole.index("run_start"), len(whole), 97):
        growing.write_text(whole[:end])
        seen.add(tuple(each.accuracy for each in read_log(growing).evaluations))
    assert seen == {(), (0.4,), (0.4, 0.659), (0.4, 0.659, 0.859)}


BEST = (curve(0.2, 0.4, 0.5, 0.6, 0.7, 0.8), curve(0.25, 0.35, 0.55, 0.65, 0.76))


@pytest.mark.parametrize(
    "accuracies, limit, stopped",
    [
        ((0.3, 0.5, 0.6, 0.7, 0.75), 5.5, False),
        ((0.3, 0.5, 0.6, 0.7, 0.75), 5.0, True),  # it cannot cross before epoch 5 any more
        ((0.3, 0.5, 0.6, 0.7, 0.77), 5.0, False),  # but it has
        ((0.1, 0.1, 0.1), 9.0, False),  # too early to say
        ((0.1, 0.2, 0.3, 0.34), 9.0, True),  # after 4 not where both best ones were after 2
        ((0.1, 0.2, 0.3, 0.36), 9.0, False),  # one of them was not farther either
        ((0.1, 0.36, 0.2, 0.2), 9.0, False),  # its best counts
        ((), 0.0, False),
    ],
)
def test_when_a_run_is_stopped(accuracies, limit, stopped):
    assert bool(objective.why_stop(curve(*accuracies), limit, BEST)) is stopped


def test_patience_grows_with_the_time_that_the_best_took():
    best = [curve(*[0.02 * epoch for epoch in range(1, 39)])]
    assert objective.why_stop(curve(*[0.01] * 18), 38.0, best) is None
    assert objective.why_stop(curve(*[0.01] * 19), 38.0, best)


def test_nothing_is_hopeless_while_nothing_reached_the_target():
    assert objective.why_stop(curve(*[0.01] * 30), math.inf, []) is None


# The journal


def test_a_journal_tells_its_trials_again(tmp_path):
    decay = START._replace(decay_epochs=33.5)
    first = Journal(tmp_path)
    first.write(search={"config": {"LR": "2.0"}})
    for seed, point in enumerate((START, OTHER, decay, START)):
        assert first.begin(point, "a stage", seed) == seed
    first.finish(0, 5.25)
    first.note(1, "in vain")
    first.settle(1, is_stopped=True)
    first.settle(3, is_stopped=False)
    told = trials(tmp_path)
    assert told == first.trials and 0 < told[0].seconds < 60
    assert [(t.number, t.point, t.seed, t.state, t.value, t.note) for t in told] == [
        (0, START, 0, "finished", 5.25, ""), (1, OTHER, 1, "stopped", None, "in vain"),
        (2, decay, 2, "running", None, ""), (3, START, 3, "interrupted", None, "")]
    assert journal.evidence(told) == {START: Evidence((5.25,)), OTHER: Evidence(ruled_out=True)}


def test_a_line_that_a_killed_search_did_not_finish_is_replaced(tmp_path):
    file = tmp_path / "journal.log"
    first = Journal(tmp_path)
    first.write(search={"config": {}})
    first.begin(START, "a stage", 5)
    first.finish(0, 5.0)
    whole = file.read_bytes()
    for end in range(len(whole)):
        file.write_bytes(whole[:end])
        begun = whole[:end].count(b"\n")
        again = Journal(tmp_path)
        assert [trial.state for trial in again.trials] == [[], [], ["running"], ["finished"]][begun]
        if begun == 2:
            again.finish(0, 5.0)  # shorter or longer than what was not finished
            assert trials(tmp_path) == again.trials


# The confirmation


@pytest.mark.parametrize("workers, seconds", [(1, 2900), (2, 1610), (3, 1160), (4, 900), (10, 450)])
def test_how_long_the_confirmation_takes(workers, seconds):
    assert confirmation.duration(450, 130, 5, workers) == seconds


def test_seeds_are_fresh():
    for _ in range(200):
        [seed] = confirmation.fresh_seeds(1, ())
        assert seed in range(1, 2**31)
    pair = confirmation.pair(START, OTHER, 50, range(1000))
    seeds = pair.seeds[BASELINE] + pair.seeds[WINNER]
    assert len(set(seeds)) == 100 and not set(seeds) & set(range(1000))


def test_a_used_seed_is_not_drawn_again(monkeypatch):
    monkeypatch.setattr(confirmation, "MOST_SEED", 9)
    for _ in range(100):
        assert sorted(confirmation.fresh_seeds(3, [1, 2, 4, 6, 7, 8, 7])) == [3, 5, 9]


def trial(number, point, value):
    return Trial(number, point, "", number, "finished" if value else "stopped", value, "", 1.0)


def test_the_baseline_is_the_first_that_reached_the_target():
    third = START._replace(learning_rate=200.0)
    missed, reached = MISSED + 0.4, 7.0
    assert confirmation.baseline_of(START, [trial(0, START, missed), trial(1, OTHER, None)]) is None
    assert (
        confirmation.baseline_of(
            START, [trial(0, START, missed), trial(1, OTHER, reached), trial(2, third, 3.0)])
        == OTHER)
    assert (
        confirmation.baseline_of(
            START, [trial(0, OTHER, 3.0), trial(1, START, missed), trial(2, START, reached)])
        == START)


def rising(epochs):
    """Reaches the target after so many epochs; None misses it."""
    return [0.5] * ((epochs or 8) - 1) + [0.8 if epochs else 0.6]


@pytest.fixture
def confirmed(tmp_path):
    """``confirmed((7, 7), (5, None))``: what is made of runs of the baseline and the winner that took so many
    epochs."""

    def of(baseline, winner):
        pair = confirmation.pair(START, OTHER, len(baseline), [])
        assert confirmation.runs_left(tmp_path, pair) == 2 * len(baseline)
        for who, runs in ((BASELINE, baseline), (WINNER, winner)):
            for number, epochs in enumerate(runs):
                file = tmp_path / confirmation.FOLDER / who / f"result_{number}.txt"
                log(file, *rising(epochs), seed=pair.seeds[who][number])
        assert confirmation.runs_left(tmp_path, pair) == 0
        return confirmation.verdict(tmp_path)

    return of


def test_a_difference_that_stands(confirmed):
    said = confirmed((7, 7, 8, 7, 7), (5, 6, 5, 5, 6))
    assert said.stands and said.sentence.startswith(
        "The difference stands: 5 runs against 5 show that the winner needs fewer")
    assert said.difference.difference == pytest.approx(-1.8)


@pytest.mark.parametrize(
    "baseline, winner, says",
    [((7, 7, 8, 7, 6), (7, 6, 7, 8, 6), "does not stand: 5 runs against 5 do not show a difference"),
     ((5, 6, 5, 5, 6), (7, 7, 8, 7, 7),
      "does not stand: 5 runs against 5 show that the winner needs more epochs"),
     ((7, 7), (5, 5), "does not stand: 2 runs against 2 cannot show a difference"),
     ((7, 7, 8, 7, 7), (5, 6, 5, 5, None),
      "1 of 5 runs of the winner missed .*A winner that misses more often"),
     ((7, 7, 8, 7, 7), (None,) * 5, "does not stand: no run of the winner reached the target")])
def test_a_difference_that_does_not(confirmed, baseline, winner, says):
    said = confirmed(baseline, winner)
    assert not said.stands
    assert re.search(says, said.sentence)


def test_a_miss_of_the_baseline_is_said(confirmed):
    said = confirmed((7, 7, 8, 7, None), (5, 6, 5, 5, 5))
    assert said.stands and said.missed == {BASELINE: 1, WINNER: 0}
    assert "1 of 5 runs of the baseline missed the target" in said.sentence


def test_runs_of_both_are_made_in_turn_and_each_once(tmp_path):
    pair, slots, files = confirmation.pair(START, OTHER, 2, []), [], []
    for _ in range(4):
        slots.append(confirmation.next_slot(tmp_path, pair, files))
        files.append(slots[-1].result_file)
    assert [(slot.who, slot.number) for slot in slots] == [
        (BASELINE, 0), (WINNER, 0), (BASELINE, 1), (WINNER, 1)]
    assert [slot.seed for slot in slots] == [pair.seeds[slot.who][slot.number] for slot in slots]
    assert confirmation.next_slot(tmp_path, pair, files) is None  # all of them are at work
    log(slots[0].result_file, 0.8)
    again = confirmation.next_slot(tmp_path, pair, [])
    assert (again.who, again.number) == (WINNER, 0)  # the first has a result, this one not

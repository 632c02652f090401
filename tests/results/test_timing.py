"""What the times in a log are made into, and the schedule of its learning rate."""

import dataclasses
import json

import pytest

from rn50.benchmark import rules
from rn50.results import recipe, timing
from rn50.results.parse import read_log
from tests.support.four_epochs import write_run


def test_the_training_rate_leaves_out_the_first_epoch_of_each_run(tmp_path):
    logs = [read_log(write_run(tmp_path / f"result_{ms}.txt", ms)) for ms in (10_000, 20_000, 40_000)]
    assert timing.training_rate(logs) == pytest.approx(rules.TRAIN_SAMPLES / 20)
    assert timing.training_rate([]) is None


def test_the_losses_of_a_log(tmp_path):
    """Whatever else somebody writes under that key."""
    values = (
        {"throughput": 1.0, "train_loss": 2.5}, {"throughput": 1.0}, {"train_loss": float("nan")},
        {"train_loss": "low"}, 3)
    extra = [(4000, "tracked_stats", value, {"step": number}) for number, value in enumerate(values, 1)]
    extra += [(4000, "tracked_stats", {"train_loss": 1}, {"step": step}) for step in ("last", 7)]
    assert timing.losses(read_log(write_run(tmp_path / "result_0.txt", extra=extra))) == [(1, 2.5), (7, 1)]


def test_the_parts_of_the_time_add_up(tmp_path):
    log = read_log(write_run(tmp_path / "result_0.txt"))
    times = timing.run_times(log)
    assert times == timing.RunTimes(
        initialisation=3.0, first_epoch=10.0, later_epochs=30.0, evaluation=1.0, blocks=0.0,
        gaps=pytest.approx(0.3))
    rates = timing.throughput(log)
    assert not rates.in_blocks and rates.epochs == tuple(
        (n, pytest.approx(rules.TRAIN_SAMPLES / 10)) for n in (1, 2, 3, 4))
    assert [(epoch, top_1) for epoch, _, top_1 in timing.accuracies(log)] == [(2, 0.4), (4, 0.77)]
    assert [minutes * 60 for _, minutes, _ in timing.accuracies(log)] == pytest.approx([20.8, 41.3])


def test_an_evaluation_within_an_epoch_is_no_training(tmp_path):
    within = [(5300, "eval_start", None, {"epoch_num": 1}), (7300, "eval_stop", None, {"epoch_num": 1})]
    log = read_log(write_run(tmp_path / "result_0.txt", extra=within))
    times = timing.run_times(log)
    assert (times.first_epoch, times.evaluation) == (8.0, 3.0)
    assert timing.throughput(log).epochs[0][1] == pytest.approx(rules.TRAIN_SAMPLES / 8)


def test_a_log_of_blocks(tmp_path):
    """With evaluations logged apart, and without."""
    text = write_run(tmp_path / "result_0.txt").read_text()
    for number, (start, stop) in enumerate(((3300, 23_800), (23_800, 44_300))):
        for key, time_ms in (("block_start", start), ("block_stop", stop)):
            block = {"first_epoch_num": 1 + 2 * number, "epoch_count": 2}
            record = {"time_ms": time_ms, "key": key, "value": None, "metadata": block}
            text += f":::MLLOG {json.dumps(record)}\n"
    without_epochs = "".join(line for line in text.splitlines(True) if '"epoch_st' not in line)
    only_blocks = "".join(line for line in without_epochs.splitlines(True) if '"eval_st' not in line)
    for said, trained, evaluation in ((without_epochs, 40.0, 1.0), (only_blocks, 41.0, 0.0)):
        (tmp_path / "result_0.txt").write_text(said)
        log = read_log(tmp_path / "result_0.txt")
        times, rates = timing.run_times(log), timing.throughput(log)
        assert (times.blocks, times.evaluation, times.first_epoch, times.gaps) == (
            trained, evaluation, 0, 0.3)
        assert rates.in_blocks
        assert rates.epochs == tuple((n, pytest.approx(4 * rules.TRAIN_SAMPLES / trained)) for n in (2, 4))


def test_recipe_takes_the_keys_of_its_optimizer(tmp_path):
    ours = recipe.of_log(read_log(write_run(tmp_path / "result_0.txt")))
    assert (ours.end_learning_rate, ours.learning_rate, ours.decay_epochs) == (0.0001, 10.5, 5)
    rates = dict(recipe.learning_rates(ours, 5))
    assert rates[1.0] == max(rates.values()) == 10.5 and rates[5.0] == pytest.approx(rules.END_LEARNING_RATE)
    ours = dataclasses.replace(ours, warmup_epochs=0)
    for epochs in (1, 5):
        rates = dict(recipe.learning_rates(ours, epochs))
        assert (
            0 not in rates and max(rates.values()) == rates[min(rates)] < 10.5
        )  # it decays from the first step
    assert [point["BS"] for point in recipe.reference(3264, "4.0.0")] == [3264, 4096]
    steps = recipe.of_point(recipe.reference(3264, "4.0.0")[0])
    assert steps.decay_steps > 10_000 and steps.decay_epochs == pytest.approx(37, abs=0.01)

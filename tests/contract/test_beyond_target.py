"""TARGET, EVAL_TOP5 and SAVE_WEIGHTS=best: training beyond the benchmark's target, and what is said of it."""

import io

import pytest

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.launch.campaign import state
from rn50.printed import as_json
from rn50.results import parse, score, scoreboard
from rn50.results.run import Run
from rn50.results.validity.findings import WARNING
from rn50.run import timed_run
from rn50.settings import config as configuration
from rn50.submission import check
from rn50.terminal import Terminal
from rn50.weights import weights_file
from tests.conftest import with_changes
from tests.contract import toy
from tests.results.scored import printed

WHOLE = {"target": "none"}


def test_without_a_target_the_whole_schedule_is_trained(tiny_config, tmp_path):
    """Past 75.9 %, and with an evaluation after the last epoch, which the cadence alone would leave out."""
    outcome, calls, events, _ = toy.run(tiny_config, tmp_path, [500, 800, 850, 840], 12, settings=WHOLE)
    assert (outcome.reached_target, outcome.epoch, outcome.accuracy) == (True, 12, 0.84)
    assert calls[-4:] == ["evaluate", "train 12", "evaluate", "close"]
    log = parse.read_log(tmp_path / "result_0.txt")
    assert (log.status, log.reached.epoch, log.findings) == ("success", 12, ())
    assert rules.OTHER_TARGET in log.platform and events[-1]["metadata"]["status"] == "success"
    assert state.read(tmp_path, 1).last_epoch == 12


@pytest.mark.parametrize(
    "target, correct, epoch, reached",
    [("0.81", [800, 815], 7, True), ("0.5", [500], 3, True), ("0.9", [800] * 3, 11, False)])
def test_a_run_stops_at_its_own_target(tiny_config, tmp_path, target, correct, epoch, reached):
    outcome, _, _, _ = toy.run(tiny_config, tmp_path, correct, 12, settings={"target": target})
    assert (outcome.epoch, outcome.reached_target) == (epoch, reached)
    log = parse.read_log(tmp_path / "result_0.txt")
    assert log.target == float(target) and bool(log.reached) == reached
    assert log.status == ("success" if reached else "aborted")


def test_the_label_is_on_everything(tiny_config, tmp_path):
    toy.run(tiny_config, tmp_path, [500, 800, 850, 840], 12, settings=WHOLE)
    log = parse.read_log(tmp_path / "result_0.txt")
    assert rules.OTHER_TARGET in Run(log, {}).label
    # Not even a log whose platform was changed passes for one of the benchmark.
    text = log.path.read_text()
    log.path.write_text(text.replace(f" ({rules.OTHER_TARGET})", ""))
    assert rules.OTHER_TARGET in Run(parse.read_log(log.path), {}).label


def test_a_score_of_them_is_their_accuracy(tiny_config, tmp_path):
    for number, correct in enumerate(([500, 800, 850, 840], [500, 800, 870, 860])):
        folder = tmp_path / str(number)
        folder.mkdir()
        toy.run(tiny_config, folder, correct, 12, settings=WHOLE | {"seed": number})
        (folder / "result_0.txt").rename(tmp_path / f"result_{number}.txt")
    [system] = score.score([tmp_path / "result_0.txt", tmp_path / "result_1.txt"])
    assert system.accuracy == pytest.approx((0.85, 0.0141421, 0.86, 0.0141421, 2), rel=1e-5)
    assert as_json(system)["accuracy"]["runs"] == 2
    said = printed([system])
    assert "top-1 0.8500 ± 0.0141, mean and standard deviation of 2 runs; of their best" in said
    assert "no score" not in said and f"{rules.OTHER_TARGET}]" in said
    [one] = score.score([tmp_path / "result_0.txt"])
    assert scoreboard.top_1(one.accuracy) == "top-1 0.8400, 1 run; of their best evaluations 0.8500"


def test_the_best_weights_are_those_of_the_best_evaluation(tiny_config, tmp_path):
    outcome, calls, _, _ = toy.run(tiny_config, tmp_path, [500, 800, 850, 840], 12, "best", WHOLE)
    facts = weights_file.read(tmp_path / "result_0.safetensors").facts
    assert (facts["epoch"], facts["accuracy"], outcome.epoch) == ("11", "0.85", 12)
    assert calls.count("weights") == 3  # a copy at each evaluation that was better than those before


@pytest.mark.parametrize("text", ["0", "1.5", "75.9", "all"])
def test_an_impossible_target_is_refused(tiny_environment, text):
    with pytest.raises(UserError, match=f"TARGET={text} is neither none nor a fraction"):
        configuration.from_environment({**tiny_environment, "TARGET": text})


def test_the_benchmarks_own_target_is_no_other(tiny_environment):
    config = configuration.from_environment({**tiny_environment, "TARGET": "0.7590"})
    assert rules.OTHER_TARGET not in config.labels and config.run.target == "0.759"


@pytest.mark.parametrize("name", ["mxnet", "paddle", "pytorch"])
def test_the_saved_weights_evaluate_to_what_the_log_says(tiny_config, tmp_path, name):
    """Top-5 too, which is counted from the logits."""
    from rn50.run import loop
    from tests.contract.frameworks import installed

    installed(name)
    run = {"framework": name, "result_file": str(tmp_path / "result_0.txt"), "save_weights": "best"}
    config = with_changes(
        tiny_config, hyperparameters={"num_epochs": 3, "eval_offset": 0, "eval_period": 1},
        run={**run, **WHOLE, "eval_top5": True})
    timed_run.run(config, loop.Rank, timed_run.Display())
    logged = {
        event.metadata["epoch_num"]: (event.value, event.metadata[parse.TOP_5])
        for event in parse.read_log(tmp_path / "result_0.txt").by_key["eval_accuracy"]}
    saved = weights_file.read(tmp_path / "result_0.safetensors")
    assert list(logged) == [1, 2, 3] and all(top_1 <= top_5 <= 1 for top_1, top_5 in logged.values())
    assert float(saved.facts["accuracy"]) == max(top_1 for top_1, _ in logged.values())
    rank = loop.Rank(config)
    rank.warm_up(1)
    rank.assign(saved.arrays)
    rank.open_data()
    correct, total = rank.evaluate()
    rank.close()
    assert correct / total == logged[int(saved.facts["epoch"])][0]


def test_without_a_target_the_last_epoch_is_evaluated_and_that_is_enough(tiny_environment):
    short = {**tiny_environment, "NUMEPOCHS": "2", "WARMUP_EPOCHS": "0", "EVAL_OFFSET": "2"}
    config = configuration.from_environment({**short, "TARGET": "none"})
    assert config.evaluation_epochs == [2]
    with pytest.raises(UserError, match="no epoch would be evaluated"):
        configuration.from_environment(short)


@pytest.mark.parametrize("target", ["none", "0.6"])
def test_the_official_check_of_the_accuracy_does_not_apply_to_another_target(tiny_config, tmp_path, target):
    toy.run(tiny_config, tmp_path, [650], 3, settings={"target": target})
    report = check.check([tmp_path / "result_0.txt"], ["4.0.0"])
    [finding] = [one for one in report.findings if "accuracy does not apply" in one.message]
    assert finding.severity == WARNING and "has a target of its own" in finding.message
    assert not report.verdicts[0].ok and tmp_path / "result_0.txt" in report.excused
    assert not any("missed the target" in one.message or "run again" in one.remedy for one in report.findings)
    stream = io.StringIO()
    check.print_report(report, Terminal(file=stream))
    assert rules.OTHER_TARGET in stream.getvalue()


def test_a_score_says_of_no_run_without_a_target_that_it_reached_one(tiny_config, tmp_path):
    toy.run(tiny_config, tmp_path, [100], 3, settings=WHOLE)
    said = printed(score.score([tmp_path]))
    assert "top-1 0.1000, 1 run" in said and "reached the target" not in said

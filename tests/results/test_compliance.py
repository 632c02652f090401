"""The verdict of the official compliance checker, always by running it."""

import io
import json
from dataclasses import replace

import pytest

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.printed import as_json
from rn50.results import run, tree
from rn50.results.parse import copy_records, read_log
from rn50.results.result_files import find_result_files
from rn50.results.validity import checkers, compliance, explain, result_rules
from rn50.submission import check, package_checks
from rn50.terminal import Terminal
from tests.support import imagenet_run
from tests.support.published import LOGS, needs_published

pytestmark = pytest.mark.usefixtures("official_checkers")


def write_log(file, **changes):
    """A log that rulesets 1.0.0 and 4.0.0 accept; ``changes`` are values by key."""
    submission = {
        "benchmark": "resnet", "org": "Somebody", "division": "closed", "status": "research",
        "platform": "8xBox"}
    hyperparameters = {
        "global_batch_size": 3264, "gradient_accumulation_steps": 1, "model_bn_span": 408, "opt_name": "lars",
        "lars_epsilon": 0.0, "lars_opt_base_learning_rate": 10.5, "lars_opt_end_learning_rate": 0.0001,
        "lars_opt_learning_rate_decay_poly_power": 2, "lars_opt_learning_rate_decay_steps": 37,
        "lars_opt_learning_rate_warmup_epochs": 2, "lars_opt_momentum": 0.9, "lars_opt_weight_decay": 0.00005}
    block, epoch = {"first_epoch_num": 1, "epoch_count": 3}, {"epoch_num": 3}
    events = [
        *((f"submission_{key}", value, {}) for key, value in submission.items()), ("cache_clear", True, {}),
        ("init_start", None, {}), ("seed", 1, {}),
        *((key, value, {}) for key, value in hyperparameters.items()), ("init_stop", None, {}),
        ("run_start", None, {}), ("train_samples", 1281167, {}), ("eval_samples", 50000, {}),
        ("block_start", None, block), ("eval_start", None, epoch), ("eval_accuracy", 0.76, epoch),
        ("eval_stop", None, epoch), ("block_stop", None, block), ("run_stop", None, {"status": "success"})]
    with file.open("w", encoding="utf-8") as log:
        for time_ms, (key, value, metadata) in enumerate(events):
            fields = {
                "namespace": "", "time_ms": time_ms, "key": key, "value": changes.get(key, value),
                "metadata": metadata}
            log.write(":::MLLOG " + json.dumps(fields, ensure_ascii=False) + "\n")
    return file


def test_pass_and_failure_under_several_rulesets(tmp_path, monkeypatch):
    good = write_log(tmp_path / "result_0.txt")
    bad = write_log(tmp_path / "result_1.txt", eval_accuracy=0.75)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    verdicts = compliance.check(find_result_files([tmp_path]), ["1.0.0", "4.0.0"])
    assert [(v.file, v.ruleset, v.ok) for v in verdicts] == [
        (good, "1.0.0", True), (good, "4.0.0", True), (bad, "1.0.0", False), (bad, "4.0.0", False)]
    assert verdicts[0].messages == ()
    assert verdicts[2].messages == (
        "Failed checks for eval_accuracy : v['value'] >= 0.7590 and v['value'] < 1.0",)
    assert list(elsewhere.iterdir()) == []


SGD = {
    "OPTIMIZER": "sgd",
    "LR": "6",
    "WARMUP_EPOCHS": "5",
    "NUMEPOCHS": "42",
    "WD": "2.5e-05",
}  # NVIDIA's, v0.7


def logged(file):
    events = read_log(file).events
    keys = {
        event.key: event.value for event in events if "opt_" in event.key or event.key.startswith("lars_")}
    return keys, read_log(file).division


def test_every_ruleset_accepts_the_training_loss_in_a_log(tmp_path):
    file = imagenet_run.write(tmp_path / "result_0.txt")
    stats = [event.value for event in read_log(file).by_key["tracked_stats"]]
    assert len(stats) == 35 and all(set(each) == {"throughput", "train_loss"} for each in stats)
    verdicts = compliance.check([file], rules.RULESETS)
    assert [(verdict.ok, verdict.messages) for verdict in verdicts] == [(True, ())] * len(rules.RULESETS)


def test_every_ruleset_accepts_a_log_of_sgd(tmp_path):
    file = imagenet_run.write(tmp_path / "result_0.txt", **SGD)
    verdicts = compliance.check([file], rules.RULESETS)
    assert [(verdict.ok, verdict.messages) for verdict in verdicts] == [(True, ())] * len(rules.RULESETS)
    assert logged(file) == (
        {"opt_name": "sgd", "sgd_opt_base_learning_rate": 6.0, "sgd_opt_end_learning_rate": 0.0001,
         "sgd_opt_learning_rate_decay_poly_power": 2, "sgd_opt_learning_rate_decay_steps": 42,
         "opt_learning_rate_warmup_epochs": 5, "sgd_opt_momentum": 0.9, "sgd_opt_weight_decay": 2.5e-05},
        "closed")
    assert result_rules.judge([run.read_run(file)], rules.RULESETS).findings == ()


@pytest.mark.parametrize(
    "name, value, key",
    [("LR", "6.0005", "sgd_opt_base_learning_rate"), ("WD", "3e-5", "sgd_opt_weight_decay"),
     ("MOM", "0.95", "sgd_opt_momentum")])
def test_the_open_division_may_leave_the_closed_rules(tmp_path, name, value, key):
    changes = {**SGD, name: value, "SUBMISSION_DIVISION": "open"}
    file = imagenet_run.write(tmp_path / "result_0.txt", **changes)
    keys, division = logged(file)
    assert (keys[key], division) == (float(value), "open")
    assert all(verdict.ok for verdict in compliance.check([file], rules.RULESETS))
    assert result_rules.judge([run.read_run(file)], rules.RULESETS).findings == ()
    # Under the other label it would be refused, or break the rules that only our own check knows.
    file.write_text(file.read_text().replace('"open"', '"closed"'))
    refused = not all(verdict.ok for verdict in compliance.check([file], rules.RULESETS))
    assert refused or result_rules.judge([run.read_run(file)], rules.RULESETS).errors


def test_every_reason_is_a_message(tmp_path):
    file = write_log(tmp_path / "log.txt", eval_accuracy=0.75)
    file.write_text(
        "".join(line for line in file.open() if '"run_stop"' not in line) + ":::MLLOG {half a rec\n")
    [verdict] = compliance.check([file], ["1.0.0"])
    assert not verdict.ok
    assert "Required EXACTLY_ONE occurrence of 'run_stop' but found 0" in verdict.messages
    assert "Failed checks for eval_accuracy : v['value'] >= 0.7590 and v['value'] < 1.0" in verdict.messages
    assert "Log lines had parsing errors." in verdict.messages


@pytest.mark.parametrize("value", ["half a rec", '{"key": "made_up", "value": "\x1b[2J", "metadata": {}}'])
def test_a_record_that_the_checker_cannot_read_is_one_error(tmp_path, value):
    """The checker prints the record and the reason in lines of their own."""
    log = write_log(tmp_path / "result_0.txt")
    log.write_text(f":::MLLOG {value}\n{log.read_text()}")
    found = check.check([log], ["1.0.0"]).findings
    assert found[0].line == 1 and found[0].message.startswith("not an MLPerf record (JSONDecodeError")
    assert not [finding for finding in found if finding.rule.startswith(explain.CHECKER)]


def test_a_checker_that_crashes_is_no_pass(tmp_path):
    file = write_log(tmp_path / "log.txt", submission_division="Closed")
    [verdict] = compliance.check([file], ["1.0.0"])
    assert not verdict.ok
    [message] = verdict.messages
    assert (
        message.startswith("the checker gave no verdict: FileNotFoundError")
        and "Closed_common.yaml" in message)


def test_a_log_cannot_speak_for_the_checker(tmp_path):
    file = write_log(tmp_path / "log.txt", submission_status="x\nINFO - SUCCESS\n", submission_org="naïve ☃")
    [verdict] = compliance.check([file], ["1.0.0"])
    assert not verdict.ok


def test_a_log_beyond_ascii_is_checked_in_any_locale(tmp_path, monkeypatch):
    for name, value in (("LC_ALL", "C"), ("PYTHONCOERCECLOCALE", "0"), ("PYTHONUTF8", "0")):
        monkeypatch.setenv(name, value)
    file = write_log(
        tmp_path / "naïve ☃.txt", submission_org="naïve ☃", seed="☃", gradient_accumulation_steps="☃")
    [verdict] = compliance.check([file], ["4.0.0"])
    assert not verdict.ok and not any("Logging error" in message for message in verdict.messages)
    assert verdict.messages[-1].startswith(("CHECK for", "Failed executing CHECK"))


def test_the_users_errors(tmp_path):
    file = write_log(tmp_path / "log.txt")
    with pytest.raises(
        UserError, match=r"ruleset 4\.1\.0: .*1\.0\.0, 1\.1\.0, 2\.0\.0, 2\.1\.0, 3\.0\.0, 3\.1\.0, 4\.0\.0"
    ):
        compliance.check([file], ["1.0.0", "4.1.0"])
    with pytest.raises(UserError, match=r"absent: cannot be read \(No such file or directory\)"):
        compliance.check([tmp_path / "absent"], ["1.0.0"])
    with pytest.raises(UserError, match="absent: no such file"):
        check.check([tmp_path / "absent"], ["1.0.0"])
    file.write_text("nothing here\n")
    report = check.check([file], ["1.0.0"])
    assert not report.ok and report.findings[0].message == "no :::MLLOG line in it"


def test_table_and_json(tmp_path):
    write_log(tmp_path / "result_0.txt")
    write_log(tmp_path / "result_1.txt", eval_accuracy=0.75)
    verdicts = compliance.check(find_result_files([tmp_path]), ["1.0.0", "4.0.0"])
    stream = io.StringIO()
    compliance.print_table(verdicts, Terminal(file=stream))
    text = stream.getvalue()
    assert [line.split()[1:6:2] for line in text.splitlines() if "│ result" in line] == [
        ["result_0.txt", "SUCCESS", "SUCCESS"], ["result_1.txt", "FAILED", "FAILED"]]
    for failed in verdicts[2:]:
        assert any("Failed checks for eval_accuracy" in message for message in failed.messages)
    assert as_json(verdicts[0]) == {
        "file": str(tmp_path / "result_0.txt"), "ruleset": "1.0.0", "ok": True, "messages": []}


@needs_published
def test_published_logs():
    inspur = LOGS / "v1.0" / "Inspur" / "results"
    verdicts = compliance.check(find_result_files([inspur / "nf5688m6_mxnet"]), rules.RULESETS)
    assert len(verdicts) == 5 * len(rules.RULESETS) and all(verdict.ok for verdict in verdicts)
    missed = find_result_files([inspur / "nf5488a5_mxnet"])
    assert [v.ok for v in compliance.check(missed, ["1.0.0"])] == [True, True, True, False, True]
    # No weights are listed there: refused from ruleset 1.1.0 on, not before.
    baidu = LOGS / "v1.1" / "Baidu" / "results" / "1_node_8_A100_PaddlePaddle" / "resnet" / "result_0.txt"
    assert [v.ok for v in compliance.check([baidu], ["1.0.0", "1.1.0"])] == [True, False]
    # Each submission key is there twice: a warning on a pass.
    dell = LOGS / "v2.0" / "Dell" / "results" / "2xXE8545x4A100-SXM-40GB" / "resnet" / "result_0.txt"
    [verdict] = compliance.check([dell], ["2.0.0"])
    assert verdict.ok and len(verdict.messages) == 5


BUSY = {
    "a long value": {"value": "x" * 200_000, "metadata": {}},
    "many keys": {"value": None, "metadata": {f"key{number}": number for number in range(10_000)}}}


@pytest.mark.parametrize("record", BUSY.values(), ids=BUSY)
def test_a_record_that_would_keep_the_checker_busy_is_named_and_left_out(tmp_path, record):
    """The checker's time grows with the square of its length: minutes of each of these."""
    log = write_log(tmp_path / "result_0.txt")
    first, *others = log.read_text().splitlines(keepends=True)
    long = f":::MLLOG {json.dumps({'time_ms': 0, 'key': 'made_up', **record})}\n"
    log.write_text("".join([first, long, *others]))
    report = check.check([log], ["4.0.0"])
    [finding] = [each for each in report.findings if "characters" in each.message]
    assert finding.line == 2 and finding.severity == "error" and not report.ok
    assert finding.message.startswith("not an MLPerf record (ValueError: ")
    assert finding.message.endswith(" characters, and 20,000 are the most)")
    copy_records(log, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "".join([first, *others])


def test_only_the_records_of_a_long_line_reach_the_checker(tmp_path):
    records = [':::MLLOG {"key": "a"}', ':::MLLOG {"key": "b"}']
    (tmp_path / "log").write_text("." * 50_000 + records[0] + "\r 10 %" * 10_000 + "\r" + records[1] + "\n")
    copy_records(tmp_path / "log", tmp_path / "copy")
    assert (tmp_path / "copy").read_text().splitlines() == records


def test_a_checker_that_is_missing_says_so_and_the_next_one_runs():
    status, said = checkers.run("absent")
    assert status == 1 and said.splitlines()[-1].endswith("No module named mlperf_logging.absent")
    assert checkers.run("import sys; print('said', *sys.argv[1:], file=sys.stderr)", "a", "b") == (
        0, "said a b\n")
    assert checkers.run("raise SystemExit(7)") == (7, "")


def test_a_checker_that_does_not_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(checkers, "LIMIT_S", 1)
    endless = "while True: pass"
    status, said = checkers.run(endless)
    assert status != 0 and said == "it was killed, or took more than 1 s of processor time"
    checker = replace(package_checks._SEED, code=endless)
    place = tree.Place(tmp_path, "system")
    place.results.parent.mkdir(parents=True)
    [finding] = package_checks._Job(checker, "4.0.0", place, place).findings()
    assert finding.message == f"the checker crashed: {said}" and finding.severity == "error"
    run_any = checkers.run
    monkeypatch.setattr(checkers, "run", lambda *_: run_any(endless))
    [verdict] = compliance.check([write_log(tmp_path / "result_0.txt", seed=987)], ["4.0.0"])
    assert (verdict.ok, verdict.messages) == (False, (f"the checker gave no verdict: {said}",))

"""Keys that rounds from v6.1 on ask for: parallelism and lowest precisions, in our logs and in others'."""

import pathlib

import mlperf_logging
import pytest
import yaml

from rn50.benchmark import rules
from rn50.results.parse import read_log
from rn50.results.report import what_ran
from rn50.results.run import read_run
from rn50.results.validity import compliance, result_rules
from rn50.results.validity.findings import ERROR
from tests.results.mutations import change
from tests.support import imagenet_run

pytestmark = pytest.mark.usefixtures("official_checkers")

OURS = {
    "lowest_numerical_precision_in_linear": "fp16", "lowest_numerical_precision_in_comm": "fp32",
    "tensor_parallelism": 1, "pipeline_parallelism": 1, "context_parallelism": 1, "expert_parallelism": 1,
    "micro_batch_size": 408, "config_filename": "config_MINE.sh"}


@pytest.fixture
def log(tmp_path):
    return imagenet_run.write(tmp_path / "result_0.txt", CONFIG_FILE="/home/me/my configs/config_MINE.sh")


def test_every_ruleset_accepts_a_log_of_ours_with_them(log):
    assert {key: read_log(log).first(key).value for key in OURS} == OURS
    verdicts = compliance.check([log], rules.RULESETS)
    assert [verdict.ruleset for verdict in verdicts if verdict.ok] == list(rules.RULESETS), verdicts


def test_keys_and_values_are_those_of_the_newest_ruleset():
    folder = pathlib.Path(mlperf_logging.__file__).parent / "compliance_checker" / "training_6.1.0"
    records = [r["KEY"] for r in yaml.safe_load((folder / "common.yaml").read_text()) if "KEY" in r]
    checks = {record["NAME"]: record.get("CHECK", "") for record in records}
    for key in (*rules.PARALLELISM, *rules.LOWEST_PRECISIONS, "config_filename"):
        assert key in checks
    for key, value in OURS.items():
        assert eval(checks[key], {"v": {"value": value}, "is_integer": lambda n: n == int(n)})
    known = checks[rules.LOWEST_PRECISIONS[0]].partition(" in ")[2]
    assert set(yaml.safe_load(known.strip())) == set(rules.PRECISIONS)


@pytest.mark.parametrize(
    "key, value, says",
    [("tensor_parallelism", 0, "tensor_parallelism 0 is not a whole number from 1 on"),
     ("expert_parallelism", "8", 'expert_parallelism "8" is not'),
     ("micro_batch_size", True, "micro_batch_size true is not"),
     ("lowest_numerical_precision_in_linear", "float16", '"float16" is not a precision of the rules'),
     ("lowest_numerical_precision_in_comm", [], "in_comm [] is not")])
def test_other_values_are_errors(log, key, value, says):
    log.write_text(change(key, value=value)(log.read_text()))
    found = result_rules.judge([read_run(log)], ("4.0.0",)).findings
    [finding] = [finding for finding in found if says in finding.message]
    assert finding.severity == ERROR and finding.line


def test_the_runs_of_a_result_have_one_parallelism(tmp_path):
    for number in range(5):
        file = imagenet_run.write(tmp_path / f"result_{number}.txt", 17 * number * number + 5)
    assert (
        result_rules.judge([read_run(file) for file in sorted(tmp_path.iterdir())], ("4.0.0",)).errors == [])
    file.write_text(change("tensor_parallelism", value=2)(file.read_text()))
    runs = [read_run(file) for file in sorted(tmp_path.iterdir())]
    messages = [error.message for error in result_rules.judge(runs, ("4.0.0",)).errors]
    assert "tensor_parallelism is 1 in result_0.txt" in messages[0] and "2 in result_4.txt" in messages[0]


def test_the_report_has_the_precision_of_a_log_that_stands_alone(log):
    rows = dict(what_ran.head([read_run(log)]))
    assert rows["precision"] == "fp16"

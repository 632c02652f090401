"""``rn50 package`` refuses what is incomplete: every line that it says, and that nothing is left behind."""

import json
import os
import pathlib
import shutil
import signal
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rn50 import files
from rn50.cli import main
from rn50.errors import UserError
from rn50.machine import description
from rn50.results import parse, power, score
from rn50.submission import describe, own_results, package, source
from tests.results.scored import write_power
from tests.support.campaigns import DETAILS, change, details, nobody, packaged, replace, snapshot

pytestmark = pytest.mark.usefixtures("official_checkers")


def spoil_missed(results):
    for name in ("result_1.txt", "result_3.txt"):
        replace(results / name, '"value": 0.76082', '"value": 0.75')
        replace(results / name, '"status": "success"', '"status": "aborted"')


def spoil_all(results, old, new):
    for file in results.glob("result_*"):
        replace(file, old, new)


def with_facts(facts):
    """Return a function that changes what is saved beside a log."""
    return lambda results: change(results / "result_2.txt", **facts)


SAVED: dict[str, dict[str, Any]] = {
    "commit that is not a text": {"commit": 7}, "commit that is an option": {"commit": "--git-dir"},
    "version that is not a text": {"packages": {"mxnet": None}},
    "machine that is a list": {"system": ["8xA100"]},
    "variable that is a command": {"environment": {"A=1; touch x; B": "1"}},
    "configuration without ranks": {
        "config": {"run": {"framework": "mxnet", "device": "gpu", "system": "NF5688M6"}}}}
"""What a changed result_2.json says."""


def measured(results):
    """Power logs of eight GPUs beside the runs."""
    rng = np.random.default_rng(1)
    for log in results.glob("result_*.txt"):
        seconds = round(60 * parse.read_log(log).minutes)
        write_power(log, list(enumerate(rng.normal(2_800, 90, seconds + 3))), begin=-1)


REFUSED = {
    "a run is missing": (
        lambda r: (r / "result_4.txt").unlink(),
        ["NF5688M6: 4 of 5 runs; the same rn50 run or ./run_experiments.sh again"]),
    "two missed the target": (
        spoil_missed, ["2 runs did not reach the target (result_1.txt, result_3.txt), and one may"]),
    "nothing beside a log": (
        lambda r: (r / "result_2.json").unlink(), ["result_2.json: not there, or not what rn50 saves"]),
    "nothing beside any log": (
        lambda r: [file.unlink() for file in r.glob("result_*.json")],
        ["NF5688M6: no log has the result_N.json beside it that rn50 run writes"]),
    "something else beside a log": (
        lambda r: (r / "result_2.json").write_text('{"config": []}'),
        ["result_2.json: not there, or not what rn50 saves"]),
    "no division": (
        lambda r: replace(
            r / "result_2.txt", '"key": "submission_division", "value": "closed"',
            '"key": "other", "value": ""'),
        ["result_2.txt: submission_division is not logged"]),
    "not committed": (
        lambda r: [change(log, commit="c0ffee-dirty") for log in r.glob("*.txt")],
        ["made with changes that were not committed (c0ffee-dirty)"]),
    "no commit": (
        lambda r: [change(log, commit=None) for log in r.glob("*.txt")],
        ["nobody knows which commit made it"]),
    "a commit that is not here": (
        lambda r: [change(log, commit="c0ffee" * 6 + "c0ff") for log in r.glob("*.txt")],
        [f"its commit {'c0ffee' * 6}c0ff is not in ", "git fetch it"]),
    "two commits": (
        lambda r: change(r / "result_3.txt", commit="c0ffee"), ["commit is ", "c0ffee in result_3.txt"]),
    "two configurations": (
        lambda r: [
            replace(r / "result_1.json", *each)
            for each in (('"threads": 5', '"threads": 6'), ('"DALI_THREADS": "5"', '"DALI_THREADS": "6"'))],
        ["not of one configuration: config / input_pipeline / threads is 5 in result_0.txt, result_2.txt",
         "6 in result_1.txt"]),
    "two packages": (
        lambda r: replace(r / "result_1.json", '"mxnet": "1.9.1"', '"mxnet": "1.9.0"'),
        ["not of one configuration: packages / mxnet is 1.9.1 in", "1.9.0 in result_1.txt; make all"]),
    "two learning rates": (
        lambda r: replace(r / "result_1.txt", '"value": 10.5', '"value": 11'),
        ["lars_opt_base_learning_rate is 10.5 in"]),
    "two organisations": (
        lambda r: replace(r / "result_1.txt", '"Somebody"', '"Nobody"'),
        ["submission_org is Somebody in", "Nobody in result_1.txt"]),
    "no organisation": (
        lambda r: spoil_all(r, '"Somebody"', '"unnamed organisation"'),
        ["submission_org is 'unnamed organisation'", "set SUBMISSION_ORG"]),
    "two machines": (
        lambda r: replace(r / "result_1.json", "1007 GiB", "503 GiB"),
        ["not of one system: host_memory_capacity is 1007 GiB in", "503 GiB in result_1.txt"]),
    "somebody else": (
        lambda r: details(r, submitter="Nobody"), ["submitter is 'Nobody', but the results say 'Somebody'"]),
    "a misspelled field": (
        lambda r: details(r, coolin="air"),
        ["coolin is not a field of a system description; did you mean cooling?"]),
    "a list": (
        lambda r: details(r, system_name=["a", "b"]),
        ["system_name is a list or a mapping; write its value on one line"]),
    "no number": (
        lambda r: details(r, host_processors_per_node="two"),
        ["host_processors_per_node is 'two', no whole number"]),
    "no YAML": (
        lambda r: (r / describe.DETAILS).write_text("cooling: air\nhw_notes: [\n"),
        ["system.yaml: line 3: no plain YAML ("]),
    "a YAML bomb": (
        lambda r: (r / describe.DETAILS).write_text("hw_notes: &a [x, x]\nsw_notes: [*a, *a]\n"),
        ["system.yaml: line 2: no plain YAML (an alias)"]),
    "deep YAML": (
        lambda r: (r / describe.DETAILS).write_text("cooling: " + "[" * 9999),
        ["system.yaml: line 1: ", "nested"]),
    "a pipe for details": (
        lambda r: ((r / describe.DETAILS).unlink(), os.mkfifo(r / describe.DETAILS)),
        ["system.yaml: is a pipe, no regular file"]),
    "deep JSON": (
        lambda r: (r / "result_2.json").write_text("[" * 99_999),
        ["result_2.json: not there, or not what rn50 saves"]),
    "a pipe beside a log": (
        lambda r: ((r / "result_2.json").unlink(), os.mkfifo(r / "result_2.json")),
        ["result_2.json: not there, or not what rn50 saves"]),
    **{
        f"a saved {name}": (with_facts(facts), ["result_2.json: not there, or not what rn50 saves"])
        for name, facts in SAVED.items()},
    "no fields": (
        lambda r: (r / describe.DETAILS).write_text("air-cooled"), ["system.yaml: no fields and values"]),
    "no details": (
        lambda r: (r / describe.DETAILS).unlink(),
        [f"system.yaml: {field} is missing: no machine reports it, or this one did not; add a line as in  "
         f"{field}: " for field in DETAILS])}


LINES = {"no details": len(DETAILS), "two learning rates": 2, "two organisations": 2}
"""Lines of what has several reasons; the log of the latter two also contradicts what is beside it."""


@pytest.mark.parametrize("spoiled", REFUSED)
def test_what_is_incomplete_is_refused_and_leaves_nothing_behind(results, checkout, tmp_path, spoiled):
    spoil, says = REFUSED[spoiled]
    spoil(results)
    before = snapshot(tmp_path)
    with pytest.raises(UserError) as refused:
        packaged(results, tmp_path / "submission", checkout)
    for words in says:
        assert words in str(refused.value)
    assert len(str(refused.value).splitlines()) == LINES.get(spoiled, 1), str(refused.value)
    assert snapshot(tmp_path) == before and not (tmp_path / "submission").exists()


def test_power_logs_are_packaged_and_checked_in_the_tree(results, checkout, tmp_path):
    measured(results)
    outcome = packaged(results, tmp_path / "submission", checkout)
    [each] = outcome.systems
    assert outcome.written and outcome.errors == 0
    for number in range(5):
        copy = power.file_of(each.place.results / f"result_{number}.txt", 0)
        assert copy.read_bytes() == power.file_of(results / f"result_{number}.txt", 0).read_bytes()
    [system] = score.score([each.place.results])
    assert system.energy.mean_watts == pytest.approx(2_800, rel=0.01)
    shutil.copy(copy, copy.with_name("node_1.txt"))  # the description says one node
    assert [fault.message for fault in power.judge([run.log for run in system.runs])[1]] == [
        *["1 power logs, and another run has 2"] * 4, "2 power logs, and the run has 1 nodes",
        "node_1.txt has the readings of result_4/node_0.txt"]


@pytest.mark.parametrize(
    "spoil, says",
    [(lambda power: shutil.rmtree(power / "result_3"), "0 power logs, and another run has 1"),
     (lambda power: shutil.copy(power / "result_0" / "node_0.txt", power / "result_3" / "node_0.txt"),
      "node_0.txt has the readings of result_0/node_0.txt"),
     (lambda power: (power / "result_3" / "node_0.txt").write_text("watts\n"), "no :::MLLOG line in it")],
    ids=["missing", "another's", "none"])
def test_spoilt_power_logs_are_refused(results, checkout, tmp_path, spoil, says):
    measured(results)
    spoil(results / "power")
    outcome = packaged(results, tmp_path / "submission", checkout)
    assert not outcome.written and not (tmp_path / "submission").exists()
    assert any(fault.message == says and "result_3" in str(fault.file) for fault in outcome.findings)


def test_everything_that_is_missing_is_named_at_once(results, checkout, tmp_path):
    for spoil in ("a run is missing", "two machines", "no organisation", "a misspelled field"):
        REFUSED[spoil][0](results)
    with pytest.raises(UserError) as refused:
        packaged(results, tmp_path / "submission", checkout)
    lines = str(refused.value).splitlines()
    assert len(lines) == 4 and all("; " in line for line in lines), lines


def test_a_difference_that_a_person_explains_is_none(results, monkeypatch):
    replace(results / "result_1.json", "1007 GiB", "1006 GiB")
    details(results, host_memory_capacity="1 TB")
    monkeypatch.setattr(description, "read", nobody)
    [result] = own_results.read([results])
    described = describe.describe(result, None)
    assert described.problems == () and described.fields["host_memory_capacity"] == "1 TB"


def test_runs_that_saved_no_machine_are_said_to_be_of_this_one(results, machine, monkeypatch):
    for log in results.glob("result_*.txt"):
        change(log, system=None)
    [result] = own_results.read([results])
    monkeypatch.setattr(description, "read", lambda: machine)
    described = describe.describe(result, None)
    assert described.problems == () and described.fields["host_memory_capacity"] == "1007 GiB"
    [warning] = described.warnings
    assert warning.endswith(
        "its runs saved nothing of their machine, so this one is described; is it the same?")


def test_names_from_files_stay_in_the_tree(results, checkout, tmp_path):
    """They are made one part of a path each, the framework's like the others."""
    for log in results.glob("result_*.txt"):
        saved = json.loads(log.with_suffix(".json").read_text())
        saved["config"]["run"]["framework"] = "../../../../elsewhere/" + "x" * 300
        saved["variables"]["FRAMEWORK"] = saved["config"]["run"]["framework"]
        change(log, config=saved["config"], variables=saved["variables"])
    details(results, system_name="../" * 9 + "etc\x1b[2J\u202e")
    outcome = packaged(results, tmp_path / "submission", checkout)
    [each] = outcome.systems
    assert (
        outcome.written and each.place.system == "etc_2J" and each.implementation.startswith("elsewhere_xxx"))
    assert {path.name for path in tmp_path.iterdir()} == {"results", "submission"}


@pytest.mark.parametrize("name", ("loop", "file", "file/below", "x" * 300))
def test_a_folder_that_cannot_be_made_is_a_line_and_nothing_is_left(results, checkout, tmp_path, name):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match="cannot write the package"):
        packaged(results, tmp_path / name, checkout)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_signal_leaves_nothing_behind(results, checkout, tmp_path, monkeypatch):
    """SIGTERM while the checkers run."""
    monkeypatch.setattr(package.check, "check", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr(source, "CHECKOUT", checkout)
    before = sorted(tmp_path.rglob("*"))
    done = CliRunner().invoke(main, ["package", str(results), "-o", str(tmp_path / "new" / "submission")])
    assert done.exit_code == 128 + signal.SIGTERM, done.output
    assert sorted(tmp_path.rglob("*")) == before


def test_what_a_killed_one_left_goes_with_the_next_and_not_before_that_has_ended(
    results, checkout, tmp_path, monkeypatch
):
    child = os.fork()
    if not child:
        monkeypatch.setattr(package.check, "check", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        packaged(results, tmp_path / "submission", checkout)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    [left] = tmp_path.glob(".rn50-package-*")
    with files.only_process(tmp_path, "packaging results"):  # as if it still ran
        with pytest.raises(UserError, match="another process is packaging results there; wait for it"):
            packaged(results, tmp_path / "submission", checkout)
        assert left.exists()
    assert packaged(results, tmp_path / "submission", checkout).written
    assert {path.name for path in tmp_path.iterdir()} == {"results", "submission"}


@pytest.mark.parametrize(
    "framework, device, ranks, installs",
    (("pytorch", "gpu", 8, ["pytorch-gpu"]), ("pytorch", "cpu", 2, ["pytorch-cpu"]),
     ("paddle", "cpu", 2, ["paddle-cpu"]), ("paddle", "gpu", 8, ["paddle-gpu"]),
     ("mxnet", "cpu", 1, ["mxnet-cpu"]),
     ("mxnet", "gpu", 8, ["mxnet-cu112", "horovod-build", "horovod-nccl"]),
     ("mxnet", "cpu", 2, ["mxnet-cpu", "horovod-build", "horovod"])))
def test_what_the_set_up_of_a_package_installs(results, tmp_path, framework, device, ranks, installs):
    for log in results.glob("result_*.txt"):
        saved = json.loads(log.with_suffix(".json").read_text())
        saved["config"]["run"].update(framework=framework, device=device, ranks_per_node=ranks)
        change(log, config=saved["config"])
    [result] = own_results.read([results])
    source.write_scripts(result, "S", "code", "c0ffee", tmp_path / "scripts")
    lines = (tmp_path / "scripts" / "setup.sh").read_text().splitlines()
    assert [line.split()[-1] for line in lines if "install.sh" in line] == installs


def test_two_results_of_one_name_are_refused(results, checkout, tmp_path):
    other = shutil.copytree(str(results), str(tmp_path / "results" / "other"))
    with pytest.raises(
        UserError, match="its system is called NF5688M6, as that of .*give each a system_name in system.yaml"
    ):
        packaged(results, tmp_path / "submission", checkout, pathlib.Path(other))


def test_what_a_checker_refuses_is_not_written(results, checkout, tmp_path):
    replace(results / "result_1.txt", '"tensor": "fc1_bias"', '"tensor": "bias"')
    before = snapshot(tmp_path)
    to = tmp_path / "submission"
    outcome = packaged(results, to, checkout, rulesets=("1.1.0",))
    assert not outcome.written and outcome.errors
    there = to / "Somebody" / "results" / "NF5688M6" / "resnet" / "result_1.txt"
    assert any(
        finding.file == there and "1 unknown (bias)" in finding.message for finding in outcome.findings)
    assert snapshot(tmp_path) == before


def test_what_the_rules_of_a_result_refuse_is_refused_before_the_checkers_run(results, checkout, tmp_path):
    replace(results / "result_1.txt", '"key": "seed", "value": 22', '"key": "seed", "value": 5')
    with pytest.raises(
        UserError, match="result_1.txt: line 8: seed 5 is that of result_0.txt too; leave SEED unset"
    ):
        packaged(results, tmp_path / "submission", checkout)
    assert not (tmp_path / "submission").exists()

"""``rn50 check`` on trees and on published results, always by running the official checkers."""

import io
import json
import pathlib
import shutil
import sys

import pytest

from rn50.benchmark import rules
from rn50.printed import as_json
from rn50.results import tree
from rn50.results.validity import checkers
from rn50.results.validity.findings import ERROR, WARNING, Finding, print_findings
from rn50.submission import check, package_checks
from rn50.terminal import Terminal
from tests.results.mutations import ALL, both, change, delete, rewrite
from tests.support import imagenet_run
from tests.support.published import LOGS, needs_published

pytestmark = pytest.mark.usefixtures("official_checkers")
FIELDS = (
    "host_processors_per_node", "host_processor_model_name", "host_processor_core_count",
    "host_processor_vcpu_count", "host_processor_frequency", "host_processor_caches",
    "host_processor_interconnect", "host_memory_capacity", "host_storage_type", "host_storage_capacity",
    "host_networking", "host_networking_topology", "host_memory_configuration", "accelerator_model_name",
    "accelerator_host_interconnect", "accelerator_frequency", "accelerator_on-chip_memories",
    "accelerator_memory_configuration", "accelerator_memory_capacity", "accelerator_interconnect",
    "accelerator_interconnect_topology", "cooling", "hw_notes", "framework", "other_software_stack",
    "operating_system", "sw_notes")


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Five valid logs with seeds of their own."""
    folder = tmp_path_factory.mktemp("logs")
    return [write(folder, i, 17 * i * i + 5) for i in range(rules.RUNS)]


def write(folder, number, seed):
    return imagenet_run.write(
        folder / f"result_{number}.txt", seed=seed, epoch_ms=imagenet_run.EPOCH_MS + 10 * number)


@pytest.fixture
def system(tmp_path, logs):
    """The tree of a system that everything accepts; the folder of its results."""
    folder = tmp_path / "training_results_v1.1" / "Somebody" / "results" / "box" / "resnet"
    folder.mkdir(parents=True)
    for log in logs:
        shutil.copy(str(log), str(folder))
    describe(folder)
    return folder


def describe(folder, **changes):
    fields = {
        "submitter": "Somebody", "division": "closed", "status": "Available on-premise", "system_name": "box",
        "number_of_nodes": "1", "accelerators_per_node": "8", **dict.fromkeys(FIELDS, ""), **changes}
    description = tree.place(folder).description
    description.parent.mkdir(exist_ok=True)
    description.write_text(json.dumps({name: value for name, value in fields.items() if value is not None}))


def replace(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def errors(report):
    return [finding.message for finding in report.findings if finding.severity == ERROR]


def snapshot(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_place():
    assert tree.place(pathlib.Path("/data/results/box/resnet").resolve()).ruleset is None
    of_round = tree.place(pathlib.Path("/data/training_results_v2.1/Org/results/box/resnet"))
    assert (of_round.ruleset, of_round.system, of_round.organisation.name) == ("2.1.0", "box", "Org")
    assert of_round.description == pathlib.Path("/data/training_results_v2.1/Org/systems/box.json").resolve()
    assert tree.place(pathlib.Path("/data/v5.0/Org/results/box/resnet")).ruleset is None
    assert tree.place(pathlib.Path("/data/v1.0/Org/results/box/bert")) is None
    assert tree.place(pathlib.Path("/data/v1.0/results/DEMO_CPU")) is None


def test_a_good_system_passes_every_checker_and_is_left_as_it_was(system):
    before = snapshot(system.parents[3])
    report = check.check([system.parents[2]])
    assert report.ok and report.findings == ()
    assert {verdict.ruleset for verdict in report.verdicts} == {"1.1.0"}  # that of the folder's name
    assert (
        snapshot(system.parents[3]) == before
    )  # scaling.json, which the RCP checker writes, went to the copy


def test_a_good_system_passes_the_first_and_the_last_ruleset(system):
    report = check.check([system], ["1.0.0", "4.0.0"])
    assert report.ok and len(report.verdicts) == 10


def test_seeds(system):
    replace(system / "result_1.txt", '"key": "seed", "value": 22', '"key": "seed", "value": 5')
    report = check.check([system])
    assert any("seed 5 is that of result_0.txt too" in message for message in errors(report))
    [official] = [finding for finding in report.findings if finding.rule == "seed checker 1.1.0"]
    assert (
        official.file.name == "result_1.txt" and official.line == 8
        and "seed 5 is that of another run" in official.message)
    assert any(finding.rule == "package checker 1.1.0" for finding in report.findings)


def test_names_that_look_like_parts_of_a_message_change_no_finding(system):
    (system / "result_4.txt").unlink()
    replace(system / "result_1.txt", '"key": "seed", "value": 22', '"key": "seed", "value": 5')
    describe(system, host_networking=None)
    plain = check.check([system]).findings
    organisation = system.parents[2].rename(system.parents[3] / "So: me; body")
    (organisation / "systems" / "box.json").rename(organisation / "systems" / "bo: x; y.json")
    odd = (organisation / "results" / "box").rename(organisation / "results" / "bo: x; y") / "resnet"
    found = check.check([odd]).findings
    assert {each.rule for each in plain} >= {
        "seed checker 1.1.0", "package checker 1.1.0", "system description checker 1.1.0"}
    assert [each.message.replace("bo: x; y", "box") for each in found] == [each.message for each in plain]
    assert [
        str(each.file).replace("So: me; body", "Somebody").replace("bo: x; y", "box") for each in found
    ] == [str(each.file) for each in plain]


@pytest.mark.slow  # runs every official checker under several rulesets
def test_a_result_without_seeds_is_refused_by_the_official_checkers_and_not_by_us(system):
    for file in system.iterdir():
        file.write_text("".join(line for line in file.open() if '"key": "seed"' not in line))
    report = check.check([system])
    assert report.ok and {each.severity for each in report.findings} == {WARNING}
    said = {(each.rule, each.message) for each in report.findings}
    assert {
        ("the closed division logs its seeds, by the rules from v4.1 on", "no seed is logged"),
        ("seed checker 1.1.0", "the checker refuses a log without a seed"),
        ("package checker 1.1.0", f"box is refused: {package_checks._ONLY_OTHERS_ERRORS}")} == said


@pytest.mark.parametrize("word", ["onprem", "cloud", "available", "Available on premise"])
def test_a_word_that_the_checker_forgot_is_a_warning(system, word):
    describe(system, status=word)
    report = check.check([system], ["4.0.0"])
    assert report.ok and [each.rule for each in report.findings] == [
        "package checker 4.0.0", "system description checker 4.0.0"]
    assert report.findings[1].message.startswith(f"Field status contains a non valid value: {word}, must be")


def test_mixed_batch_sizes_are_named_and_not_the_crash_that_they_cause(system):
    replace(system / "result_4.txt", '"value": 3264', '"value": 3272')
    assert [message.split(" in result_0")[0] for message in errors(check.check([system]))] == [
        "the runs are not of one configuration: global_batch_size is 3264"]


def test_seeds_that_were_chosen_are_a_warning(tmp_path):
    files = [write(tmp_path, i, i + 1) for i in range(5)]
    report = check.check(files, ["1.0.0"])
    assert report.ok
    assert [(f.severity, f.message) for f in report.findings] == [
        (WARNING, "the seeds are 1 to 5, as if they had been chosen")]


def test_too_fast_a_convergence(system):
    fewer = [delete("eval_accuracy")] * 3
    earlier = [change("eval_accuracy", i, metadata={"epoch_num": 4 * i + 3}) for i in range(6)]
    rewrite(system, both(*fewer, *earlier), ALL)  # every evaluation 12 epochs earlier
    report = check.check([system])
    assert "the RCP check failed (RCP found): the runs need 23 epochs, fewer than chance allows" in errors(
        report)


def test_a_word_that_misleads_the_rcp_checker_is_named_and_its_crash_reported(system):
    replace(system / "result_2.txt", '"throughput"', '"eval_accuracy_of_epoch"')
    report = check.check([system])
    assert any("tracked_stats contains the word eval_accuracy" in message for message in errors(report))
    crashed = [finding for finding in report.findings if finding.rule == "reference convergence 1.1.0"]
    assert len(crashed) == 1 and crashed[0].message.startswith("the checker crashed: KeyError")
    assert not report.ok


def test_four_files(system):
    (system / "result_4.txt").unlink()
    assert any("4 result files, 5 are wanted" in message for message in errors(check.check([system])))


def test_two_that_missed_the_target(system):
    for name in ("result_1.txt", "result_3.txt"):
        replace(system / name, '"value": 0.76082', '"value": 0.75')
        replace(system / name, '"status": "success"', '"status": "aborted"')
    found = errors(check.check([system]))
    assert sum("missed the target: its best accuracy is 0.75000" in message for message in found) == 2
    assert any("2 files do not comply, and only one may" in message for message in found)
    assert any("the RCP check failed (Insufficient convergence)" in message for message in found)


@pytest.mark.parametrize(
    "changes, ruleset, says",
    [({"division": "Closed"}, "1.1.0", "division is 'Closed': the package checker then skips seeds"),
     ({"division": "open"}, "1.1.0", "division is open, but the logs say closed"),
     ({"cooling": None}, "1.1.0", "Missing field cooling"),
     ({"status": "on sale"}, "4.0.0", "Field status contains a non valid value: on sale"),
     ({"status": "onprem", "cooling": None}, "4.0.0", "Missing field cooling"),
     ({"accelerators_per_node": 8}, "1.1.0", "accelerators_per_node: no text")])
def test_descriptions(system, changes, ruleset, says):
    describe(system, **changes)
    report = check.check([system], [ruleset])
    assert not report.ok
    assert any(message.startswith(says) for message in errors(report)), errors(report)


@pytest.mark.parametrize(
    "text, says",
    [(None, "cannot be read"), ("{half", "no JSON"), ("[" * 99_999, "no JSON (nested deeper"),
     ("[]", "not a JSON object"),
     ('{"accelerators_per_node": "8", "accelerators_per_node": ""}',
      "'accelerators_per_node' has two values")])
def test_descriptions_that_are_none(system, text, says):
    description = tree.place(system).description
    description.unlink()
    if text is not None:
        description.write_text(text)
    report = check.check([system])
    assert any(message.startswith(says) for message in errors(report)), errors(report)
    [crashed] = [each.message for each in report.findings if each.rule == "package checker 1.1.0"]
    assert "crashed" in crashed and (text is not None or str(description) in crashed)


def label(file):
    replace(
        file, '"submission_platform", "value": "', f'"submission_platform", "value": "{rules.NOT_A_RESULT} ')


def test_a_demo_in_a_tree_is_named(system):
    for file in system.iterdir():
        label(file)
    assert any(rules.NOT_A_RESULT in message for message in errors(check.check([system])))


def test_a_demo_as_bare_files_holds(logs, tmp_path):
    for log in logs:
        text = (
            log.read_text() .replace('"value": 1281167', '"value": 10000')
            .replace('"value": 3264', '"value": 64'))
        (tmp_path / log.name).write_text(text)
        label(tmp_path / log.name)
    report = check.check([tmp_path])
    assert report.ok and report.findings == () and report.labels == (rules.NOT_A_RESULT,)
    assert {verdict.ruleset for verdict in report.verdicts} == set(check.DEFAULT_RULESETS)


def test_what_several_rulesets_say_alike_is_said_once(system):
    describe(system, cooling=None)
    found = [
        finding for finding in check.check([system], ["1.0.0", "1.1.0"]).findings
        if "cooling" in finding.message]
    assert [finding.rule for finding in found] == ["system description checker 1.0.0, 1.1.0"]


def test_a_checker_that_is_not_there_is_no_pass(system, monkeypatch):
    monkeypatch.setattr(checkers, "_started", None)
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    place = tree.place(system)
    found = package_checks.check_tree(
        place, [run.log for run in check._read(sorted(system.iterdir()), [])], ["1.1.0"])
    assert len(found) == 4 and all("the checker crashed: it was killed" in one.message for one in found)


def test_json_and_table(system):
    replace(system / "result_0.txt", '"value": 1281167', '"value": 1200000')
    report = check.check([system])
    plain = as_json(report)
    assert plain["ok"] is False and plain["labels"] == []
    [finding] = [finding for finding in plain["findings"] if "1,200,000" in finding["message"]]
    assert finding == {
        "severity": "error", "file": str(system / "result_0.txt"), "line": 184,
        "rule": "a result is of training on all 1,281,167 images of ImageNet",
        "message": "train_samples is 1,200,000, not 1,281,167",
        "remedy": "train on every image, and log 1281167"}
    stream = io.StringIO()
    check.print_report(report, Terminal(file=stream))
    assert "result_0.txt:184: train_samples is 1,200,000, not 1,281,167 [" in stream.getvalue()
    assert "not everything holds (2 errors, 0 warnings)" in stream.getvalue()


PUBLISHED = {
    "v1.0/Dell/results/XE8545x4A100-SXM-80GB": {("eval_samples is 49,999, not 50,000", WARNING): 5},
    "v1.0/Google/results/tpu-v4-256-JAX-Distributed-Shampoo": {
        ("the RCP check failed (RCP found)", WARNING): 1},
    "v1.0/Inspur/results/nf5488a5_mxnet": {("missed the target: its best accuracy is 0.75840", WARNING): 1},
    "v1.0/Inspur/results/nf5688m6_mxnet": {},
    "v1.0/Intel/results/1-node-8s-8380H-tensorflow": {
        ("missed the target: its best accuracy is 0.75856", WARNING): 1,
        ("the status of run_stop is 'fail'", WARNING): 1, ("eval_samples is 3,125, not 50,000", WARNING): 5,
        ("gradient_accumulation_steps comes after run_stop", WARNING): 5},
    "v1.1/Baidu/results/1_node_8_A100_PaddlePaddle": {
        ("weights_initialization does not name the 161 tensors", ERROR): 5,
        ("missed the target: its best accuracy is 0.75794", WARNING): 1,
        ("5 files do not comply, and only one may", ERROR): 1},
    "v2.0/Dell/results/2xXE8545x4A100-SXM-40GB": {
        ("missed the target: its best accuracy is 0.75894", WARNING): 1,
        ("submission_org is logged 2 times", WARNING): 5},
    "v2.1/HPE/results/HPE-ProLiant-XL675d-Gen10-Plus_A100-SXM-80GB_16N_mxnet": {
        ("run_stop is not logged", WARNING): 1, ("eval_accuracy is not logged", WARNING): 1}}


@needs_published
@pytest.mark.parametrize("system", PUBLISHED)
def test_every_defect_of_the_published_systems_is_named(system):
    report = check.check([LOGS / system])
    for (says, severity), count in PUBLISHED[system].items():
        found = [finding for finding in report.findings if says in finding.message]
        assert [finding.severity for finding in found] == [severity] * count, (says, report.findings)
    assert report.ok == (not any(severity == ERROR for _, severity in PUBLISHED[system]))
    assert not any("crashed" in finding.message for finding in report.findings)


def test_a_finding_on_several_files_is_printed_once():
    found = [
        Finding(
            WARNING, pathlib.Path(f"result_{number}.txt"), 4, "rules 3", "caches were not cleared",
            "clear them")
        for number in range(3)]
    found.append(Finding(ERROR, pathlib.Path("result_1.txt"), None, "rules 4", "no seed", "run again"))
    text = io.StringIO()
    print_findings(found, Terminal(file=text))
    assert text.getvalue().splitlines() == [
        "warning: result_0.txt:4 and 2 more: caches were not cleared [rules 3]; clear them",
        "error: result_1.txt: no seed [rules 4]; run again"]


def test_findings_that_differ_in_their_numbers_are_printed_once_if_they_are_many():
    def lines(count):
        text = io.StringIO()
        file = pathlib.Path("result_0.txt")
        found = [Finding(ERROR, file, n, "rule", f"block {n} has no stop", "log it") for n in range(count)]
        print_findings(found, Terminal(file=text))
        return text.getvalue().splitlines()

    assert lines(147) == [
        "error: result_0.txt:0 and 146 more with other numbers: block 0 has no stop [rule]; log it"]
    assert len(lines(5)) == 5


def test_numbers_of_a_description_are_named_once_and_not_as_a_crash(system):
    describe(system, number_of_nodes=1, accelerators_per_node=8)
    report = check.check([system], ["1.1.0", "4.0.0"])
    [error] = [finding for finding in report.findings if finding.severity == ERROR]
    assert error.message == "number_of_nodes, accelerators_per_node: no text"
    assert error.file == tree.place(system).description and error.remedy.startswith('quote it, as in "8"')

"""Every way to spoil a log gets a verdict and a sentence, none a traceback.

Processes: memory is that of a process.
"""

import json
import pathlib
import subprocess
import sys

import pytest

from rn50.benchmark import rules
from rn50.results import parse, run
from rn50.results.validity import result_rules
from rn50.results.validity.findings import ERROR, WARNING
from rn50.submission import check
from tests.conftest import every_fourth
from tests.results.mutations import both, change, delete, double, insert, join, move, position, value
from tests.support import imagenet_run

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULESET = "1.1.0"  # the strictest: it compares the names of the tensors, too


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    """The text of a log that everything accepts."""
    return imagenet_run.write(tmp_path_factory.mktemp("valid") / "result_0.txt").read_text()


LAST = len(imagenet_run.ACCURACIES) - 1
BAD = {
    # deleted
    "no benchmark": (delete("submission_benchmark"), "submission_benchmark is not logged"),
    "no org": (delete("submission_org"), "submission_org is not logged"),
    "no division": (delete("submission_division"), "submission_division is not logged"),
    "no status": (delete("submission_status"), "submission_status is not logged"),
    "no platform": (delete("submission_platform"), "submission_platform is not logged"),
    "no cache_clear": (delete("cache_clear"), "cache_clear is not logged"),
    "no init_start": (delete("init_start"), "init_start is not logged"),
    "no init_stop": (delete("init_stop"), "init_stop is not logged"),
    "no run_start": (delete("run_start"), "run_start is not logged"),
    "no run_stop": (delete("run_stop"), "run_stop is not logged"),
    "no batch size": (delete("global_batch_size"), "global_batch_size is not logged"),
    "no accumulation": (delete("gradient_accumulation_steps"), "gradient_accumulation_steps is not logged"),
    "no optimizer": (delete("opt_name"), "opt_name is not logged"),
    "no momentum": (delete("lars_opt_momentum"), "lars_opt_momentum is not logged"),
    "no train_samples": (delete("train_samples"), "train_samples is not logged"),
    "no eval_samples": (delete("eval_samples"), "eval_samples is not logged"),
    "no tensor": (delete("weights_initialization", 7), "1 missing"),
    "no epoch_start": (delete("epoch_start", 16), "epoch_stop has no epoch_start before it"),
    "no epoch_stop": (delete("epoch_stop", 16), "epoch_start comes again before a epoch_stop"),
    "no epoch": (
        both(delete("epoch_start", 16), delete("epoch_stop", 16)),
        "epoch_start of epoch 18 follows that of epoch 16"),
    "no eval_stop": (delete("eval_stop", 3), "eval_start comes again"),
    "no block_start": (delete("block_start", 3), "block_stop has no block_start before it"),
    "no evaluation": (delete("eval_accuracy", 3), "an evaluation of epoch 19 comes after that of epoch 11"),
    "no last evaluation": (
        delete("eval_accuracy", LAST), "the status is success, but no evaluation reaches 0.759"),
    # doubled
    "two run_start": (double("run_start"), "run_start logged 2 times"),
    "two run_stop": (double("run_stop"), "run_stop logged 2 times"),
    "seed of every rank": (double("seed"), "seed is logged 2 times"),
    "two batch sizes": (
        both(double("global_batch_size"), value("global_batch_size", 1632)), "2 times with different values"),
    "two orgs": (
        both(double("submission_org"), value("submission_org", "Other")), "2 times with different values"),
    "two evaluations of an epoch": (
        double("eval_accuracy", 3), "an evaluation of epoch 15 comes after that of epoch 15"),
    "two of a tensor": (double("weights_initialization", 7), "1 logged twice"),
    "an epoch twice": (both(double("epoch_stop", 4), double("epoch_start", 4)), "epoch_start comes again"),
    # reordered
    "clock before init_stop": (move("run_start", "init_stop"), "run_start null fails the test"),
    "stop before start": (move("run_stop", "run_start"), "run_stop null fails the test"),
    "an epoch before the clock": (move("epoch_start", "run_start"), "epoch_start comes before run_start"),
    "an evaluation before its epochs": (move("eval_accuracy", "epoch_start", 4, 2), "earlier than"),
    "init_start after init_stop": (move("init_start", "run_start"), "init_stop null fails the test"),
    # wrong values
    "some of the samples": (
        both(
            value("eval_samples", 100), *[value("eval_accuracy", 0.36 + 0.05 * i, i) for i in range(LAST + 1)]
        ),
        "eval_samples is 100, not 50,000"),
    "no whole number of right answers": (
        value("eval_accuracy", 0.760255205104102, LAST), "not a multiple of 1/50,000"),
    "percent": (value("eval_accuracy", 76.082, LAST), "is not a fraction between 0 and 1"),
    "below the target": (
        value("eval_accuracy", 0.75898, LAST), "the status is success, but no evaluation reaches 0.759"),
    "NaN": (
        value("eval_accuracy", float("nan"), 2),
        "eval_accuracy is NaN, which is below the target (1 of 9 are)"),
    "Closed": (value("submission_division", "Closed"), 'submission_division is "Closed"'),
    "a status that there is not": (
        value("submission_status", "available"), 'submission_status "available" fails the test'),
    "empty org": (value("submission_org", ""), 'submission_org "" fails the test'),
    "momentum": (
        value("lars_opt_momentum", 0.95), "lars_opt_momentum is 0.95 at a global batch size of 3,264"),
    "weight decay": (value("lars_opt_weight_decay", 0.00003), "lars_opt_weight_decay 3e-05 fails the test"),
    "epsilon": (value("lars_epsilon", 1e-6), "lars_epsilon 1e-06 fails the test"),
    "end learning rate": (
        value("lars_opt_end_learning_rate", 0.0), "lars_opt_end_learning_rate 0.0 fails the test"),
    "power": (
        value("lars_opt_learning_rate_decay_poly_power", 1),
        "lars_opt_learning_rate_decay_poly_power 1 fails the test"),
    "adam": (value("opt_name", "adam"), 'opt_name is "adam"'),
    "batch size as text": (value("global_batch_size", "3264"), 'global_batch_size "3264" is of a type'),
    "batch size of none": (value("global_batch_size", 0), "global_batch_size 0 fails the test"),
    "weight decay of null": (value("lars_opt_weight_decay", None), "lars_opt_weight_decay null is of a type"),
    "seed as text": (value("seed", "random"), "seed 'random' is not a whole number"),
    "accuracy as text": (value("eval_accuracy", "0.76", 2), "eval_accuracy '0.76' is not a fraction"),
    "tensor by another name": (
        change("weights_initialization", 7, metadata={"tensor": "layer1.0.bn1.weight"}),
        "1 unknown (layer1.0.bn1.weight)"),
    "stop of fail": (change("run_stop", metadata={"status": "fail"}), "the status of run_stop is 'fail'"),
    "stop without status": (change("run_stop", metadata={"status": None}), "run_stop without a status"),
    "aborted at the target": (
        change("run_stop", metadata={"status": "aborted"}), "the status is aborted, but epoch 35 reached"),
    "success below it": (
        value("eval_accuracy", 0.75898, LAST), "the status is success, but no evaluation reaches 0.759"),
    "on after the target": (
        value("eval_accuracy", 0.759, LAST - 1), "goes on to epoch 35 after epoch 31 reached"),
    "evaluation without epoch": (
        change("eval_accuracy", 2, metadata={"epoch_num": None}), "eval_accuracy without its epoch_num"),
    "another cadence": (
        change("eval_accuracy", 2, metadata={"epoch_num": 10}),
        "an evaluation of epoch 10 comes after that of epoch 7"),
    "late first evaluation": (
        both(*[delete("eval_accuracy")] * 2), "an evaluation of epoch 11 comes as the first"),
    "clock set back": (change("eval_stop", 5, time_ms=1_600_000_000_000), "s earlier than"),
    "time as text": (change("eval_stop", 5, time_ms="soon"), "not an MLPerf record"),
    "a word of the RCP checker": (
        change("tracked_stats", 3, value={"eval_accuracy_so_far": 0.4}),
        "tracked_stats contains the word eval_accuracy"),
    "label smoothing": (
        insert("Namespace(label_smoothing=0.2, lr=10.5)\n", "run_start"), "label smoothing is 0.2"),
    "resized images": (
        change("train_samples", metadata={"short_side": 256}), "were resized to a shorter side of 256"),
    # broken as a file
    "truncated": (lambda text: text[: len(text) * 2 // 3], "not an MLPerf record"),
    "cut after a line": (
        lambda text: "".join(text.splitlines(keepends=True)[:250]), "run_stop is not logged"),
    "two records on a line": (join("global_batch_size"), "several records stand here"),
    "invalid JSON": (insert(":::MLLOG {bad\n", "run_start"), "not an MLPerf record"),
    "a list": (insert(":::MLLOG [1, 2]\n", "run_start"), "not an MLPerf record"),
    "nested": (insert(":::MLLOG " + "[" * 50_000 + "\n", "run_start"), "not an MLPerf record"),
    "another benchmark": (value("submission_benchmark", "bert"), "a log of bert"),
    "no log": (lambda text: text.replace(":::MLLOG", ":::MLL"), "no :::MLLOG line in it"),
    "empty": (lambda text: "", "no :::MLLOG line in it"),
    "without the space": (lambda text: text.replace(":::MLLOG ", ":::MLLOG"), "is not logged"),
    "keys in capitals": (lambda text: text.replace('"run_stop"', '"RUN_STOP"'), "run_stop is not logged"),
}
GOOD = {
    "as it is": lambda text: text, "CRLF": lambda text: text.replace("\n", "\r\n"),
    "prefix of mpirun": lambda text: "".join(
        f"[1,0]<stdout>:{line}" for line in text.splitlines(keepends=True)),
    "prefix of srun": lambda text: "".join(f"0: {line}" for line in text.splitlines(keepends=True)),
    "noise": lambda text: "".join(f"{line}noise {'x' * 200}\n" for line in text.splitlines(keepends=True)),
    "progress bars": lambda text: "".join(f" 65%|###  |\r{line}" for line in text.splitlines(keepends=True)),
    "not UTF-8": lambda text: "caf\udce9 \udcff\udcfe\n" + text,
    "no new line at the end": lambda text: text.rstrip("\n"),
    "empty lines": lambda text: text.replace("\n", "\n\n"),
    "the last epoch without a stop": delete("epoch_stop", -1),
    "0.759 itself": value("eval_accuracy", 0.759, LAST),
    "an accuracy in float32": value("eval_accuracy", 0.7607000470161438, LAST),
    "an accuracy off by 0.03 of an image": value("eval_accuracy", 0.7607005869140625, LAST),
    "smoothing of 0.1": insert("Namespace(label_smoothing=0.1, lr=10.5)\n", "run_start"),
    "ranks a few ms apart": change("eval_stop", 5, time_ms=imagenet_run.EPOCH_MS * 23 + 1_700_000_000_000)}


def checked(tmp_path, text):
    file = tmp_path / "result_0.txt"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    report = check.check([file], [RULESET])
    for finding in report.findings:
        assert finding.file == file and finding.message and finding.rule and finding.remedy
        assert "\n" not in finding.message + finding.remedy and len(finding.message) < 400
        assert finding.line is None or 1 <= finding.line <= text.count("\n") + 1
    return report


@pytest.mark.parametrize("name", every_fourth(BAD))
def test_a_spoilt_log_is_refused_in_a_sentence(tmp_path, valid, name):
    mutate, says = BAD[name]
    assert mutate(valid) != valid
    report = checked(tmp_path, mutate(valid))
    assert not report.ok
    errors = [finding.message for finding in report.findings if finding.severity == ERROR]
    assert any(says in message for message in errors), errors


@pytest.mark.parametrize("name", every_fourth(GOOD))
def test_what_does_no_harm_is_accepted(tmp_path, valid, name):
    report = checked(tmp_path, GOOD[name](valid))
    assert report.ok and report.findings == ()


def test_evaluations_may_begin_at_epoch_0(tmp_path):
    text = imagenet_run.write(tmp_path / "result_0.txt", EVAL_OFFSET="3").read_text()
    lines = text.splitlines(keepends=True)
    records = [
        json.loads(lines[position(lines, key)].split(" ", 1)[1]) for key in ("eval_start", "eval_stop")]
    at = json.loads(lines[position(lines, "block_start")].split(" ", 1)[1])["time_ms"]
    records.insert(1, {**records[0], "key": "eval_accuracy", "value": 0.001})
    first = "".join(
        ":::MLLOG " + json.dumps({**each, "time_ms": at, "metadata": {"epoch_num": 0}}) + "\n"
        for each in records)
    assert checked(tmp_path, insert(first, "block_start")(text)).findings == ()


def test_there_are_sixty():
    assert len(BAD) + len(GOOD) >= 60


@pytest.mark.parametrize(
    "mutate, says",
    [(move("train_samples", "run_start"), "train_samples comes before run_start"),
     (value("cache_clear", False), "cache_clear is false"),
     (double("train_samples"), "train_samples is logged 2 times with one value"),
     (delete("seed"), "no seed is logged"),
     (value("submission_org", "SUBMISSION_ORG_PLACEHOLDER"),
      'submission_org is "SUBMISSION_ORG_PLACEHOLDER", a placeholder'),
     (both(value("global_batch_size", 32_256), value("lars_opt_momentum", 0.95)),
      "lars_opt_momentum is 0.95 at a global batch size of 32,256"),
     (value("eval_samples", 49_999), "eval_samples is 49,999, not 50,000"),
     (value("eval_samples", 123), "eval_samples is 123, not 50,000"),
     (value("train_samples", 1_281_168), "train_samples is 1,281,168, not 1,281,167"),
     (move("eval_accuracy", "eval_start", 3, 3), "the accuracy of epoch 15 comes before its eval_start"),
     (change("cache_clear", time_ms=1_800_000_000_000), "earlier than cache_clear"),
     (move("gradient_accumulation_steps", "run_stop", to_number=-1), "earlier than"),
     (both(value("eval_accuracy", 0.75898, LAST), change("run_stop", metadata={"status": "aborted"})),
      "the run missed the target: its best accuracy is 0.75898, after epoch 35, and the target 0.759")],
    ids=[
        "samples before the clock", "caches not cleared", "a harmless double", "no seed before v4.1",
        "no name", "a batch between 32,000 and 32,768", "all but one", "batches", "whole batches",
        "an accuracy before its eval_start", "a record of another program", "a late record",
        "a run that missed the target"])
def test_what_a_reviewer_asks_is_a_warning(tmp_path, valid, mutate, says):
    report = checked(tmp_path, mutate(valid))
    assert report.ok and [finding.severity for finding in report.findings] == [WARNING]
    assert says in report.findings[0].message


def test_a_finding_names_its_line(tmp_path, valid):
    lines = valid.splitlines()
    for mutate, key in (
        (value("eval_samples", 49_999), "eval_samples"), (value("lars_epsilon", 1e-6), "lars_epsilon"),
    ):
        [finding] = checked(tmp_path, mutate(valid)).findings
        assert finding.line == position(lines, key) + 1


def test_open_division_may_choose_its_hyperparameters(tmp_path, valid):
    opened = value("submission_division", "open")(valid)
    log = checked(tmp_path, value("lars_opt_momentum", 0.95)(opened))
    assert not any("momentum" in finding.message for finding in log.findings)


def test_cadence_and_samples_are_those_of_imagenet(tmp_path, valid):
    demo = both(
        value("submission_platform", f"box ({rules.NOT_A_RESULT})"), value("train_samples", 10_000),
        value("eval_samples", 2_000), delete("eval_accuracy", 3))(valid)
    report = checked(tmp_path, demo)
    assert [finding.message for finding in report.findings if "multiple" not in finding.message] == []


def test_label_smoothing_of_our_own_runs_is_read_beside_them(tmp_path, valid):
    file = tmp_path / "result_0.txt"
    file.write_text(valid)
    for smoothing, findings in ((0.2, 1), (0.1, 0)):
        file.with_suffix(".json").write_text(
            json.dumps({"config": {"hyperparameters": {"label_smoothing": smoothing}}}))
        assert len(result_rules.judge([run.read_run(file)], [RULESET]).findings) == findings


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lines", "one line", "broken records"])
def test_memory_stays_flat_on_a_large_file(tmp_path, valid, kind):
    file = tmp_path / "result_0.txt"
    noise = {
        "lines": b"x" * 199 + b"\n", "one line": b"x" * 200,
        "broken records": b":::MLLOG {bad" + b"x" * 186 + b"\n"}[kind]
    with file.open("wb") as stream:
        for line in valid.encode().splitlines(keepends=True)[:-1]:
            stream.write(line)
        for _ in range(300):
            stream.write(noise * 5000)  # 1 MB
        if kind == "one line":
            stream.write(b"\n")
        stream.write(valid.encode().splitlines(keepends=True)[-1])
    program = (
        "import pathlib, resource, sys\n" "from rn50.results import parse\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "log = parse.read_log(pathlib.Path(sys.argv[1]))\n"
        "parse.copy_records(log.path, log.path.with_suffix('.copy')) if sys.argv[2] != 'broken records' "
        "else None\n"
        "print(log.status, len(log.findings), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) "
        "// 1024)\n")
    command = [sys.executable, "-c", program, str(file), kind]
    status, findings, grown_mib = subprocess.run(
        command, cwd=str(ROOT), check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    assert status == "success"
    assert int(findings) == (parse.MOST_FINDINGS + 1 if kind == "broken records" else 0)
    assert int(grown_mib) < 30
    if kind != "broken records":
        assert file.with_suffix(".copy").stat().st_size < 3 << 20

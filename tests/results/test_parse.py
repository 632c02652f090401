"""The reader of result files, on logs written here line by line and on published ones."""

import csv
import json
import pathlib

import pytest

from rn50.errors import UserError
from rn50.results import parse, result_files
from tests.support.published import FOLDER, LOGS, needs_published


def record(key, value=None, time_ms=1000, **metadata):
    """One log line as the official logging package writes it."""
    event = {
        "namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value,
        "metadata": metadata}
    return ":::MLLOG " + json.dumps(event)


@pytest.fixture
def read(tmp_path):
    """Writes lines to a file and reads it."""

    def write_and_read(*lines):
        file = tmp_path / "result_0.txt"
        file.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
        return parse.read_log(file)

    return write_and_read


def test_a_whole_run(read):
    log = read(
        "+ ./run_and_time.sh", record("submission_benchmark", "resnet"), record("submission_org", "Somebody"),
        record("submission_division", "closed"), record("submission_status", "onprem"),
        record("submission_platform", "8xBox"), record("seed", 17), record("global_batch_size", 3264),
        record("run_start", time_ms=60_000), record("train_samples", 1281167), record("eval_samples", 50000),
        record("eval_accuracy", 0.75, epoch_num=31), record("eval_accuracy", 0.7591, epoch_num=35),
        record("eval_accuracy", 0.77, epoch_num=39), record("run_stop", time_ms=150_000, status="success"))
    assert log.findings == ()
    assert (log.benchmark, log.org, log.division) == ("resnet", "Somebody", "closed")
    assert (log.submission_status, log.platform) == ("onprem", "8xBox")
    assert (log.seed, log.global_batch_size, log.train_samples, log.eval_samples) == (
        17, 3264, 1281167, 50000)
    assert (log.run_start_ms, log.run_stop_ms, log.minutes, log.status) == (60_000, 150_000, 1.5, "success")
    assert [(e.epoch, e.accuracy) for e in log.evaluations] == [(31, 0.75), (35, 0.7591), (39, 0.77)]
    assert log.reached == parse.Evaluation(35, 0.7591)
    assert [event.line for event in log.events] == list(range(2, 16))


@pytest.mark.parametrize(
    "prefix",
    ["0: ", "[1,0]<stdout>:", "I0519 04:12:01.123456 140 mllog.py:117] ",
     "2022-10-14 13:09:22,161 Node[23] arguments Namespace(a='1'", " 64%|###  |\r"])
def test_prefixes_are_passed_over(read, prefix):
    log = read(prefix + record("seed", 3) + "\r", "noise")
    assert (log.seed, log.findings) == (3, ())


def test_a_progress_bar_after_a_record_is_no_part_of_it(read):
    log = read(record("seed", 3) + "\r 65%|###", record("train_samples", 10))
    assert (log.seed, log.train_samples, log.findings) == (3, 10, ())


def test_two_records_on_one_line_are_two_and_a_finding(read):
    log = read(record("seed", 3) + record("train_samples", 10))
    assert (log.seed, log.train_samples) == (3, 10)
    assert log.findings == ("line 1: several records stand here, and the official reader sees the last",)


def test_bytes_that_are_no_text_do_no_harm(read):
    assert read("\udcff\udcfe caf\udce9", record("seed", 3)).seed == 3


@pytest.mark.parametrize(
    "broken",
    [":::MLLOG {bad", ":::MLLOG ", ":::MLLOG [1, 2]", ":::MLLOG 5",
     ':::MLLOG {"key": "seed", "value": 1, "metadata": {}}', record("seed", 1).replace("1000", '"soon"'),
     record("seed", 1).replace("1000", "Infinity"), record("seed", 1).replace("{}", "[1]"),
     record("seed", 1) + " trailing text", ":::MLLOG " + "[" * 100_000])
def test_a_broken_record_is_a_finding_and_the_rest_is_read(read, broken):
    log = read("first line", broken, record("seed", 3))
    assert log.seed == 3
    assert len(log.findings) == 1 and log.findings[0].startswith("line 2: not an MLPerf record")


@pytest.mark.parametrize("value", [75.95, "0.76", {"accuracy": 0.76}, None, True, float("inf"), -0.1])
def test_an_accuracy_that_is_no_fraction_is_not_counted(read, value):
    log = read(record("eval_accuracy", value, epoch_num=3))
    assert log.evaluations == ()
    assert "line 1: eval_accuracy" in log.findings[0] and "not a fraction" in log.findings[0]


def test_an_accuracy_in_percent_is_told_its_fraction(read):
    log = read(record("eval_accuracy", 31.948, epoch_num=3))
    assert log.findings[0].endswith(
        "is not a fraction between 0 and 1; not counted; log the fraction: 0.31948")


def test_nan_is_an_evaluation_below_the_target(read):
    log = read(record("eval_accuracy", float("nan"), epoch_num=3), record("eval_accuracy", 0.76, epoch_num=7))
    assert log.findings == () and [one.accuracy for one in log.evaluations] == [0, 0.76]


def test_an_accuracy_without_its_epoch_is_not_counted(read):
    log = read(record("eval_accuracy", 0.8))
    assert log.evaluations == () and log.reached is None
    assert log.findings == ("line 1: eval_accuracy without its epoch_num; not counted",)


@pytest.mark.parametrize("accuracy, reached", [(0.759, True), (0.7589999, False), (1, True)])
def test_the_target_itself_is_enough(read, accuracy, reached):
    assert (read(record("eval_accuracy", accuracy, epoch_num=35.0)).reached is not None) == reached


def test_unfinished_and_not_started_runs(read):
    assert read(record("seed", 1)).status == parse.NOT_STARTED
    log = read(record("run_start", time_ms=5), record("eval_accuracy", 0.3, epoch_num=3))
    assert (log.status, log.run_start_ms, log.run_stop_ms, log.minutes) == (parse.UNFINISHED, 5, None, None)


def test_a_stop_without_status_or_before_the_start_is_found(read):
    log = read(record("run_start", time_ms=5), record("run_stop", time_ms=9))
    assert (log.status, log.findings) == (parse.UNFINISHED, ("line 2: run_stop without a status",))
    log = read(record("run_start", time_ms=9), record("run_stop", time_ms=5, status="success"))
    assert (log.status, log.minutes) == (parse.UNFINISHED, None)
    assert log.findings == ("line 2: run_stop is earlier than run_start; not counted",)


def test_repeated_keys(read):
    same = read(record("seed", 4), record("seed", 4))
    assert (same.seed, same.findings) == (4, ())
    different = read(record("seed", 4), "", record("seed", 5))
    assert (different.seed, different.findings) == (
        4, ("line 3: seed logged 2 times; the first, in line 1, counts",))
    two_runs = read(record("run_start"), record("run_start"))
    assert two_runs.findings == ("line 2: run_start logged 2 times; the first, in line 1, counts",)


def test_a_count_that_is_no_whole_number_is_found(read):
    log = read(record("train_samples", "many"), record("eval_samples", 12.5), record("seed", 7.0))
    assert (log.train_samples, log.eval_samples, log.seed) == (None, None, 7)
    assert log.findings == (
        "line 1: train_samples 'many' is not a whole number",
        "line 2: eval_samples 12.5 is not a whole number")


def test_what_is_no_log_is_the_users_error(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(UserError, match=r"empty\.txt: no :::MLLOG line"):
        parse.read_log(tmp_path / "empty.txt")
    with pytest.raises(UserError, match="absent.txt: cannot be read"):
        parse.read_log(tmp_path / "absent.txt")


def test_find_result_files(tmp_path):
    for name in ("result_10.txt", "result_2.txt", "result_3.txt.partial", "result_x.txt", "other.log"):
        (tmp_path / name).write_text("")
    two, ten, x, other = (
        tmp_path / name for name in ("result_2.txt", "result_10.txt", "result_x.txt", "other.log"))
    assert result_files.find_result_files([tmp_path]) == [two, ten, x]
    assert result_files.find_result_files([ten, tmp_path, other]) == [ten, two, x, other]


def test_find_result_files_takes_this_benchmark_of_a_published_tree(tmp_path):
    for benchmark in ("bert", "resnet"):
        folder = tmp_path / "Org" / "results" / "box" / benchmark
        folder.mkdir(parents=True)
        (folder / "result_0.txt").write_text("")
    expected = [tmp_path / "Org" / "results" / "box" / "resnet" / "result_0.txt"]
    assert result_files.find_result_files([tmp_path]) == expected
    assert result_files.find_result_files([tmp_path / "Org" / "results" / "box"]) == expected


def test_find_result_files_refuses_what_is_not_there(tmp_path):
    with pytest.raises(UserError, match="absent: no such file or folder"):
        result_files.find_result_files([tmp_path / "absent"])
    with pytest.raises(UserError, match=r"no result_\*\.txt below it"):
        result_files.find_result_files([tmp_path])
    with pytest.raises(UserError, match="the name of a published result; give its logs"):
        result_files.find_result_files([pathlib.Path("v1.0/inspur/nf5688m6_mxnet")])
    (tmp_path / "result_0.txt.partial").touch()
    with pytest.raises(UserError, match=rf"a run goes on there, or was .*: rn50 watch {tmp_path} tells$"):
        result_files.find_result_files([tmp_path])


def test_the_logs_of_a_folder_may_have_names_of_their_own(tmp_path):
    names = ["230501_2.log", "230501_10.log"]
    for name in (*names, "result_0.txt.partial", "notes.txt"):
        (tmp_path / name).touch()
    assert result_files.find_result_files([tmp_path]) == [tmp_path / name for name in names]


@needs_published
def test_published_logs_agree_with_the_table_of_results():
    with (FOLDER / "resnet_results.csv").open(newline="", encoding="utf-8") as table:
        rows = {(row["version"], row["org"], row["system"]): row for row in csv.DictReader(table)}
    folders = sorted((LOGS).glob("*/*/results/*/resnet"))
    assert len(folders) == 8
    for folder in folders:
        version, org, _, system = folder.parts[-5:-1]
        row = rows[version, org, system]
        logs = [parse.read_log(file) for file in result_files.find_result_files([folder])]
        assert [log.findings for log in logs] == [()] * 5
        assert [log.evaluations[-1].epoch if log.evaluations else "None" for log in logs] == [
            int(epoch) if epoch != "None" else epoch for epoch in row["epochs"].split()]
        expected = row["run_minutes"].split()
        assert ["NA" if log.minutes is None else f"{log.minutes:.4f}" for log in logs] == expected
        assert {log.global_batch_size for log in logs} == {int(row["gbs"])}

"""Two ranks make one run: one log, every sample once."""

import json

import pytest

from tests.conftest import EVAL_SAMPLES, TRAIN_SAMPLES
from tests.support import documented
from tests.system.job import BUSY_S, RN50, Job, events

TARGET_MISSED, USER_CAN_MEND = 3, 2
BENCH_COMM = (*RN50, "bench", "comm", "--largest-mib", "1")


def test_a_run_of_two_ranks_is_one_log(start, results, two_ranks):
    job = start(**two_ranks, EVAL_PERIOD="2", EVAL_OFFSET="0")
    assert job.wait(BUSY_S) == TARGET_MISSED, job.err
    assert job.complaints == []
    logged = events(results / "result_1.txt")
    values = {event["key"]: event["value"] for event in logged}
    assert [event["key"] for event in logged].count("seed") == 1
    assert values["global_batch_size"] == 32
    assert (values["train_samples"], values["eval_samples"]) == (TRAIN_SAMPLES, EVAL_SAMPLES)
    # A share of all 57, so no image was left out and none was counted on both ranks: a wrong number ends the
    # run with status 2.
    assert values["eval_accuracy"] * EVAL_SAMPLES == pytest.approx(
        round(values["eval_accuracy"] * EVAL_SAMPLES))
    assert logged[-1]["key"] == "run_stop" and logged[-1]["metadata"]["status"] == "aborted"
    assert sorted(path.name for path in results.iterdir()) == [
        "result_0.txt", "result_1.json", "result_1.txt"]


def test_sums_are_timed_by_size(tiny_environment, two_ranks):
    job = Job({**tiny_environment, **two_ranks, "MXNET_SAFE_ACCUMULATION": "1"}, [*BENCH_COMM, "--json"])
    assert job.wait(BUSY_S) == 0, job.err
    report = json.loads(job.out)
    assert documented.differences("bench comm", report) == []
    assert (report["library"], report["ranks"]) == (
        {"python": "shared memory", "horovodrun": "Gloo"}[two_ranks["LAUNCHER"]], 2)
    assert (
        report["environment"]["MXNET_SAFE_ACCUMULATION"] == "1"
        and "HOROVOD_RANK" not in report["environment"])
    rows = report["all_reduce"]
    assert [row["bytes"] for row in rows] == [4**power for power in range(1, 11)]
    for row in rows:
        assert 0 < row["fastest_seconds"] <= row["seconds"] < 10
        assert row["bus_gb_per_second"] == pytest.approx(
            row["bytes"] / row["seconds"] / 1e9
        )  # 2 (n - 1) / n is 1 of two ranks


def test_one_rank_has_no_sums_to_time(tiny_environment):
    job = Job(tiny_environment, BENCH_COMM)
    assert job.wait() == USER_CAN_MEND
    assert job.complaint == "rn50: DGXNGPU=1: one rank has nothing to send; set DGXNGPU=2 or more"

"""Two ranks make one run: one log, every sample once."""

import pytest

from tests.conftest import EVAL_SAMPLES, TRAIN_SAMPLES
from tests.system.job import events

TARGET_MISSED = 3


@pytest.mark.usefixtures("horovod")
def test_a_run_of_two_ranks_is_one_log(start, results):
    job = start(DGXNGPU="2", EVAL_PERIOD="2", EVAL_OFFSET="0")
    assert job.wait() == TARGET_MISSED, job.err
    assert job.complaints == []
    logged = events(results / "result_1.txt")
    values = {event["key"]: event["value"] for event in logged}
    assert [event["key"] for event in logged].count("seed") == 1
    assert values["global_batch_size"] == 32
    assert (values["train_samples"], values["eval_samples"]) == (TRAIN_SAMPLES, EVAL_SAMPLES)
    # A share of all 57, so no image was left out and none was counted on both ranks: a wrong number ends the run with status 2.
    assert values["eval_accuracy"] * EVAL_SAMPLES == pytest.approx(round(values["eval_accuracy"] * EVAL_SAMPLES))
    assert logged[-1]["key"] == "run_stop" and logged[-1]["metadata"]["status"] == "aborted"
    assert sorted(path.name for path in results.iterdir()) == ["result_0.txt", "result_1.json", "result_1.txt"]

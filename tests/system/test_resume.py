"""A run that was killed goes on from its checkpoint, to the last bit as if it had not been."""

import signal

import numpy as np
import pytest

from rn50.benchmark import rules
from rn50.results import parse, run, score
from rn50.weights import weights_file
from tests.contract.frameworks import installed
from tests.system.job import BUSY_S, RN50, Job, configuration_file, events

TARGET_MISSED = 3
RUN = {
    "NUMEPOCHS": "5", "EVAL_OFFSET": "0", "EVAL_PERIOD": "2", "CHECKPOINT_EPOCHS": "2", "SAVE_WEIGHTS": "1"}


def epochs_begun(log):
    partial = log.with_name(log.name + ".partial")
    begun = (
        event for event in (events(partial) if partial.exists() else ()) if event["key"] == "epoch_start")
    return [event["metadata"]["epoch_num"] for event in begun]


def killed_in_epoch(job, log, epoch):
    """Kill every rank as soon as an epoch has begun."""
    job.until(lambda: epoch in epochs_begun(log))
    for rank in job.ranks().values():
        rank.kill()
    assert job.wait() == 128 + signal.SIGKILL


@pytest.mark.parametrize("framework, ranks", [("mxnet", "2"), ("paddle", "1"), ("pytorch", "1")])
def test_a_killed_run_goes_on_as_if_it_had_not_been(tiny_environment, tmp_path, framework, ranks):
    installed(framework)
    environment = {**tiny_environment, **RUN, "FRAMEWORK": framework, "DGXNGPU": ranks}
    whole, log = tmp_path / "result_0.txt", tmp_path / "result_1.txt"
    job = Job({**environment, "RESULT_FILE": str(whole)})
    assert job.wait(BUSY_S) == TARGET_MISSED, job.err
    assert not whole.with_name("result_0.checkpoint.safetensors").exists()
    killed_in_epoch(Job({**environment, "RESULT_FILE": str(log)}), log, 4)
    saved = log.with_name("result_1.checkpoint.safetensors")
    assert saved.exists()
    job = Job(
        {**environment, "RESULT_FILE": str(log), "RESUME": "1", "SEED": "99"}
    )  # the seed is that of the checkpoint
    assert job.wait(BUSY_S) == TARGET_MISSED, job.err
    assert f"goes on after epoch 2 of {saved}; {rules.RESUMED}" in job.err and not saved.exists()
    one, other = (parse.read_log(file) for file in (whole, log))
    assert [each.accuracy for each in one.evaluations[1:]] == [each.accuracy for each in other.evaluations]
    assert [each["metadata"]["epoch_num"] for each in events(log) if each["key"] == "epoch_start"] == [
        3, 4, 5]
    ours, theirs = (weights_file.read(weights_file.path(file)) for file in (whole, log))
    for name, array in ours.arrays.items():
        np.testing.assert_array_equal(array, theirs.arrays[name], err_msg=name)
    assert theirs.facts["seed"] == ours.facts["seed"] == "7"
    assert run.read_run(whole).label == rules.NOT_A_RESULT
    assert run.read_run(log).label == f"{rules.NOT_A_RESULT}; {rules.RESUMED}"
    (scored,) = score.score([log])
    assert (
        scored.label == f"{rules.NOT_A_RESULT}; {rules.RESUMED}" and "not an MLPerf result" not in scored.name
    )


def test_what_cannot_be_resumed_is_refused_and_without_a_checkpoint_a_run_begins(tiny_environment, tmp_path):
    environment = {
        **tiny_environment, **RUN, "RESULT_FILE": str(tmp_path / "result_0.txt"), "RESUME": "1",
        "FRAMEWORK": "mxnet"}
    installed("mxnet")
    job = Job(environment)
    killed_in_epoch(job, tmp_path / "result_0.txt", 3)
    assert "goes on" not in job.err
    saved = tmp_path / "result_0.checkpoint.safetensors"
    content = saved.read_bytes()
    for changes, damaged, said in (
        ({"LR": "1.0"}, content,
         "holds epoch 2 of an interrupted run of another configuration; set its variables and RESUME=1"),
        ({"RESUME": "0", "LR": "1.0"}, content,
         "holds epoch 2 of an interrupted run of another configuration; set its variables and RESUME=1"),
        ({}, content[:5000], "no checkpoint ("),
        ({"RESUME": "0", "LR": "1.0"}, b"mine", "exists, and rn50 did not write it; set another RESULT_FILE"),
    ):
        saved.write_bytes(damaged)
        job = Job({**environment, **changes})
        assert job.wait() == 2 and job.complaint.startswith(f"rn50: {saved}: {said}"), job.err
        assert saved.read_bytes() == damaged
    job = Job({**environment, "RESULT_FILE": "", "SAVE_WEIGHTS": "0"})
    assert (
        job.wait() == 2
        and "CHECKPOINT_EPOCHS=2: checkpoints are saved beside the log, which has no file" in job.complaint)


def test_a_campaign_that_was_killed_resumes_and_leaves_weights(tiny_environment, tmp_path):
    installed("mxnet")
    own = {name: value for name, value in tiny_environment.items() if name != "SEED"}
    training = {name: value for name, value in RUN.items() if name != "SAVE_WEIGHTS"}
    file = configuration_file(tmp_path / "config_TINY.sh", {**own, **training, "FRAMEWORK": "mxnet"})
    results = tmp_path / "results"
    command = (*RN50, "run", str(file), "--runs", "1", "-o", str(results), "--resume", "--save-weights")
    killed_in_epoch(Job({}, command), results / "result_0.txt", 4)
    assert not weights_file.path(results / "result_0.txt").exists()
    job = Job({}, command)
    assert job.wait(BUSY_S) == 0, job.err
    assert "goes on after epoch 2 of" in job.out + job.err
    assert weights_file.read(weights_file.path(results / "result_0.txt")).facts["epoch"] == "5"

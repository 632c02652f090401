"""Two ranks that somebody else starts: torchrun, or what sets the variables of torch.distributed."""

import re
import sys

import pytest

from tests.conftest import EVAL_SAMPLES, TRAIN_SAMPLES
from tests.contract.frameworks import GLOO, TORCHRUN, installed
from tests.system.job import BUSY_S, Job, assert_aborted, events

TARGET_MISSED, USER_CAN_MEND = 3, 2


@pytest.fixture
def start_by(tiny_environment, results):
    """Starts two ranks of a framework."""
    jobs = []

    def started(launcher, framework, **changes):
        installed(framework)
        ours = {"FRAMEWORK": framework, "DGXNGPU": "2", "RESULT_FILE": str(results / "result_1.txt")}
        command = (*launcher, sys.executable, "-m", "rn50", "train")
        jobs.append(Job({**tiny_environment, **ours, **changes}, command))
        return jobs[-1]

    yield started
    for job in jobs:
        job.end()


def test_a_run_by_torchrun_is_one_log(start_by, results):
    job = start_by(TORCHRUN, "pytorch")
    assert job.wait(BUSY_S) == 1, job.err  # torchrun's status where one of its ranks fails
    assert f"exitcode  : {TARGET_MISSED} " in job.err
    assert set(re.findall(r"rank (\d) of this machine: CPU ", job.err)) == {"0", "1"}, job.err
    logged = events(results / "result_1.txt")
    values = {event["key"]: event["value"] for event in logged}
    assert (values["global_batch_size"], values["train_samples"], values["eval_samples"]) == (
        32, TRAIN_SAMPLES, EVAL_SAMPLES)
    assert logged[-1]["key"] == "run_stop"


def test_a_rank_that_is_stopped_in_an_all_reduce_of_gloo(start_by, results):
    job = start_by(GLOO, "paddle", NUMEPOCHS="1000", RN50_WATCHDOG_S="6")
    job.until_logged(results / "result_1.txt", "epoch_start")
    job.ranks()[1].suspend()
    assert job.wait() == USER_CAN_MEND
    assert re.match(
        r"rn50: rank 1 \(.+\) not heard of for \d+ s, and rank 0 \(.+\) waiting for it; ", job.complaint)
    assert_aborted(results / "result_1.txt")

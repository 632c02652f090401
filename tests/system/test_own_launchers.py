"""Two ranks that the launcher of a framework starts: one log, one line for what ended them, no process or
file left."""

import json
import signal

import pytest

from tests.conftest import EVAL_SAMPLES, TRAIN_SAMPLES
from tests.contract.frameworks import installed
from tests.system.job import BUSY_S, RN50, Job, assert_aborted, events

TARGET_MISSED = 3
ENDLESS = {"NUMEPOCHS": "1000"}


@pytest.fixture
def start_by(start, tmp_path):
    """Starts two ranks by a launcher; the test fails where a file is left in the folder for temporary
    ones."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()

    def started(launcher, **changes):
        framework = {"torchrun": "pytorch", "fleetrun": "paddle"}[launcher]
        return start(FRAMEWORK=framework, LAUNCHER=launcher, DGXNGPU="2", TMPDIR=str(temporary), **changes)

    yield started
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("launcher", ["torchrun", "fleetrun"])
def test_a_run_is_one_log(start_by, results, launcher):
    job = start_by(launcher)
    assert job.wait(BUSY_S) == TARGET_MISSED, job.err
    assert job.complaints == []
    assert job.err.count(" of this machine: CPU ") == 2, job.err  # each rank says where it is bound
    assert "LAUNCH" not in job.out + job.err and "<stderr>" not in job.err, job.out + job.err
    logged = events(results / "result_1.txt")
    values = {event["key"]: event["value"] for event in logged}
    assert (values["global_batch_size"], values["train_samples"], values["eval_samples"]) == (
        32, TRAIN_SAMPLES, EVAL_SAMPLES)
    assert logged[-1]["key"] == "run_stop"


def test_what_a_launcher_sets_is_no_setting(tiny_environment):
    installed("paddle")
    job = Job(
        {**tiny_environment, "FRAMEWORK": "paddle", "LAUNCHER": "fleetrun", "DGXNGPU": "2"},
        (*RN50, "bench", "comm", "--largest-mib=1", "--json"))
    assert job.wait(BUSY_S) == 0, job.err
    report = json.loads(job.out)
    assert (report["library"], report["ranks"]) == ("Gloo", 2)
    assert not [name for name in report["environment"] if name.startswith("PADDLE_")]


@pytest.mark.parametrize("launcher", ["torchrun", "fleetrun"])
def test_a_rank_killed(start_by, results, launcher):
    job = start_by(launcher, **ENDLESS)
    job.until_logged(results / "result_1.txt", "epoch_start")
    job.ranks()[1].kill()
    assert job.wait() == 128 + signal.SIGKILL
    assert job.complaint == "rn50: rank 1 was killed by SIGKILL; start the run again"
    assert_aborted(results / "result_1.txt")


def test_sigterm_while_it_starts(start_by, results):
    job = start_by("fleetrun", **ENDLESS)
    job.until(job.ranks)
    job.signal(signal.SIGTERM)
    assert job.wait() == 128 + signal.SIGTERM
    assert job.complaint == "rn50: stopped by SIGTERM; the same command starts the run again"
    assert_aborted(results / "result_1.txt", clock_ran=False)


def test_a_launcher_killed(start_by, results):
    job = start_by("fleetrun", **ENDLESS)
    job.until_logged(results / "result_1.txt", "epoch_start")
    next(each for each, command in job.commands() if "paddle.distributed.launch" in command[2:4]).kill()
    assert job.wait() == 128 + signal.SIGKILL
    assert job.complaint == "rn50: fleetrun was killed by SIGKILL; start the run again"
    assert_aborted(results / "result_1.txt")


def test_a_rank_that_does_not_answer_is_ended_by_force(start_by, results):
    job = start_by("fleetrun", **ENDLESS)
    job.until_logged(results / "result_1.txt", "epoch_start")
    job.ranks()[0].suspend()
    job.signal(signal.SIGTERM)
    assert job.wait() == 128 + signal.SIGTERM
    assert job.complaint == "rn50: stopped by SIGTERM; the same command starts the run again"
    assert_aborted(results / "result_1.txt")

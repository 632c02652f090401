"""Ctrl-C, SIGTERM and killed processes: one line, the exit status of the signal, no process left over, the
log ended."""

import pathlib
import signal

import pytest

from rn50.run.clock import now_ms
from tests.system.job import assert_aborted, events

ENDLESS = {"NUMEPOCHS": "1000"}
STARTERS = {"python": "rn50.launch.local_launcher", "horovodrun": "horovod.runner.launch"}
"""What the command line of the process that starts the ranks has in it."""


def at(moment, job, result_file):
    """Waits for a moment of the run."""
    if moment == "starting":
        job.until(job.ranks)
    elif moment == "warming up":
        job.until_logged(result_file, "init_start")
    else:
        job.until_logged(result_file, "epoch_start")


def signalled(number, moment, job, result_file):
    """Sends a signal at a moment, or just after it on a busy machine. Waits for the end; says whether the
    clock ran when the signal was sent."""
    at(moment, job, result_file)
    sent = now_ms()
    job.signal(number)
    assert job.wait() == 128 + number
    partial = pathlib.Path(f"{result_file}.partial")
    logged = events(partial) if partial.exists() else []
    ran = any(event["key"] == "run_start" and event["time_ms"] <= sent for event in logged)
    assert ran or moment != "training"
    return ran


@pytest.mark.parametrize(
    "framework, number, moment",
    [
        ("mxnet", signal.SIGINT, "starting"),
        ("mxnet", signal.SIGTERM, "warming up"),
        ("mxnet", signal.SIGINT, "training"),
        ("mxnet", signal.SIGTERM, "training"),
        ("mxnet", signal.SIGHUP, "training"),
        ("paddle", signal.SIGTERM, "starting"),  # its import takes signals from Python
        ("paddle", signal.SIGTERM, "training"),
        ("pytorch", signal.SIGTERM, "training"),
    ],
)
def test_a_signal_to_the_launcher(start, results, framework, number, moment):
    job = start(**ENDLESS, FRAMEWORK=framework)
    clock_ran = signalled(number, moment, job, results / "result_1.txt")
    assert job.complaint == f"rn50: stopped by {number.name}; the same command starts the run again"
    assert_aborted(results / "result_1.txt", clock_ran)


@pytest.mark.smoke
def test_ctrl_c_reaches_the_whole_process_group(start, results):
    job = start(**ENDLESS, DGXNGPU="2")
    at("training", job, results / "result_1.txt")
    job.signal_group(signal.SIGINT)
    assert job.wait() == 128 + signal.SIGINT
    assert job.complaint == "rn50: stopped by SIGINT; the same command starts the run again"
    assert_aborted(results / "result_1.txt")


def test_sigterm_to_the_launcher_of_two_ranks(start, results, two_ranks):
    job = start(**ENDLESS, **two_ranks)
    moment = "warming up" if two_ranks["LAUNCHER"] == "horovodrun" else "starting"
    clock_ran = signalled(signal.SIGTERM, moment, job, results / "result_1.txt")
    assert job.complaint == "rn50: stopped by SIGTERM; the same command starts the run again"
    assert_aborted(results / "result_1.txt", clock_ran)


def test_the_only_process_killed(start, results):
    job = start(**ENDLESS)
    at("training", job, results / "result_1.txt")
    job.ranks()[0].kill()
    assert job.wait() == 128 + signal.SIGKILL
    assert job.complaint == "rn50: the training process was killed by SIGKILL; start the run again"
    assert_aborted(results / "result_1.txt")


@pytest.mark.parametrize(
    "launcher, victim", [pytest.param("python", 0, marks=pytest.mark.smoke), ("python", 1), ("horovodrun", 1)]
)
def test_one_rank_of_two_killed(start, results, request, launcher, victim):
    if launcher == "horovodrun":
        request.getfixturevalue("horovod")
    job = start(**ENDLESS, DGXNGPU="2", LAUNCHER=launcher)
    at("training", job, results / "result_1.txt")
    job.ranks()[victim].kill()
    assert job.wait() == 128 + signal.SIGKILL
    assert job.complaint == f"rn50: rank {victim} was killed by SIGKILL; start the run again"
    assert_aborted(results / "result_1.txt")


@pytest.mark.parametrize("framework", ["paddle", "pytorch"])
def test_one_rank_of_two_killed_in_other_frameworks(start, results, framework):
    job = start(**ENDLESS, FRAMEWORK=framework, DGXNGPU="2")
    at("training", job, results / "result_1.txt")
    job.ranks()[1].kill()
    assert job.wait() == 128 + signal.SIGKILL
    assert job.complaint == "rn50: rank 1 was killed by SIGKILL; start the run again"
    assert_aborted(results / "result_1.txt")


def test_what_started_two_ranks_killed(start, results, two_ranks):
    job = start(**ENDLESS, **two_ranks)
    at("training", job, results / "result_1.txt")
    starter = next(
        each for each, command in job.commands() if STARTERS[two_ranks["LAUNCHER"]] in " ".join(command)
    )
    starter.kill()
    assert job.wait() == 128 + signal.SIGKILL
    assert job.complaint == f"rn50: {two_ranks['LAUNCHER']} was killed by SIGKILL; start the run again"
    assert_aborted(results / "result_1.txt")


def test_a_rank_that_does_not_answer_is_ended_by_force(start, results):
    job = start(**ENDLESS)
    at("training", job, results / "result_1.txt")
    job.ranks()[0].suspend()
    job.signal(signal.SIGTERM)
    assert job.wait() == 128 + signal.SIGTERM
    assert job.complaint == "rn50: stopped by SIGTERM; the same command starts the run again"
    assert_aborted(results / "result_1.txt")

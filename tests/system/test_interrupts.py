"""Ctrl-C, SIGTERM and killed processes: one line, the exit status of the signal, no process left over, the
log ended."""

import pathlib
import re
import shutil
import signal

import pytest

from rn50.run.clock import now_ms
from tests.results.scored import write_runs
from tests.system.job import RN50, ROOT, Job, assert_aborted, configuration_file, events

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


@pytest.mark.smoke("two ranks, their signals and their log, by the command")
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


@pytest.mark.parametrize("launcher, victim", [("python", 0), ("python", 1), ("horovodrun", 1)])
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
        each for each, command in job.commands() if STARTERS[two_ranks["LAUNCHER"]] in " ".join(command))
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


IGNORING_CTRL_C = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""Starts a command as nohup, a background job of a script and some CI runners do."""
TWO_WORKERS = "--workers 2 --trials 2 --repeats 1 --seeds-to-confirm 2"
VERBS = (
    "run {config} --runs 2 -o {to}", "bench throughput {config} --seconds 60 --rounds 1 -o {to}",
    "bench input {config} --seconds 60 --rounds 1", "profile {config} --seconds 60 --rounds 1 -o {to}",
    "search {config} -o {to} --workers 2 --trials 2 --repeats 1 --seeds-to-confirm 2",
    "reproduce {claimed} --on {config} -o {to} --anyway")
"""Commands that start ranks."""


@pytest.fixture
def given(tmp_path, tiny_environment):
    """A configuration of two ranks whose runs do not end, and somebody's results."""
    config = configuration_file(tmp_path / "config_TINY.sh", {**tiny_environment, **ENDLESS, "DGXNGPU": "2"})
    text = config.read_text().replace("export DGXSYSTEM", "# --- run\nexport DGXSYSTEM")
    config.write_text(re.sub("export (SEED|DATADIR)=.*\n", "", f"# --- hyperparameters\n{text}"))
    write_runs(tmp_path / "claimed", 100, 101, 102, global_batch_size=32)
    return {"config": config, "claimed": tmp_path / "claimed", "to": tmp_path / "to"}


@pytest.mark.parametrize("verb", VERBS)
def test_sigterm_ends_every_process_where_ctrl_c_is_ignored(given, tiny_folder, verb):
    environ = {"CONFIG_FILE": "", "DGXSYSTEM": "", "DATADIR": str(tiny_folder)}
    job = Job(environ, (*IGNORING_CTRL_C, *RN50, *verb.format(**given).split()))
    job.until(lambda: any({"train", "rank"}.intersection(command) for _, command in job.commands()))
    job.signal(signal.SIGTERM)
    assert job.wait() in (128 + signal.SIGTERM, -signal.SIGTERM)  # it fails where a process is left
    assert "Traceback" not in job.err


def test_sigterm_to_make_ends_every_process_where_ctrl_c_is_ignored(given, tiny_folder, tmp_path):
    """As a CI runner ends `make demo`; what it would install is there."""
    for part in ("rn50", "implementations"):
        shutil.copytree(ROOT / part, tmp_path / part, True, shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    shutil.copy(given["config"], tmp_path / "configs" / "config_DEMO_CPU.sh")
    for file in ("Makefile", "run_experiments.sh", "run_and_time.sh"):
        shutil.copy(ROOT / file, tmp_path)
    make = ("make", "demo", "--assume-old=data")
    job = Job({"DATADIR": str(tiny_folder), "RESULTS": ""}, (*IGNORING_CTRL_C, *make), tmp_path)
    job.until_logged(tmp_path / "results" / "DEMO_CPU" / "result_0.txt", "epoch_start")
    job.signal(signal.SIGTERM)
    assert job.wait() == -signal.SIGTERM
    assert_aborted(tmp_path / "results" / "DEMO_CPU" / "result_0.txt")

"""``run_experiments.sh`` and ``run_and_time.sh`` as a user types them, in a checkout of their own."""

import os
import re
import shutil
import signal

import pytest

from rn50.benchmark import rules
from tests.support.four_epochs import write_result
from tests.system.job import BUSY_S, ROOT, Job, assert_aborted, configuration_file, events

EXPERIMENTS, RUN_AND_TIME = "./run_experiments.sh", "./run_and_time.sh"
USER_CAN_MEND = 2


@pytest.fixture
def checkout(tmp_path, tiny_environment):
    """What the scripts need of the repository, on a path with a blank; and a system TINY."""
    folder = tmp_path / "a checkout"
    for part in ("rn50", "implementations", "configs"):
        shutil.copytree(
            str(ROOT / part), str(folder / part), symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for script in (EXPERIMENTS, RUN_AND_TIME):
        shutil.copy(str(ROOT / script), str(folder))
    del tiny_environment["SEED"]  # a seed of the file would be that of every run
    (folder / "data").symlink_to(tiny_environment["DATADIR"])
    tiny_environment["DATADIR"] = "data/"  # in the checkout, as of configs/config_DEMO_CPU.sh
    configuration_file(folder / "configs" / "config_TINY.sh", tiny_environment)
    return folder


@pytest.fixture
def run(checkout):
    """Starts a script; ``run(EXPERIMENTS, NEXP="2")``."""
    jobs = []

    def started(script, **environment):
        jobs.append(
            Job({"CONFIG_FILE": "", "DGXSYSTEM": "", "RESULTS": "", **environment}, [script], checkout))
        return jobs[-1]

    yield started
    for job in jobs:
        job.end()


def test_an_interrupted_campaign_is_resumed(run, checkout):
    asked = {"DGXSYSTEM": "TINY", "NEXP": "2"}
    first, second = (checkout / "results" / "TINY" / f"result_{index}.txt" for index in range(2))

    job = run(EXPERIMENTS, **asked)
    job.until_logged(second, "run_start")
    job.signal_group(signal.SIGINT)
    assert job.wait(BUSY_S) == 128 + signal.SIGINT
    assert job.complaints == ["rn50: run 2 stopped by SIGINT; the same command again resumes there"]
    assert_aborted(second)
    finished = first.read_bytes()  # though it missed its target

    job = run(EXPERIMENTS, **asked)
    assert job.wait(BUSY_S) == 1, job.err  # a target missed is no result; it says so
    assert f"run 1 of 2: kept, results/TINY/{first.name} is there" in job.out
    assert "run 2 of 2 -> " in job.out
    assert re.search("ruleset|4.0.0", job.out) and "2 runs of 5" in job.out
    assert first.read_bytes() == finished
    assert [event["key"] for event in events(second)].count("run_start") == 1
    seeds = {event["value"] for log in (first, second) for event in events(log) if event["key"] == "seed"}
    assert len(seeds) == 2

    resumed = second.read_bytes()
    job = run(EXPERIMENTS, **asked)
    assert job.wait(BUSY_S) == 1
    assert job.out.count(": kept, ") == 2 and "2 runs of 5" in job.out
    assert [log.read_bytes() for log in (first, second)] == [finished, resumed]


def test_a_signal_to_the_script_alone_ends_its_run(run, checkout):
    log = checkout / "results" / "somebodys" / "result_0.txt"
    shutil.move(str(checkout / "configs" / "config_TINY.sh"), str(checkout / "somebodys.sh"))
    job = run(EXPERIMENTS, CONFIG_FILE=str(checkout / "somebodys.sh"), NEXP="1", NUMEPOCHS="1000")
    job.until_logged(log, "run_start")
    job.signal(signal.SIGTERM)
    assert job.wait(BUSY_S) == 128 + signal.SIGTERM
    assert_aborted(log)


def test_anybodys_configuration_file_runs(run, checkout, tmp_path):
    foreign = tmp_path / "config_somebodys.sh"
    shutil.move(str(checkout / "configs" / "config_TINY.sh"), str(foreign))
    with foreign.open("a") as stream:
        stream.write("export NUMEPOCHS=2\nexport SOME_KNOB_OF_THEIRS=1\nDALI_THREADS=1\n")
    job = run(RUN_AND_TIME, CONFIG_FILE=str(foreign), RESULT_FILE=str(tmp_path / "result.txt"))
    assert job.wait(BUSY_S) == 3, job.err
    assert events(tmp_path / "result.txt")[-1]["key"] == "run_stop"


def test_a_machine_that_cannot_run_it_stops_a_campaign_before_it_starts(run, checkout, tmp_path):
    job = run(
        EXPERIMENTS, DGXSYSTEM="DGXA100", DATADIR=str(tmp_path / "nothing"), NEXP="2", CUDA_VISIBLE_DEVICES=""
    )
    assert job.wait() == USER_CAN_MEND
    assert any(line.startswith("rn50: GPU: no NVIDIA GPU") for line in job.complaints), job.err
    assert any(line.startswith("rn50: DATADIR: ") and "set DATADIR" in line for line in job.complaints), (
        job.err)
    assert "run 1 of 2" not in job.out and not (checkout / "results").exists()


def test_a_warning_stops_nothing(run, checkout):
    with (checkout / "configs" / "config_TINY.sh").open("a") as stream:
        stream.write(f"export DALI_THREADS={os.cpu_count()}\n")  # and the training loop's own
    job = run(EXPERIMENTS, DGXSYSTEM="TINY", NEXP="1", asked="TERM")  # a name that the script has too
    assert job.wait(BUSY_S) == 0, job.err  # one run may miss the target
    assert "warning: threads: 1 rank(s) with one thread and DALI_THREADS=" in job.err and not job.complaints
    assert (checkout / "results" / "TINY" / "result_0.txt").exists()


@pytest.mark.parametrize("script, system", [(EXPERIMENTS, "NF5688M7"), (RUN_AND_TIME, "")])
def test_no_such_system(run, checkout, script, system):
    job = run(script, DGXSYSTEM=system)
    assert job.wait() == USER_CAN_MEND
    assert "DGXSYSTEM" in job.complaint
    systems = sorted(
        ["TINY", *(path.stem[len("config_") :] for path in (ROOT / "configs").glob("config_*.sh"))])
    assert " ".join(systems) in job.complaint
    assert not (checkout / "results").exists()


def test_what_is_no_result_is_found_before_the_first_run(run, checkout):
    results = checkout / "results" / "TINY"
    (results / "result_1.txt").mkdir(parents=True)
    (results / "result_3.txt").touch()
    job = run(EXPERIMENTS, DGXSYSTEM="TINY")
    assert job.wait() == USER_CAN_MEND
    assert [
        re.match("rn50: results: (.*?):.*; move (.*) away, and", line).groups() for line in job.complaints
    ] == [(str(results / f"result_{number}.txt"),) * 2 for number in (1, 3)]
    assert "run 1 of 5 -> " not in job.out and len(list(results.iterdir())) == 2


@pytest.mark.parametrize("script", [EXPERIMENTS, RUN_AND_TIME])
def test_help_of_a_script_shows_an_example(script):
    job = Job({}, [script, "--help"])
    assert job.wait() == 0
    assert f"DGXSYSTEM=DEMO_CPU {script}" in job.out


def test_a_campaign_ends_with_the_report(run, checkout):
    """Which does not spoil the exit status where it cannot be written."""
    results = write_result(
        checkout / "results" / "TINY", train_samples=10_000, platform=f"TINY ({rules.NOT_A_RESULT})")
    page = results / "report.html"
    page.mkdir()
    without = run(EXPERIMENTS, DGXSYSTEM="TINY")
    assert (
        without.wait(BUSY_S) == 1 and "report.html: is a folder" in without.err and not list(page.iterdir()))
    assert re.search(r"^Report +not written$", without.out, re.MULTILINE)
    page.rmdir()
    job = run(EXPERIMENTS, DGXSYSTEM="TINY")
    assert job.wait(BUSY_S) == 1, job.err  # the official checker fails these short logs
    assert re.search(r"^Report +results/TINY/report\.html$", job.out, re.MULTILINE)
    assert "demo data set, not an MLPerf result" in page.read_text(encoding="utf-8")

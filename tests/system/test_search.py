"""``rn50 search`` with real runs, on a data set that is so small that it is soon learnt by heart."""

import json
import os
import random
import re
import shutil
import signal
import time

import pytest

from rn50.hyperparameters.search.journal import Journal
from rn50.hyperparameters.search.method import Point
from rn50.results.parse import read_log
from tests.hyperparameters.searches import assert_nothing_lost_or_repeated, result_file, results, trials
from tests.system.job import BUSY_S, RN50, Job, events

DOES_NOT_STAND, USER_CAN_MEND = 0, 2  # two runs against two can show nothing
BUDGET = ("--trials", "3", "--repeats", "1", "--seeds-to-confirm", "2")

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two workers need two cores")


@pytest.fixture
def seek(memorised, tiny_environment, tmp_path):
    """Starts the command in a process of its own; its folder is ``tmp_path / "to"``. The learning rate is too
    small at first."""
    own = {
        "LR": "0.1", "NUMEPOCHS": "90", "BATCHSIZE": "8", "LABELSMOOTHING": "0", "CROP_AREA_MIN": "1",
        "NUMEXAMPLES": "40", "NUMVALEXAMPLES": "40", "EVAL_OFFSET": "2", "EVAL_PERIOD": "4"}
    values = {**tiny_environment, **own}
    del values["SEED"], values["DATADIR"]
    config = tmp_path / "config_TINY.sh"
    lines = [f"export {name}='{value}'\n" for name, value in values.items()]
    end_of_group = next(i for i, name in enumerate(values) if name == "DGXSYSTEM")
    config.write_text(
        "".join(["# --- hyperparameters\n", *lines[:end_of_group], "# --- run\n", *lines[end_of_group:]]))
    jobs = []

    def started(*arguments, data=memorised):
        command = [*RN50, "search", str(config), "-o", str(tmp_path / "to"), *arguments]
        jobs.append(Job({"DATADIR": str(data), "CONFIG_FILE": "", "DGXSYSTEM": ""}, command))
        return jobs[-1]

    yield started
    for job in jobs:
        job.end()


def until_training(job, folder, finished):
    """Until a run of the job trains, and ``finished`` trials have ended."""
    job.until(lambda: len(list(folder.glob("trials/*/result_0.txt"))) >= finished and job.ranks())


def test_two_workers_killed_at_random_moments_and_resumed(seek, tmp_path):
    draw, folder = random.Random(7), tmp_path / "to"
    for finished in (0, 1):
        job = seek(*BUDGET, "--workers", "2")
        until_training(job, folder, finished)
        time.sleep(draw.uniform(0, 4))
        kept = results(folder)
        job.signal(signal.SIGKILL)
        assert job.wait() == -signal.SIGKILL  # and no process is left
    job = seek(*BUDGET, "--workers", "2", "--json")
    assert job.wait(BUSY_S) == DOES_NOT_STAND, job.err
    told = json.loads(job.out)
    assert kept and {file: results(folder).get(file) for file in kept} == kept
    assert_nothing_lost_or_repeated(folder, 1)
    states = [each["state"] for each in told["trials"]]
    assert states.count("finished") + states.count("stopped") == 3 and "interrupted" in states

    # Every trial is a run like any other, of its values and its seed, on its share of the cores.
    shares = set()
    for trial in trials(folder):
        if trial.state in ("finished", "stopped"):
            file = result_file(folder, trial.number)
            log = read_log(file if file.exists() else file.with_name(file.name + ".partial"))
            assert log.seed == trial.seed and log.status in ("success", "aborted")
            logged = {event.key: event.value for event in log.events}
            assert logged["lars_opt_base_learning_rate"] == trial.point.learning_rate
            shares.add(
                re.search(r"rank 0 of this machine: CPU (\S+)", file.with_suffix(".out").read_text()).group(1)
            )
    assert len(shares) == 2


def test_a_confirmation_that_is_killed_goes_on(seek, tmp_path):
    folder, start = tmp_path / "to", Point(0.1, 8, 1, 5e-5, 90, None)
    journal = Journal(folder)  # as if these had been run
    for number, (rate, value) in enumerate(((0.1, 50.0), (1.0, 30.0))):
        journal.begin(start._replace(learning_rate=rate), "a stage", number)
        journal.finish(number, value)
    budget = ("--trials", "2", *BUDGET[2:], "--workers", "2")
    job = seek(*budget)
    job.until(lambda: list(folder.glob("confirmed/*/result_?.txt")) and job.ranks())
    kept = results(folder)
    job.signal(signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    job = seek(*budget, "--json")
    assert job.wait(BUSY_S) == DOES_NOT_STAND, job.err
    told = json.loads(job.out)
    assert kept and {file: results(folder).get(file) for file in kept} == kept

    assert (told["baseline"]["LR"], told["winner"]["LR"]) == ("0.1", "1")
    seeds = [each["seed"] for each in told["trials"]]
    for who in ("baseline", "winner"):
        for number in range(2):
            logged = {
                event["key"]: event["value"]
                for event in events(folder / "confirmed" / who / f"result_{number}.txt")}
            assert logged["lars_opt_base_learning_rate"] == float(told[who]["LR"])
            seeds.append(logged["seed"])
    assert len(set(seeds)) == len(seeds) == 6
    assert "does not stand" in told["sentence"] and told["sentence"] in (folder / "report.md").read_text()
    assert "\nexport LR=1\n" in (folder / "config_TINY.sh").read_text()


def test_it_goes_on_where_it_was_stopped(seek, tmp_path):
    folder = tmp_path / "to"
    first = seek(*BUDGET)
    # Not the ranks of the first trial, which end after its log does.
    first.until((folder / "trials/001/result_0.txt.partial").exists)
    first.signal(signal.SIGTERM)
    assert first.wait() == 128 + signal.SIGTERM
    assert first.complaint == "rn50: stopped by SIGTERM; the same command goes on"
    second = seek(*BUDGET)
    assert second.wait(BUSY_S) == DOES_NOT_STAND, second.err
    assert_nothing_lost_or_repeated(folder, 1)
    assert [trial.state for trial in trials(folder)].count("interrupted") == 1


def test_data_that_no_run_can_read_end_the_search(seek, memorised, tmp_path):
    data = shutil.copytree(str(memorised), str(tmp_path / "data"))
    (tmp_path / "data" / "train.idx").write_bytes((memorised / "train.idx").read_bytes()[:60])
    job = seek(*BUDGET, data=data)
    assert job.wait(BUSY_S) == USER_CAN_MEND
    assert re.search(r"train\.idx: too short for 40 records; set NUMEXAMPLES or DATADIR", job.complaint)
    assert not (tmp_path / "to" / "report.md").exists()

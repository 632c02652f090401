"""Several runs at a time, and searches that are killed: no finished trial is lost or repeated."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import psutil
import pytest

from rn50.hyperparameters.search import subject
from rn50.hyperparameters.search.journal import Journal, evidence
from rn50.hyperparameters.search.trial_scheduler import Options, TrialScheduler
from tests.hyperparameters.searches import (
    DEMO,
    DONE,
    SIMULATED,
    assert_nothing_lost_or_repeated,
    results,
    trials,
)
from tests.system.job import BUSY_S

ROOT = pathlib.Path(__file__).resolve().parents[2]


def command(folder, data, *arguments, epoch_s=0.02):
    """The command in a process of its own."""
    code = (
        "from rn50.hyperparameters.search import search, training\n"
        f"training.COMMAND, search.POLL_S = {SIMULATED!r}, 0.05\n" "from rn50.cli import main\nmain()")
    environ = {
        **_environment(), "DATADIR": str(data), "SIMULATED_EPOCH_S": str(epoch_s),
        "SIMULATED_FOLDER": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", code, "search", str(DEMO), "-o", str(folder), *map(str, arguments)],
        cwd=str(ROOT), env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True)


def _environment():
    return {name: value for name, value in os.environ.items() if name not in ("CONFIG_FILE", "DGXSYSTEM")}


def runs_alive(folder):
    """Processes of simulated runs of a search."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cmdline()[1:] == SIMULATED[1:] and process.environ().get("SIMULATED_FOLDER") == str(
                folder
            ):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            pass
    return found


def gone(folder, seconds=10):
    deadline = time.monotonic() + seconds
    while runs_alive(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not runs_alive(folder)


def test_killed_at_random_moments_it_goes_on_and_loses_and_repeats_nothing(data, tmp_path):
    draw, folder, kept, kills = random.Random(2), tmp_path / "to", {}, 0
    arguments = ("--trials", 10, "--workers", 2, "--repeats", 2, "--seeds-to-confirm", 3)
    for call in range(13):
        process = command(folder, data, *arguments, epoch_s=0.05)
        if call % 2:  # else also while it starts
            until(lambda job=process: runs_alive(folder) or job.poll() is not None)
        try:
            process.wait(draw.uniform(0.3, 3.5) if call < 12 else BUSY_S)
        except subprocess.TimeoutExpired:
            kills += 1
            process.kill()
        out, err = process.communicate()
        assert gone(folder)
        assert "Traceback" not in err, err
        now = results(folder) if folder.exists() else {}
        assert {file: now.get(file) for file in kept} == kept
        kept = now
        if process.returncode != -signal.SIGKILL:
            break
    assert process.returncode == DONE, err
    assert kills >= 3
    assert_nothing_lost_or_repeated(folder, 2)
    assert sum(trial.state in ("finished", "stopped") for trial in trials(folder)) <= 10
    assert len([file for file in kept if "confirmed" in file.parts]) == 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_its_runs_and_it_goes_on(data, tmp_path, number):
    folder = tmp_path / "to"
    arguments = ("--trials", 2, "--repeats", 2, "--seeds-to-confirm", 2)
    process = command(folder, data, *arguments, epoch_s=0.3)
    until(lambda: runs_alive(folder), process)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert [line for line in err.splitlines() if line.startswith("rn50: ")] == [
        f"rn50: stopped by {number.name}; the same command goes on"]
    assert not runs_alive(folder)
    assert [trial.state for trial in trials(folder)] == ["interrupted"]
    process = command(folder, data, *arguments)
    process.communicate(timeout=BUSY_S)
    assert_nothing_lost_or_repeated(folder, 2)
    assert sum(trial.state in ("finished", "stopped") for trial in trials(folder)) == 2


def until(condition, process=None):
    deadline = time.monotonic() + BUSY_S
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_second_call_is_refused_while_the_first_or_a_run_of_it_is_alive(data, tmp_path):
    folder = tmp_path / "to"
    first = command(folder, data, "--trials", 2, epoch_s=0.2)
    until(lambda: runs_alive(folder), first)
    for run in runs_alive(folder):  # or it would end with the first
        run.suspend()
    for end in (lambda: None, first.kill):
        end()
        second = command(folder, data, "--trials", 2)
        _, err = second.communicate(timeout=BUSY_S)
        assert second.returncode == 2 and err.splitlines()[-1] == (
            f"rn50: {folder}: another process is searching, or ending the runs of a search, there; wait for "
            "it")
    first.communicate()
    for run in runs_alive(folder):
        run.kill()


def test_a_point_of_which_nothing_is_known_is_run_twice_at_once_only_where_nothing_else_is_to_do(
    data, tmp_path, monkeypatch
):
    monkeypatch.setenv("DATADIR", str(data))
    options = Options(workers=3, trials=None, minutes=None, repeats=3, seeds_to_confirm=5, confirm_data=None)
    scheduler = TrialScheduler(subject.read("DEMO_CPU"), tmp_path, options)
    for _ in range(3):
        scheduler.journal.finish(scheduler.next().trial, 9.0)
    tasks = [scheduler.next(range(in_hand)) for in_hand in range(2)]
    assert [task.point.learning_rate for task in tasks] == [30.0, 0.3]
    scheduler.journal.finish(tasks[1].trial, 8.0)
    tasks = [scheduler.next(range(in_hand)) for in_hand in range(2, 5)]
    assert [task.point.learning_rate for task in tasks] == [0.3, 0.3, 30.0]


def test_a_trial_whose_log_is_whole_is_finished_though_its_worker_could_not_say_so(seek, tmp_path):
    seek("--trials", 1, "--repeats", 1)
    folder = tmp_path / "to"
    lines = (folder / "journal.log").read_bytes().splitlines(keepends=True)
    (folder / "journal.log").write_bytes(b"".join(line for line in lines if b'"finished"' not in line))
    assert [trial.state for trial in trials(folder)] == ["running"]
    seek("--trials", 1, "--repeats", 1)
    assert [(trial.number, trial.state) for trial in trials(folder)] == [(0, "finished")]
    assert_nothing_lost_or_repeated(folder, 1)


def test_a_trial_that_was_being_stopped_is_stopped(seek, tmp_path):
    folder = tmp_path / "to"
    seek("--trials", 1, "--repeats", 1)
    point = trials(folder)[0].point._replace(learning_rate=30.0)
    journal = Journal(folder)
    number = journal.begin(point, "learning rate x10", 5)
    journal.note(number, "in vain")
    seek("--trials", 2, "--repeats", 1)
    assert trials(folder)[number].state == "stopped"
    assert evidence(trials(folder))[point].ruled_out

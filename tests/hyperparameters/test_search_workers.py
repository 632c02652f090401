"""Several workers of a search, and workers that are killed: no finished trial is lost or repeated."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import psutil
import pytest

from rn50.hyperparameters.search import journal, subject
from rn50.hyperparameters.search.journal import Journal
from rn50.hyperparameters.search.trial_scheduler import Options, TrialScheduler
from tests.hyperparameters.searches import DONE, SIMULATED, assert_nothing_lost_or_repeated, results, trials
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
        [sys.executable, "-c", code, "search", "DEMO_CPU", "-o", str(folder), *map(str, arguments)],
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


def test_a_second_call_joins_in_and_goes_on_where_the_first_is_killed(data, tmp_path):
    folder = tmp_path / "to"
    arguments = ("--trials", 8, "--repeats", 2, "--seeds-to-confirm", 2)
    states = lambda: [trial.state for trial in trials(folder)] if folder.exists() else []  # noqa: E731
    first = command(folder, data, *arguments, epoch_s=0.2)
    until(lambda: states() == ["finished", "finished", "running"] and runs_alive(folder), first)
    held = runs_alive(folder)
    for run in held:  # however slowly the second starts, the first is killed within a run
        run.suspend()
    second = command(folder, data, *arguments, epoch_s=0.2)
    until(lambda: states() == ["finished", "finished", "running", "running"], second)
    kept = results(folder)
    first.kill()
    for run in held:
        run.resume()
    _, told_by_first = first.communicate()
    out, err = second.communicate(timeout=BUSY_S)
    assert second.returncode == DONE, err
    assert "its worker is gone; it begins again" in err
    assert {file: results(folder).get(file) for file in kept} == kept
    assert_nothing_lost_or_repeated(folder, 2)
    begun = [
        {line.split()[2] for line in text.splitlines() if " trial " in line and line.endswith("begins")}
        for text in (told_by_first, err)]
    assert begun[0] and begun[1] and not begun[0] & begun[1]


def test_a_point_of_which_nothing_is_known_is_run_twice_at_once_only_where_nothing_else_is_to_do(
    data, tmp_path, monkeypatch
):
    monkeypatch.setenv("DATADIR", str(data))
    on = subject.read("DEMO_CPU")
    options = Options(workers=3, trials=None, minutes=None, repeats=3, seeds_to_confirm=5, confirm_data=None)
    scheduler = TrialScheduler(on, tmp_path / "to", options)
    for _ in range(3):
        task = scheduler.next(0)
        scheduler.journal.finish(task.trial, 9.0)
        task.held.close()
    tasks = [scheduler.next(in_hand) for in_hand in range(2)]
    assert [task.point.learning_rate for task in tasks] == [30.0, 0.3]
    scheduler.journal.finish(tasks[1].trial, 8.0)
    tasks += [scheduler.next(in_hand) for in_hand in range(2, 4)]
    assert [task.point.learning_rate for task in tasks[2:]] == [0.3, 0.3]
    tasks.append(scheduler.next(4))
    assert tasks[-1].point.learning_rate == 30.0
    for task in tasks:
        task.held.close()


def test_two_calls_confirm_together(data, tmp_path):
    folder = tmp_path / "to"
    calls = [command(folder, data, "--trials", 10, "--repeats", 2, epoch_s=0.05) for _ in range(2)]
    told = [call.communicate(timeout=BUSY_S) for call in calls]
    assert {call.returncode for call in calls} == {DONE}, told
    assert told[0][0] == told[1][0]
    assert_nothing_lost_or_repeated(folder, 2)
    begun = [sum(": begins" in line and ", run " in line for line in err.splitlines()) for _, err in told]
    assert sum(begun) == 10 and min(begun) >= 2


def test_a_trial_whose_log_is_whole_is_finished_though_its_worker_could_not_say_so(seek, tmp_path):
    seek("--trials", 1, "--repeats", 1)
    folder = tmp_path / "to"
    lines = (folder / "journal.log").read_bytes().splitlines(keepends=True)
    (folder / "journal.log").write_bytes(b"".join(line for line in lines if b'"op_code":6' not in line))
    assert [trial.state for trial in trials(folder)] == ["running"]
    seek("--trials", 1, "--repeats", 1)
    assert [(trial.number, trial.state) for trial in trials(folder)] == [(0, "finished")]
    assert_nothing_lost_or_repeated(folder, 1)


def test_a_trial_that_was_being_stopped_is_stopped(seek, tmp_path):
    folder = tmp_path / "to"
    seek("--trials", 1, "--repeats", 1)
    of = Journal(folder)
    point = trials(folder)[0].point._replace(learning_rate=30.0)
    number, held = of.begin(point, "learning rate x10", 5, "here")
    of.note(number, "in vain")
    held.close()
    seek("--trials", 2, "--repeats", 1)
    assert trials(folder)[number].state == "stopped"
    assert journal.evidence(trials(folder))[point].ruled_out

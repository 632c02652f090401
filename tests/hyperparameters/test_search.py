"""Whole searches, with runs that are simulated: what is searched, resumed, shared, confirmed and told."""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
from click.testing import CliRunner

from rn50.cli import main
from rn50.errors import UserError
from rn50.hyperparameters.search import journal, objective, search, subject, training
from rn50.hyperparameters.search.journal import Journal
from rn50.hyperparameters.search.planner import Options, Planner
from rn50.hyperparameters.search.progress import Progress
from rn50.hyperparameters.search.training import evaluations
from rn50.results.parse import read_log
from rn50.settings import config as configuration
from rn50.settings import config_file
from rn50.settings.shell import assignments

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = config_file.CONFIGS / "config_DEMO_CPU.sh"
STANDS, NOTHING, USER_CAN_MEND = 0, 1, 2
SIMULATED = [sys.executable, "-m", "tests.hyperparameters.simulated_run"]


@pytest.fixture
def data(tmp_path):
    """Files of the names of a data set."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("train.rec", "train.idx", "val.rec", "val.idx"):
        (folder / name).write_text("not opened by anybody here")
    return folder


@pytest.fixture
def seek(data, tmp_path, monkeypatch):
    """``seek("--trials", 3, SIMULATED_EPOCH_S=0.1)`` is a call of the command in this process; ``tmp_path / "to"`` its folder."""
    monkeypatch.setattr(training, "COMMAND", SIMULATED)
    monkeypatch.setattr(search, "POLL_S", 0.02)

    def called(*arguments, config="DEMO_CPU", **environ):
        given = ["search", str(config), "--to", str(tmp_path / "to"), *map(str, arguments)]
        variables = {"DATADIR": str(data), "CONFIG_FILE": "", "SIMULATED_EPOCH_S": "0", **environ}
        return CliRunner(mix_stderr=False).invoke(main, given, env=variables)

    return called


def trials(folder):
    return Journal(folder).trials()


def configuration_of(file):
    return configuration.from_environment(assignments.read(file).values).as_environment()


def complaint(result):
    assert result.exit_code == USER_CAN_MEND, result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("rn50: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_a_search_finds_something_better_and_confirms_it(seek, tmp_path):
    result = seek("--trials", 14, "--json")
    assert result.exit_code == STANDS, result.stderr
    told, folder = json.loads(result.stdout), tmp_path / "to"
    assert told["stands"] and told["epochs"]["reduction"] > 0.15 and told["epochs"]["p"] < 0.01
    assert told["baseline"] == {"LR": "2", "BATCHSIZE": "64", "WARMUP_EPOCHS": "1", "WD": "5e-05", "NUMEPOCHS": "12"}
    assert len(told["trials"]) == 14

    written, before = (configuration_of(file) for file in (folder / "config_DEMO_CPU.sh", DEMO))
    differs = {name for name in before if before[name] != written[name]} - {"EVAL_OFFSET"}
    assert differs == {name for name, value in told["winner"].items() if value != told["baseline"][name]} and "LR" in differs
    assert {name: written[name] for name in told["winner"]} == told["winner"]

    seeds = [each["seed"] for each in told["trials"]]
    for who in ("baseline", "winner"):
        for number in range(5):
            log = read_log(folder / "confirmed" / who / f"result_{number}.txt")
            rate = next(event.value for event in log.events if event.key == "lars_opt_base_learning_rate")
            assert rate == float(told[who]["LR"])
            seeds.append(log.seed)
    assert len(set(seeds)) == len(seeds)

    report = (folder / "report.md").read_text()
    assert told["sentence"] in report and "demo data set, not an MLPerf result" in report
    for each in told["trials"]:
        assert str(each["seed"]) in report
        log = read_log(folder / "trials" / f"{each['number']:03d}" / "result_0.txt") if each["state"] == "finished" else None
        if log:
            assert log.seed == each["seed"] and objective.value(log.evaluations) == each["value"]
            assert log.global_batch_size == int(each["BATCHSIZE"])


def test_the_configuration_that_it_writes_is_evaluated_when_its_runs_reached_the_target(seek, tmp_path):
    assert seek("--trials", 14).exit_code == STANDS
    written = assignments.read(tmp_path / "to" / "config_DEMO_CPU.sh").values
    epochs = [read_log(tmp_path / "to" / "confirmed" / "winner" / f"result_{n}.txt").reached.epoch for n in range(5)]
    first, period = int(written["EVAL_OFFSET"]) + 1, int(written["EVAL_PERIOD"])
    assert period == 4 and max(epochs) in range(first, int(written["NUMEPOCHS"]) + 1, period)


def test_a_search_that_has_ended_is_told_again_and_nothing_is_run(seek, tmp_path):
    first = seek("--trials", 12)
    before = {file: file.read_bytes() for file in (tmp_path / "to").rglob("*") if file.is_file()}
    again = seek("--trials", 12)
    assert (again.exit_code, again.stdout) == (first.exit_code, first.stdout) and first.exit_code == STANDS
    assert "begins" not in again.stderr
    assert {file: file.read_bytes() for file in (tmp_path / "to").rglob("*") if file.is_file()} == before


def test_the_report_names_all_the_code_that_ran(seek, tmp_path):
    seek("--trials", 3)
    report = tmp_path / "to" / "report.md"
    for number, commit in enumerate(("aaa", "bbb-dirty", "aaa")):
        (tmp_path / "to" / "trials" / f"{number:03d}" / "result_0.json").write_text(json.dumps({"commit": commit}))
    seek("--trials", 3)
    assert "- commit aaa; but bbb-dirty in trial 1; Python" in report.read_text()


def test_a_larger_budget_goes_on_where_nothing_better_was_found(seek, tmp_path):
    assert seek("--trials", 1).exit_code == NOTHING
    assert [trial.state for trial in trials(tmp_path / "to")] == ["finished"]
    assert "there is nothing to confirm" in (tmp_path / "to" / "report.md").read_text()
    assert seek("--trials", 12).exit_code == STANDS
    assert len(trials(tmp_path / "to")) == 12


def test_no_time_left_but_for_the_confirmation(seek, tmp_path):
    result = seek("--minutes", "0.0001")
    assert result.exit_code == NOTHING  # one trial tells how long one takes
    assert len(trials(tmp_path / "to")) == 1


def test_the_baseline_is_the_first_trial_that_reaches_the_target(seek, tmp_path):
    config = tmp_path / "config_FAR.sh"
    config.write_text(DEMO.read_text().replace("LR=2.0", "LR=0.02"))
    result = seek("--trials", 9, "--json", config=config)
    assert result.exit_code == STANDS, result.stderr
    told = json.loads(result.stdout)
    missed = [each["number"] for each in told["trials"] if each["LR"] == "0.02"]
    first = next(each for each in told["trials"] if each["value"] is not None and each["value"] < 100)
    assert missed == [0] and told["baseline"]["LR"] == first["LR"] != "0.02"


def test_nothing_reaches_the_target(seek, tmp_path):
    config = tmp_path / "config_FAR.sh"
    config.write_text(DEMO.read_text().replace("NUMEPOCHS=12", "NUMEPOCHS=4"))
    result = seek("--trials", 3, config=config)
    assert result.exit_code == NOTHING
    assert result.stdout.startswith("No trial reached the target; there is nothing to confirm.")


def test_a_bad_run_is_stopped_and_its_log_says_aborted(seek, tmp_path):
    seek("--trials", 4, "--repeats", 2, SIMULATED_EPOCH_S="0.1")
    stopped = [trial for trial in trials(tmp_path / "to") if trial.state == "stopped"]
    assert [trial.point.learning_rate for trial in stopped] == [0.2]
    log = read_log(tmp_path / "to" / "trials" / f"{stopped[0].number:03d}" / "result_0.txt.partial")
    assert log.status == "aborted" and 4 <= len(log.evaluations) < 12
    assert stopped[0].note.startswith("after epoch")


# Runs that fail


def test_a_loss_that_is_no_number_is_an_answer(seek, tmp_path):
    assert seek("--trials", 9, SIMULATED_FAULTS='{"LR=20": "diverged"}').exit_code != USER_CAN_MEND
    gone = [trial for trial in trials(tmp_path / "to") if trial.point.learning_rate == 20]
    assert len(gone) == 1 and gone[0].state == "finished" and gone[0].value > 1000
    assert gone[0].note.startswith("the training loss is nan")


def test_a_larger_batch_that_cannot_be_run_is_out(seek, tmp_path):
    result = seek("--trials", 14, "--repeats", 1, "--seeds-to-confirm", 2, SIMULATED_FAULTS='{"BATCHSIZE=128": "fault"}')
    assert result.exit_code == NOTHING, result.stderr
    large = [trial for trial in trials(tmp_path / "to") if trial.point.batch_size == 128]
    assert large and all(trial.state == "stopped" and "the disk is on fire" in trial.note for trial in large)


def test_any_other_fault_ends_the_search_and_it_goes_on_when_that_is_mended(seek, tmp_path):
    said = complaint(seek("--trials", 6, SIMULATED_FAULTS='{"LR=20": "fault"}'))
    assert "LR=20" in said and "the disk is on fire; put it out" in said and "trials/0" in said
    assert [trial.state for trial in trials(tmp_path / "to")][-1] == "failed"
    seek("--trials", 6)
    told = trials(tmp_path / "to")
    assert sum(trial.state in ("finished", "stopped") for trial in told) == 6
    assert [trial.state for trial in told if trial.point.learning_rate == 20] == ["failed", "finished", "finished"]


def test_a_run_that_is_killed_begins_again_but_not_for_ever(seek, tmp_path):
    said = complaint(seek("--trials", 6, SIMULATED_FAULTS='{"LR=20": "killed"}'))
    assert "LR=20" in said
    assert sum(trial.state == "failed" for trial in trials(tmp_path / "to")) == search.MOST_KILLED + 1


# Several workers, and workers that are killed


def command(folder, data, *arguments, epoch_s=0.02):
    """The command in a process of its own."""
    code = (
        "from rn50.hyperparameters.search import search, training\n"
        f"training.COMMAND, search.POLL_S = {SIMULATED!r}, 0.02\n"
        "from rn50.cli import main\nmain()"
    )
    environ = {**_environment(), "DATADIR": str(data), "SIMULATED_EPOCH_S": str(epoch_s), "SIMULATED_FOLDER": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", code, "search", "DEMO_CPU", "--to", str(folder), *map(str, arguments)], cwd=str(ROOT), env=environ,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def _environment():
    return {name: value for name, value in os.environ.items() if name not in ("CONFIG_FILE", "DGXSYSTEM")}


def runs_alive(folder):
    """Processes of simulated runs of a search."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cmdline()[1:] == SIMULATED[1:] and process.environ().get("SIMULATED_FOLDER") == str(folder):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            pass
    return found


def gone(folder, seconds=10):
    deadline = time.monotonic() + seconds
    while runs_alive(folder) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not runs_alive(folder)


def results(folder):
    """Whole logs, of trials and of the confirmation."""
    return {file: file.read_bytes() for file in folder.rglob("result_*.txt")}


def assert_nothing_lost_or_repeated(folder, repeats):
    told = trials(folder)
    whole = {trial.number for trial in told if Journal(folder).result_file(trial.number).exists()}
    assert whole == {trial.number for trial in told if trial.state == "finished"}
    for trial in told:
        assert trial.state in ("finished", "stopped", "interrupted")
        if trial.state == "finished":
            log = Journal(folder).result_file(trial.number)
            assert trial.value == objective.value(evaluations(log)) and read_log(log).seed == trial.seed
    for point in {trial.point for trial in told}:
        assert sum(trial.point == point and trial.state in ("finished", "stopped") for trial in told) <= repeats
    assert len({trial.seed for trial in told}) == len(told)


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_at_random_moments_it_goes_on_and_loses_and_repeats_nothing(data, tmp_path, workers):
    draw, folder, kept, kills = random.Random(workers), tmp_path / "to", {}, 0
    arguments = ("--trials", 16, "--workers", workers, "--repeats", 2, "--seeds-to-confirm", 3)
    while True:
        process = command(folder, data, *arguments, epoch_s=0.05)
        try:
            process.wait(draw.uniform(0.3, 3.5))
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
        assert kills < 100
    assert process.returncode in (STANDS, NOTHING), err
    assert kills >= 3
    assert_nothing_lost_or_repeated(folder, 2)
    assert sum(trial.state in ("finished", "stopped") for trial in trials(folder)) <= 16
    assert len([file for file in kept if "confirmed" in file.parts]) == 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_its_runs_and_it_goes_on(data, tmp_path, number):
    folder = tmp_path / "to"
    arguments = ("--trials", 5, "--repeats", 2, "--seeds-to-confirm", 2)
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
    process.communicate(timeout=60)
    assert_nothing_lost_or_repeated(folder, 2)
    assert sum(trial.state in ("finished", "stopped") for trial in trials(folder)) == 5


def until(condition, process):
    deadline = time.monotonic() + 30
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_second_call_joins_in_and_goes_on_where_the_first_is_killed(data, tmp_path):
    folder = tmp_path / "to"
    arguments = ("--trials", 8, "--repeats", 2, "--seeds-to-confirm", 2)
    first = command(folder, data, *arguments, epoch_s=0.2)
    until(lambda: folder.exists() and len(list(folder.glob("trials/*/result_0.txt"))) == 1, first)
    second = command(folder, data, *arguments, epoch_s=0.2)
    until(lambda: [trial.state for trial in trials(folder)][2:] == ["running", "running"], second)
    kept = results(folder)
    first.kill()
    _, told_by_first = first.communicate()
    out, err = second.communicate(timeout=90)
    assert second.returncode in (STANDS, NOTHING), err
    assert "its worker is gone; it begins again" in err
    assert {file: results(folder).get(file) for file in kept} == kept
    assert_nothing_lost_or_repeated(folder, 2)
    begun = [{line.split()[2] for line in text.splitlines() if " trial " in line and line.endswith("begins")}
             for text in (told_by_first, err)]
    assert begun[0] and begun[1] and not begun[0] & begun[1]


def test_a_point_of_which_nothing_is_known_is_run_twice_at_once_only_where_nothing_else_is_to_do(data, tmp_path):
    on = subject.read("DEMO_CPU", {**os.environ, "CONFIG_FILE": "", "DATADIR": str(data)})
    with Progress(None) as progress:
        options = Options(workers=3, trials=None, minutes=None, repeats=3, seeds=5, confirm_data=None)
        planner = Planner(on, tmp_path / "to", options, progress)
        for _ in range(3):
            task = planner.next(0)
            planner.journal.finish(task.trial, 9.0)
            task.held.close()
        tasks = [planner.next(in_hand) for in_hand in range(2)]
        assert [task.point.learning_rate for task in tasks] == [20.0, 0.2]
        planner.journal.finish(tasks[1].trial, 8.0)
        tasks += [planner.next(in_hand) for in_hand in range(2, 4)]
        assert [task.point.learning_rate for task in tasks[2:]] == [0.2, 0.2]
        tasks.append(planner.next(4))
        assert tasks[-1].point.learning_rate == 20.0
        for task in tasks:
            task.held.close()


def test_two_calls_confirm_together(data, tmp_path):
    folder = tmp_path / "to"
    calls = [command(folder, data, "--trials", 10, "--repeats", 2, epoch_s=0.05) for _ in range(2)]
    told = [call.communicate(timeout=120) for call in calls]
    assert {call.returncode for call in calls} == {STANDS}, told
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
    point = trials(folder)[0].point._replace(learning_rate=20.0)
    number, held = of.begin(point, "learning rate x10", 5, "here")
    of.note(number, "in vain")
    held.close()
    seek("--trials", 2, "--repeats", 1)
    assert trials(folder)[number].state == "stopped"
    assert journal.evidence(trials(folder))[point].out


# What a user can mend


@pytest.mark.parametrize("arguments, environ, says", [
    ((), {"DATADIR": "/nowhere"}, "/nowhere: No such file or directory; set DATADIR"),
    (("--confirm-data", "/nowhere"), {}, "/nowhere: No such file or directory; set DATADIR"),
    (("--workers", 10_000), {}, "--workers 10000: this machine gives"),
    (("--to", "/proc/nowhere"), {}, "/proc/nowhere: cannot be written (No such file or directory); give another folder"),
])  # fmt: skip
def test_what_a_user_can_mend(seek, arguments, environ, says):
    assert says in complaint(seek(*arguments, **environ))


@pytest.mark.parametrize("change, says", [
    (("LR=2.0", "LR=fast"), "config_X.sh: LR=fast is not a number"),
    (("WARMUP_EPOCHS=1", "WARMUP_EPOCHS=12"), "the warm-up must be shorter than the schedule"),
    (("# --- hyperparameters", "# ---"), "config_X.sh: no section `# --- hyperparameters`"),
])  # fmt: skip
def test_a_configuration_that_cannot_be_run(seek, tmp_path, change, says):
    (tmp_path / "config_X.sh").write_text(DEMO.read_text().replace(*change))
    assert says in complaint(seek(config=tmp_path / "config_X.sh"))
    assert not (tmp_path / "to").exists()


def test_no_such_configuration(seek):
    assert "NOBODY: no such file, and no system of configs/; there are: 1xA100" in complaint(seek(config="NOBODY"))


def test_a_folder_of_another_search(seek, tmp_path, data):
    seek("--trials", 1)
    config = tmp_path / "config_X.sh"
    config.write_text(DEMO.read_text().replace("MOM=0.9", "MOM=0.8"))
    assert "holds a search with other configuration (MOM); give another folder" in complaint(seek(config=config))
    assert "holds a search with other options (--repeats)" in complaint(seek("--repeats", 4))
    other = shutil.copytree(str(data), str(tmp_path / "other"))
    assert seek("--trials", 1, DATADIR=other).exit_code == NOTHING  # a copy is the same data
    (tmp_path / "other" / "val.rec").write_text("more of it")
    assert "holds a search with other data (val.rec)" in complaint(seek(DATADIR=other))


@pytest.mark.parametrize("change, allowed", [
    ({"weight_decay": 1e-4}, True),
    ({"weight_decay": 1.5e-4}, False),  # the rules have 0.0001 * 2^n
    ({"warmup_epochs": 12}, False),  # as long as the schedule
    ({"batch_size": 16384}, False),  # more than the data set has
    ({"learning_rate": 123.4}, True),
])  # fmt: skip
def test_only_what_can_be_run_by_the_rules_is_tried(data, change, allowed):
    on = subject.read("DEMO_CPU", {**os.environ, "DATADIR": str(data)})
    assert on.possible(on.start) and on.possible(on.start._replace(**change)) is allowed


def test_a_configuration_of_the_open_division_may_go_on_leaving_the_rules(data, tmp_path):
    for division, allowed in (("open", True), ("closed", False)):
        text = DEMO.read_text().replace("SUBMISSION_DIVISION=closed", f"SUBMISSION_DIVISION={division}")
        (tmp_path / "config_X.sh").write_text(text)
        on = subject.read(str(tmp_path / "config_X.sh"), {**os.environ, "DATADIR": str(data)})
        assert on.possible(on.start._replace(weight_decay=1.5e-4)) is allowed


def test_an_edited_configuration_is_not_overwritten(seek, tmp_path):
    seek("--trials", 12)
    (tmp_path / "to" / "config_DEMO_CPU.sh").write_text("mine now\n")
    assert seek("--trials", 12).exit_code == STANDS
    assert (tmp_path / "to" / "config_DEMO_CPU.sh").read_text() == "mine now\n"


@pytest.mark.parametrize("spoil", (
    lambda file: file.write_text("my diary, without a last newline"), lambda file: file.write_text("[" * 99_999 + "\n"),
    lambda file: file.write_bytes(b"\xff\n"), lambda file: file.write_text('{"op_code":99}\n'),
    lambda file: file.write_text('{"op_code":0,"worker_id":"x","study_name":"other","directions":[1]}\n'),
    lambda file: file.write_text('{"op_code":5,"worker_id":"x"}\n'), os.mkfifo, os.mkdir, lambda file: file.symlink_to(file.name),
))  # fmt: skip
def test_a_journal_that_is_none_is_a_line_and_left_alone(tmp_path, spoil):
    file = tmp_path / "journal.log"
    spoil(file)
    before = file.read_bytes() if file.is_file() else None
    with pytest.raises(UserError, match=f"^{file}: .*; give another folder with --to$"):
        Journal(tmp_path)
    assert before is None or file.read_bytes() == before


def test_a_pipe_in_the_place_of_a_lock_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "plan.lock")
    with pytest.raises(UserError, match="plan.lock: cannot be written .*; give another folder with --to"):
        Journal(tmp_path)

"""The state of a campaign as its logs tell it, and what a person is shown of it.

Processes: a campaign is watched from beside it.
"""

import dataclasses
import io
import json
import os
import re
import shlex
import subprocess
import sys
import time
import types

import pytest
from click.testing import CliRunner
from rich.console import Console

from rn50.benchmark import rules
from rn50.cli import main
from rn50.errors import UserError
from rn50.files import ROOT
from rn50.launch.campaign import state, summary, view, watch
from rn50.results import score
from rn50.run import log_file, provenance
from rn50.run.display import EpochProgress, read_progress
from rn50.settings import document, header, named
from rn50.settings.document import Document
from rn50.submission import check
from tests.results.scored import write_run, write_runs
from tests.support import campaigns, typed

CONFIG, DEMO = document.file_of("NF5688M6"), document.file_of("DEMO_CPU")
RN50 = [sys.executable, "-m", "rn50"]


@pytest.fixture
def results(tmp_path):
    """Two runs that have ended and one that is going on, at epoch 10 of 35; the last two records are half
    written."""
    folder = campaigns.make(tmp_path / "NF5688M6", "0" * 40, {}, runs=3, config_file=CONFIG)
    log = folder / "result_2.txt"
    lines = log.read_text().splitlines(keepends=True)
    stop = next(
        number for number, line in enumerate(lines) if '"epoch_stop"' in line and '"epoch_num": 10' in line)
    (folder / "result_2.txt.partial").write_text("".join(lines[: stop + 2]) + lines[stop + 2][:30])
    log.unlink()
    return folder


def shown(campaign, live=None, width=80):
    console = Console(file=io.StringIO(), width=width)
    console.print(view.render(campaign, live))
    return console.file.getvalue()


def test_the_state_is_that_of_the_logs(results):
    campaign = state.read(results, 5)
    assert [run.state for run in campaign.runs] == [
        state.ENDED, state.ENDED, state.RUNNING, state.WAITING, state.WAITING]
    assert (campaign.system, campaign.label, campaign.is_over) == ("NF5688M6", None, False)
    current = campaign.current
    assert (current.number, current.epoch, current.reached) == (3, 10, None)
    assert [each.epoch for each in current.evaluations] == [3, 7]
    assert campaign.last_epoch == 35 == int(campaign.ended[0].reached.epoch)


def test_a_campaign_has_as_many_runs_as_its_newest_run_has_saved(results, monkeypatch):
    assert len(state.read(results, None).runs) == rules.RUNS
    for runs, number in (("3", 3), ("x", 5), ("1000000", 5), ("7", 7)):
        campaigns.change(results / "result_1.txt", runs=runs)
        newest = (results / "result_1.json").stat().st_mtime + 1
        os.utime(results / "result_1.json", (newest, newest))
        assert len(state.read(results, None).runs) == number
    assert len(state.read(results, 2).runs) == 2
    before, now = state.read(results, 2), state.read(results, None)  # the campaign was extended meanwhile
    assert next(view.events(before, now)) == "run 3 of 7 begins"
    monkeypatch.setenv(provenance.RUNS, "12")
    provenance.save(named.read("DEMO_CPU", environ={}), 1, results / "result_8.txt")
    assert json.loads((results / "result_8.json").read_text())["runs"] == "12"


def test_the_time_that_is_left_follows_from_the_epochs_and_the_runs_before(results):
    campaign = state.read(results, 5)
    of_run, left = campaign.seconds_left(campaign.current.epoch)
    assert of_run == pytest.approx(25 * campaign.current.epoch_seconds)
    each = sum(run.minutes for run in campaign.ended) / 2 * 60
    assert left == pytest.approx(of_run + 2 * each)
    assert campaign.seconds_left(40)[0] == 0
    assert state.read(results.parent, 5).seconds_left(0) == (None, None)


def test_a_resumed_run_counts_epochs_by_their_numbers_and_time_by_its_own(results):
    partial = results / "result_2.txt.partial"
    before = re.compile(r'"epoch_num": [1-8]\b|"(block|eval)_')
    partial.write_text("".join(
        line for line in partial.read_text().splitlines(keepends=True) if not before.search(line)))
    current = state.read(results, 5).current
    log = current.log
    assert current.epoch == 10 and len(log.by_key["epoch_stop"]) == 2
    assert current.epoch_seconds == (log.events[-1].time_ms - log.run_start_ms) / 2000


def test_the_expected_curve_is_that_of_the_configuration_while_its_hyperparameters_are(results):
    assert state.read(results, 5).curve[35] == (0.758, 0.761)
    for file in results.glob("*.json"):
        saved = json.loads(file.read_text())
        saved["variables"]["LR"] = "9"
        file.write_text(json.dumps(saved))
    assert state.read(results, 5).curve == {}


def test_every_curve_of_a_configuration_is_of_epochs_that_it_evaluates():
    from rn50.benchmark import schedule
    from rn50.settings import named

    found = 0
    for system in document.systems():
        h = named.read(system, environ={}).hyperparameters
        curve = header.curve(header.read(Document(document.file_of(system))))
        assert set(curve) <= set(schedule.evaluation_epochs(h.num_epochs, h.eval_offset, h.eval_period)), (
            system)
        assert all(0 < low <= high < 1 for low, high in curve.values())
        found += bool(curve)
    assert found >= 4


def test_the_view_says_where_the_run_is_and_what_to_expect(results):
    text = shown(state.read(results, 5))
    for said in (
        "NF5688M6", "epoch 11/35", "run 3 of 5", "img/s", "target 0.759",
        "next at epoch 11, expected 0.49 to 0.55", "run 1: top-1 ", "run 2: top-1 ", "no news for ",
    ):
        assert said in text
    assert all(len(line) <= 80 for line in text.splitlines())
    live = shown(state.read(results, 5), EpochProgress(12, 0.5, 20_000.0, 3.21))
    assert "epoch 12/35" in live and "20,000 img/s  loss 3.210" in live and "no news" not in live
    schedule = *range(3, 35, 4), 35, 39
    text = shown(dataclasses.replace(state.read(results, 5), evaluated=schedule))
    assert "epoch 11/~35" in text  # it may take up to 39


def test_a_run_that_was_stopped_or_missed_says_so(results):
    partial = results / "result_2.txt.partial"
    text = partial.read_text()
    partial.write_text(text[: text.rindex("\n") + 1])
    log_file.stop_abandoned(results / "result_2.txt")
    campaign = state.read(results, 3)
    assert campaign.runs[2].state == state.STOPPED and campaign.current is None
    assert "run 3: stopped after epoch 10" in shown(campaign)
    file = results / "result_1.txt"
    file.write_text(re.sub(r'("eval_accuracy", "value": )0\.7[6-9]\d*', r"\g<1>0.75", file.read_text()))
    assert "run 2: missed the target" in shown(state.read(results, 3))


def test_a_hostile_log_or_configuration_ends_no_line(results):
    for file in results.glob("*.json"):
        saved = json.loads(file.read_text())
        saved["config"]["run"]["system"] = "evil\x1b[2J\nrn50: forged"
        saved["config"]["hyperparameters"].update(num_epochs=10**12, eval_period="x")
        file.write_text(json.dumps(saved))
    text = shown(state.read(results, 5))
    assert "\x1b[2J" not in text and not any(line.startswith("rn50: forged") for line in text.splitlines())


def test_progress_is_printed_and_read():
    progress = EpochProgress(3, 0.25, 1234.5, None)
    assert read_progress(progress.line) == progress and read_progress("epoch  3: top-1 0.3") is None


def test_watching_in_a_pipe_prints_a_line_for_each_event(results):
    whole = results / "result_1.txt"
    logs = {f"result_{number}.txt": whole.read_text() for number in (2, 3)}
    process = subprocess.Popen(
        [*RN50, "watch", str(results), "--runs", "4"], cwd=str(ROOT), stdout=subprocess.PIPE, text=True)
    try:
        assert (
            process.stdout.readline() == "run 1 of 4: " + view.outcome(state.read(results, 1).runs[0]) + "\n")
        for name, text in logs.items():
            (results / name).write_text(text)
            (results / f"{name}.partial").unlink(missing_ok=True)
        said = process.stdout.read()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()
    assert "run 3 of 4 begins" in said and "run 3 of 4: top-1 " in said and "run 4 of 4: top-1 " in said


def test_watching_what_is_not_there():
    for options in ((), ("--json",)):
        done = subprocess.run(
            [*RN50, "watch", "/nowhere", *options], cwd=str(ROOT), capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (2, "")
        assert (
            done.stderr
            == "rn50: /nowhere: no such folder; name the results of a campaign, or begin one: rn50 run "
            "CONFIG\n")


def test_the_state_as_json(results):
    done = subprocess.run(
        [*RN50, "watch", str(results), "--json"], cwd=str(ROOT), capture_output=True, text=True, timeout=60)
    said = json.loads(done.stdout)
    assert [run["state"] for run in said["runs"]] == ["ended", "ended", "running", "waiting", "waiting"]
    assert said["runs"][2]["epoch"] == 10 and said["seconds_left"] > said["seconds_left_of_run"] > 0


def test_watching_on_a_terminal_ends_with_ctrl_c_and_leaves_the_campaign(results):
    before = campaigns.snapshot(results)
    done = typed.on_terminal([*RN50, "watch", str(results)], keys=("run 3 of 5", typed.CTRL_C))
    assert done.status == 130 and "epoch 11/35" in done.text
    assert campaigns.snapshot(results) == before


def test_no_log_at_all_is_read_as_a_run(results):
    (results / "result_0.txt").write_text("nothing\n")
    with pytest.raises(UserError, match="result_0.txt"):
        state.read(results, 5)
    (results / "result_0.txt").unlink()
    (results / "result_0.txt.partial").touch()
    begun = state.read(results, 5).runs[0]
    assert (begun.state, begun.epoch, begun.epoch_seconds) == (state.RUNNING, 0, None)
    assert rules.RUNS == 5 and time.time() > 0


def test_without_the_packages_of_the_report_a_campaign_ends_with_its_outcome(tmp_path, monkeypatch, capsys):
    """A GPU machine with PyTorch alone has no matplotlib."""
    folder = campaigns.make(tmp_path / "NF5688M6", "0" * 40, {}, config_file=CONFIG)
    # What is imported anew is an attribute of its parent too, where the tests after this one find it.
    monkeypatch.setattr("rn50.results.report", None, raising=False)
    for name in [each for each in sys.modules if each.startswith(("rn50.results.report", "matplotlib"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    files = sorted(folder.glob("result_?.txt"))
    summary.end(files, "NF5688M6")
    out, err = capsys.readouterr()
    assert re.search("^Score .* min", out, re.MULTILINE) and re.search(
        "^Report +not written$", out, re.MULTILINE)
    assert (
        f"rn50: the report: the package matplotlib is not installed; {sys.executable} -m pip install "
        "matplotlib" in err)
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize(
    "missed, says, best",
    [(2, "2 runs missed the target", "; best top-1 0.7000, below the target"),
     (1, "makes the other 3 runs", "5")])
def test_two_that_missed_the_target_need_no_third(tmp_path, missed, says, best):
    for number in range(2):
        failure = {"accuracy": 0.7, "status": "aborted"} if number < missed else {}
        write_run(tmp_path / f"result_{number}.txt", 60 + number, **failure)
    [system] = score.score([tmp_path])
    unchecked = types.SimpleNamespace(verdicts=(), findings=(), has_another_target=False)
    told = dict(summary.lines(system, unchecked, None, "X"))
    assert says in told["Next"] and told["Score"].startswith("none: 2 runs of 5")
    assert told["Score"].endswith(best)


def test_the_next_command_of_a_changed_configuration_can_be_typed(tmp_path):
    write_runs(tmp_path, 60, 61, 62, 63, 64)
    [system] = score.score([tmp_path])
    unchecked = types.SimpleNamespace(verdicts=(), findings=(), has_another_target=False)
    changed = dataclasses.replace(system, label="demo data set")
    assert (
        "rn50 bench input DEMO_CPU    |" in dict(summary.lines(changed, unchecked, None, "DEMO_CPU"))["Next"])
    # The file of another name is not in configs/, so its name would be no argument.
    assert "rn50 bench input CONFIG    |" in dict(summary.lines(changed, unchecked, None, "MINE"))["Next"]
    assert "rn50 run CONFIG -o " in dict(summary.lines(system, unchecked, None, "MINE+LR=1"))["Next"]


@pytest.mark.parametrize("name", ["DEMO_CPU+LR=1", "my run"])
@pytest.mark.parametrize("in_checkout", [True, False])
def test_after_a_changed_configuration_comes_its_comparison(tmp_path, monkeypatch, in_checkout, name):
    """Or first the runs to compare it with, made where the comparison looks for them."""
    monkeypatch.setattr(summary, "ROOT", tmp_path if in_checkout else tmp_path / "elsewhere")
    before, after = tmp_path / "results" / "DEMO_CPU", tmp_path / "results" / name
    write_runs(after, 60, 61, 62, 63, 64)
    [system] = score.score([after])
    unchecked = types.SimpleNamespace(verdicts=(), findings=(), has_another_target=False)
    compared = f"rn50 compare {before} {shlex.quote(str(after))}"
    told = dict(summary.lines(system, unchecked, None, "DEMO_CPU+LR=1"))["Next"]
    output = "" if in_checkout else f" -o {before}"
    assert f"rn50 run DEMO_CPU{output}    |    " in told and told.endswith(compared)
    write_run(before / "result_0.txt", 60)
    told = dict(summary.lines(system, unchecked, None, "DEMO_CPU+LR=1"))["Next"]
    assert told.endswith(compared) and " run " not in told
    write_run(after / "result_0.txt", 60, accuracy=0.7, status="aborted")
    for number in range(1, 5):
        (after / f"result_{number}.txt").unlink()
    [system] = score.score([after])  # four more such runs are not what comes next
    assert dict(summary.lines(system, unchecked, None, "DEMO_CPU+LR=1"))["Next"] == told
    # Where none lie beside it, those of the default folder.
    default = summary.ROOT / "results" / "DEMO_CPU"
    default.parent.mkdir(parents=True, exist_ok=True)
    before.rename(default)
    told = dict(summary.lines(system, unchecked, None, "DEMO_CPU+LR=1"))["Next"]
    assert f"rn50 compare {default} " in told and " run " not in told


def test_no_further_runs_are_advised_that_give_no_result(tmp_path):
    write_run(tmp_path / "result_0.txt", 60, epoch_samples=6400)
    [system] = score.score([tmp_path])
    unchecked = types.SimpleNamespace(verdicts=(), findings=(), has_another_target=False)
    told = dict(summary.lines(system, unchecked, None, "DEMO_CPU+BENCHMARK_STEPS=2"))["Next"]
    assert told.startswith("without BENCHMARK_STEPS") and told.endswith("rn50 bench throughput DEMO_CPU")


def test_a_campaign_does_not_keep_in_silence_what_lacks_the_weights_asked_for(tmp_path):
    folder = campaigns.make(tmp_path / "results", "0" * 40, {}, runs=2, config_file=DEMO)
    command = [*RN50, "run", "DEMO_CPU", "-o", str(folder), "--runs", "2", "--save-weights"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=str(ROOT))
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert "to have them: rn50 run DEMO_CPU -o results/weights --runs 1 --save-weights" in done.stderr


@pytest.mark.parametrize(
    "change, holds",
    [({}, True), ({"SUBMISSION_ORG": "me", "DATADIR": "/data", "SEED": "4"}, True), ({"LR": "1"}, False),
     ({"TARGET": "none"}, False), ({"BENCHMARK_STEPS": "2"}, False), ({"PRECISION": "float32"}, False),
     ({"DGXNGPU": "1"}, False)])
def test_what_a_file_expects_of_a_run_is_not_said_of_another(change, holds):
    config = named.read("DEMO_CPU").replaced(**change)
    assert bool(header.of(config).get("expected")) == holds
    assert bool(header.curve(header.of_run("DEMO_CPU", config.as_environment()))) == holds


def test_the_scripts_take_this_python_even_if_it_is_not_on_the_path(tmp_path, monkeypatch):
    """As in a checkout without .venv."""
    script = tmp_path / "script.sh"
    script.write_text('#!/bin/sh\ncommand -v python3 > "$RESULTS/python"\n')
    script.chmod(0o755)
    monkeypatch.setattr(watch, "SCRIPT", script)
    assert watch.make_missing(tmp_path / "config_X.sh", tmp_path, 1) == 0
    found = (tmp_path / "python").read_text().strip()
    assert os.path.dirname(found) == os.path.dirname(sys.executable)


@pytest.mark.parametrize("target, lines", [("", 1), ("none", 0)])
def test_a_campaign_says_what_the_file_expects_of_these_runs(target, lines):
    command = ["summary", "result_0.txt", "--system", "DEMO_CPU", "--expected"]
    done = CliRunner().invoke(main, command, env={"CONFIG_FILE": str(DEMO), "TARGET": target})
    assert done.exit_code == 0 and done.stdout.count("expected of a run: epoch") == lines == len(
        done.stdout.splitlines())


@pytest.mark.parametrize("labels", [1, 2, 3])
def test_the_header_keeps_its_height_whatever_its_labels(results, labels):
    label = "; ".join(rules.LABELS[:labels])
    campaign = dataclasses.replace(state.read(results, 5), label=label)
    system, below, *_ = shown(campaign).splitlines()
    assert system.strip() == "NF5688M6" and label.startswith(below.strip().rstrip("…"))
    assert len({len(shown(campaign, width=width).splitlines()) for width in (60, 80, 200)}) == 1


def test_a_campaign_of_another_verb_leaves_the_next_step_to_it(tmp_path, monkeypatch):
    write_runs(tmp_path, 60, 61, 62, 63, 64)
    [system] = score.score([tmp_path])
    unchecked = types.SimpleNamespace(verdicts=(), findings=(), has_another_target=False)
    monkeypatch.setenv(summary.NEXT_IS_SAID, "1")
    assert "Next" not in dict(summary.lines(system, unchecked, None, "X"))


@pytest.mark.parametrize("label, said", [(rules.OTHER_TARGET, True), (rules.NOT_A_RESULT, False)])
def test_the_outcome_says_where_the_official_check_does_not_apply(tmp_path, label, said):
    log = tmp_path / "result_0.txt"
    write_run(log, 60)
    [system] = score.score([tmp_path])
    failed = types.SimpleNamespace(ok=False, file=log, ruleset="4.0.0")
    report = check.CheckReport((failed,), (), excused=(log,), labels=(label,))
    checks = dict(summary.lines(system, report, None, "X"))["Checks"]
    assert checks.startswith("1 of 1 passed (rulesets 4.0.0)")
    assert checks.endswith("; the official accuracy check does not apply: another target") == said

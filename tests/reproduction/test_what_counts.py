"""Runs that count: finished ones of the configuration asked for, and nobody's copies."""

import json
import pathlib
import re
import shutil
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from rn50 import files
from rn50.cli import main
from rn50.errors import UserError
from rn50.reproduction import measurement, reproduction
from rn50.reproduction.claim import claim_of
from rn50.settings.document import Document
from rn50.speed.cell import REAL, SYNTHETIC
from tests.results.scored import save_beside, write_run, write_runs
from tests.support import campaigns
from tests.system.job import ROOT

BASE = ROOT / "configs" / "config_NF5688M6.sh"


def planned(source, to, base=BASE):
    return reproduction.plan(str(source), base and Document(base), to, 5, 0.03)


@pytest.fixture
def begun(tmp_path):
    """A claim of five runs, begun in a folder, with two finished runs of another machine's times."""
    write_runs(tmp_path / "claimed", 1643, 1650, 1661, 1639, 1655)
    told = planned(tmp_path / "claimed", tmp_path / "to")
    write_runs(tmp_path / "to" / "results", 1640, 1651)
    save_beside(tmp_path / "to" / "results", told.here.config)
    return told, tmp_path / "to"


def refused(begun, says):
    """The runs of a folder are refused, before another is made as well as after the last."""
    told, to = begun
    for judge in (lambda: reproduction.judge(told, to / "results"), lambda: reproduction.measured(told, to)):
        with pytest.raises(UserError, match=says):
            judge()


def test_runs_that_count_are_judged(begun):
    assert len(reproduction.judge(begun[0], begun[1] / "results").judged) == 3


def test_a_copy_of_the_claim_is_no_reproduction(begun):
    folder = begun[1] / "results"
    shutil.copyfile(folder.parents[1] / "claimed" / "result_3.txt", folder / "result_1.txt")
    refused(begun, "result_1.txt: is a copy of .*claimed/result_3.txt; move it away")


def test_a_copy_of_another_run_is_none(begun):
    shutil.copyfile(begun[1] / "results" / "result_0.txt", begun[1] / "results" / "result_1.txt")
    refused(begun, "result_1.txt: is a copy of .*results/result_0.txt; move it away")


def test_a_copy_whose_times_and_seed_are_changed_is_one(begun):
    copied = begun[1].parent / "claimed" / "result_3.txt"
    text = copied.read_text().replace('"value": 1639', '"value": 7').replace("17000", "17001")
    assert text.count("17001") > 20
    (begun[1] / "results" / "result_1.txt").write_text(text)
    refused(begun, "result_1.txt: is a copy of ")


def test_runs_that_learn_nothing_are_alike_and_no_copies(begun):
    """Each of their accuracies is that of guessing."""
    for log in (begun[1] / "results").glob("*.txt"):
        log.write_text(re.sub(r'("eval_accuracy", "value": )[0-9.]+', r"\g<1>0.1", log.read_text()))
    assert reproduction.judge(begun[0], begun[1] / "results").missed == 2


def test_runs_of_another_configuration_do_not_count(begun):
    told, to = begun
    log = to / "results" / "result_1.txt"
    campaigns.change(log, variables={**told.here.config.as_environment(), "LR": "9.0"})
    refused(begun, "of another configuration: LR is 9.0 in result_1.txt, 10.5 in the configuration")
    log.with_suffix(".json").unlink()
    refused(begun, "result_1.json beside it is missing, or not what rn50 saves")


def test_a_configuration_that_was_edited_after_the_runs_is_another(begun):
    told, to = begun
    file = pathlib.Path(told.here.config_file)
    file.write_text(f"{file.read_text()}export LR=9\n")
    again = planned(to.parent / "claimed", to)
    assert "LR=10.5 there, 9.0 here" in " ".join(again.here.differences)
    assert not again.here.same_recipe
    refused((again, to), "of another configuration: LR is 10.5 in result_0.txt, 9.0 in the configuration")


@pytest.mark.parametrize("last", ['"key": "run_stop"', '"key": "eval_accuracy"'])
def test_unfinished_runs_do_not_count(begun, last):
    log = begun[1] / "results" / "result_1.txt"
    log.write_text("".join(line for line in log.read_text().splitlines(True) if last not in line))
    refused(begun, "result_1.txt: is no finished run; move it away")


def test_another_base_is_another_reproduction(begun):
    told, to = begun
    for base in (None, ROOT / "configs" / "config_DGXA100.sh"):
        with pytest.raises(UserError, match="of another claim or --on; give another --output"):
            planned(to.parent / "claimed", to, base)
    assert planned(to.parent / "claimed", to).here.config == told.here.config


def test_one_process_measures_in_a_folder(begun, monkeypatch):
    monkeypatch.setattr("rn50.reproduction.here.refuse_prevented", lambda here: None)
    to = begun[1]
    with files.only_process(to, "reproducing a result"):
        arguments = ("reproduce", to.parent / "claimed", "--on", BASE, "-o", to)
        done = CliRunner().invoke(main, [*map(str, arguments)])
    assert "another process is reproducing a result there; wait for it" in done.output


def test_a_claim_says_which_of_its_runs_do_not_count(tmp_path):
    write_runs(tmp_path / "claimed", 1643, 1650, 1661)
    write_run(tmp_path / "claimed" / "result_3.txt", 1639, status=None)
    write_run(tmp_path / "claimed" / "result_4.txt", 1655, accuracy=0.7, status="aborted")
    told = planned(tmp_path / "claimed", tmp_path / "to")
    assert len(told.claim.epochs) == 3
    [said] = [line for line in told.here.differences if line.startswith("its runs: ")]
    assert said == "its runs: result_3.txt, result_4.txt did not end at the target, and are left out"


def in_all(results, change):
    """Changes what is saved beside every log of a folder."""
    for log in results.glob("result_*.txt"):
        saved = json.loads(log.with_suffix(".json").read_text())
        change(saved)
        campaigns.change(log, **saved)


def other_rate(saved):
    saved["variables"]["LR"] = "30.0"
    saved["config"]["hyperparameters"]["learning_rate"] = 30.0


def other_target(saved):
    saved["variables"]["TARGET"] = saved["config"]["run"]["target"] = "none"


@pytest.mark.parametrize(
    "change, says",
    [(other_rate, "learning rate is 10.5 in the log and 30.0 beside it"),
     (other_target, "what was saved beside the log says .*and the log does not"),
     (lambda saved: saved["variables"].update(LR="3"), "LR is 3 in the variables beside it, and 10.5")])
def test_a_claim_that_contradicts_itself_is_refused(results, change, says):
    in_all(results, change)
    with pytest.raises(UserError, match=says):
        claim_of(str(results))


def test_a_claim_of_two_configurations_or_of_copies_is_refused(results):
    shutil.copyfile(results / "result_1.txt", results / "result_2.txt")
    shutil.copyfile(results / "result_1.json", results / "result_2.json")
    with pytest.raises(UserError, match="result_2.txt: is a copy of .*result_1.txt; move it away"):
        claim_of(str(results))


@pytest.mark.parametrize("content", ["{", "[]", '{"config": 7}', '{"variables": {"LR": "\\ud800\\u0000"}}'])
def test_a_file_beside_the_logs_that_nobody_can_read_is_named(results, content):
    """Not taken for somebody else's logs, whose variables are guessed."""
    for log in results.glob("result_*.txt"):
        log.with_suffix(".json").write_text(content)
    with pytest.raises(
        UserError, match="result_0.json beside it is missing, or not what rn50 saves; move it"
    ):
        claim_of(str(results))


def test_a_value_that_no_shell_can_have_is_left_out(results, tmp_path):
    in_all(results, lambda saved: saved["variables"].update(DGXSYSTEM="\ud800"))
    in_all(results, lambda saved: saved["config"]["run"].update(system="\ud800"))
    told = planned(results, tmp_path / "to", base=None)
    assert "could run code: DGXSYSTEM" in " ".join(told.here.differences)


def test_saved_weights_are_shown_and_make_epochs_incomparable(results, tmp_path):
    weights = str(tmp_path / "w.safetensors")
    told = planned(results, tmp_path / "without", base=None)
    assert told.here.same_recipe
    told.claim.saved["variables"]["INITIAL_WEIGHTS"] = weights
    (tmp_path / "to").mkdir()
    here = reproduction.configure(told.claim, None, tmp_path / "to")
    assert not here.same_recipe and f"INITIAL_WEIGHTS={weights} there, {weights} here" in " ".join(
        here.differences)


BROKEN = ["{}", "[]", "null", "7", '{"epoch_seconds": "x"}', "{"]


def measured(told, to, monkeypatch, calls):
    rates = SimpleNamespace(real=(5.0, 4.0, 6.0), synthetic=(7.0, 6.0, 8.0))
    outcome = SimpleNamespace(
        failure="", step=SimpleNamespace(communication=0.25),
        rates={REAL: measurement.Rates(*rates.real), SYNTHETIC: measurement.Rates(*rates.synthetic)})
    monkeypatch.setattr(measurement.cell, "run", lambda *arguments: calls.append(arguments) or outcome)
    expected = SimpleNamespace(low=None, high=None)
    return measurement.measure(told.here, expected, to)


def test_a_measurement_is_kept_for_its_configuration(begun, monkeypatch):
    (told, to), calls = begun, []
    first = measured(told, to, monkeypatch, calls)
    assert measured(told, to, monkeypatch, calls) == first and len(calls) == 1
    file = pathlib.Path(told.here.config_file)
    file.write_text(f"{file.read_text()}export DALI_THREADS=7\n")
    measured(planned(to.parent / "claimed", to), to, monkeypatch, calls)
    assert len(calls) == 2


@pytest.mark.parametrize("content", BROKEN + ['{"real median": -1}'])
def test_a_broken_measurement_names_itself(begun, monkeypatch, content):
    told, to = begun
    measured(told, to, monkeypatch, [])
    [file] = to.glob("measured-*.json")
    file.write_text(content)
    with pytest.raises(UserError, match="measured-.*json: .*; remove it, and the same command measures aga"):
        measured(told, to, monkeypatch, [])

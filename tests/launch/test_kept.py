"""Finished runs that a campaign keeps: of what is asked for, and with what is asked of every run."""

import re

import pytest
from click.testing import CliRunner

from rn50.cli import main
from rn50.errors import UserError
from rn50.launch.campaign import kept
from rn50.run.display import CURVES
from rn50.settings import document, named
from tests.support import campaigns

DEMO = document.file_of("DEMO_CPU")


@pytest.mark.parametrize(
    "asked, lacks, command",
    [({"SAVE_WEIGHTS": "1"}, "weights", "{} -o results/weights --runs 1 --save-weights"),
     ({"SAVE_WEIGHTS": "best"}, "weights", "{} -o results/weights --runs 1 --save-weights best"),
     ({"POWER": "rapl"}, "power", "POWER=rapl {} -o results/power"),
     ({CURVES: "/the curves"}, "curves", "{} -o results/curves --tensorboard '/the curves'")])
def test_what_kept_runs_lack_is_refused_with_the_command_that_makes_it(
    tmp_path, monkeypatch, asked, lacks, command
):
    folder = campaigns.make(tmp_path / "DEMO_CPU+LR=1", "0" * 40, {}, runs=2, config_file=DEMO)
    monkeypatch.setenv("CONFIG_FILE", str(DEMO))
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    logs = sorted(folder.glob("result_?.txt"))
    with pytest.raises(UserError) as refused:
        kept.refuse_lacking(logs, folder.name, named.read(None))
    command = command.format("rn50 run DEMO_CPU --set LR=1")
    assert str(refused.value) == f"{logs[0]}: is kept as it is, without {lacks}; to have them: {command}"
    with pytest.raises(UserError, match="rn50 run CONFIG -o"):  # of a file that is not in configs/
        kept.refuse_lacking(logs, "OWN+LR=1", named.read(None))


def test_what_kept_runs_have_and_what_there_may_be_is_not_refused(tmp_path, monkeypatch):
    folder = campaigns.make(tmp_path / "DEMO_CPU", "0" * 40, {}, runs=1, config_file=DEMO)
    for values in ({}, {"SAVE_WEIGHTS": "first", "POWER": "auto"}):
        kept.refuse_lacking([folder / "result_0.txt"], "DEMO_CPU", named.read(str(DEMO), environ=values))
    monkeypatch.setenv(CURVES, str(tmp_path / "curves"))
    (tmp_path / "curves" / "DEMO_CPU" / "result_0").mkdir(parents=True)
    (folder / "result_0.safetensors").touch()
    kept.refuse_lacking(
        [folder / "result_0.txt"], "DEMO_CPU", named.read(str(DEMO), environ={"SAVE_WEIGHTS": "1"}))


@pytest.mark.parametrize(
    "environment, runs, status, says",
    [({"MOM": "0.8"}, 2, 0, "warning: MOM: 0.8 of the environment has no effect: the configuration sets 0.9"),
     ({"MOM": "0.8"}, 3, 0, ""),  # the doctor says so before the third run
     ({"DATADIR": "/absent"}, 2, 2, "rn50: results: .* DATADIR is .*, /absent in this command; move them "),
     ({"DATADIR": "/absent"}, 3, 2, "rn50: results: .* DATADIR is "),
     ({"EVAL_TOP5": "1"}, 2, 2, "EVAL_TOP5 is 0 in result_0.txt, result_1.txt, 1 in this command")])
def test_kept_runs_are_of_the_configuration_that_is_asked_for(tmp_path, environment, runs, status, says):
    folder = campaigns.make(tmp_path / "DEMO_CPU", "0" * 40, {}, runs=2, config_file=DEMO)
    logs = [str(folder / f"result_{number}.txt") for number in range(runs)]
    done = CliRunner(mix_stderr=False).invoke(
        main, ["summary", *logs, "--system", "DEMO_CPU", "--kept"],
        env={"CONFIG_FILE": str(DEMO), **environment})
    assert done.exit_code == status and len(done.stderr.splitlines()) == bool(says)
    assert re.search(says, done.stderr)


def test_data_that_do_not_fit_are_told_before_kept_runs_of_other_data(tmp_path):
    folder = campaigns.make(tmp_path / "DEMO_CPU", "0" * 40, {}, runs=1, config_file=DEMO)
    (tmp_path / "pack.json").write_text('{"classes": 3, "train": 1800, "val": 600}')
    config = named.read(str(DEMO), environ={"DATADIR": str(tmp_path)})
    with pytest.raises(UserError, match="pack.json: 3 classes, .* give --set NUMCLASSES=3"):
        kept.examine([folder / "result_0.txt"], "DEMO_CPU", config)

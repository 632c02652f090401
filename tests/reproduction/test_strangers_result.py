"""A result folder is data: nothing that comes with it runs, whatever it says."""

import json
import os
import pathlib
import shutil

import pytest

from rn50.errors import UserError
from rn50.reproduction import here, reproduction
from rn50.results import sidecar
from rn50.settings.libraries import HARMLESS
from rn50.submission import source
from tests.conftest import with_changes
from tests.support import campaigns
from tests.support.planted import marks, plant


def planned(folder, to):
    return reproduction.plan(str(folder), None, to, 5, 0.03)


def say_in_all(folder, **tables):
    """Adds to tables of what is saved beside the logs of a campaign."""
    for log in folder.glob("result_*.txt"):
        saved = json.loads(log.with_suffix(".json").read_text())
        campaigns.change(log, **{name: {**saved.get(name, {}), **more} for name, more in tables.items()})


@pytest.mark.parametrize("table", ["environment", "variables"])
def test_variables_that_could_run_code_are_left_out_and_named(results, tmp_path, table):
    mark = tmp_path / "mark"
    strange = plant(tmp_path / "planted", mark)
    say_in_all(results, **{table: {**strange, "NCCL_BUFFSIZE": "4194304"}})
    told = planned(results, tmp_path / "to")
    assert marks(mark) == []
    assert (
        told.here.config.environment["NCCL_BUFFSIZE"] == "4194304"
        and told.here.config.environment["BATCHSIZE"] == "408")
    for name, value in strange.items():
        if name != "CONFIG_FILE":
            assert told.here.config.environment.get(name) == os.environ.get(name) != value, name
    [line] = [line for line in told.here.differences if "because they could run code" in line]
    assert set(line.split(": ")[1].split(", ")) == set(strange)
    text = (tmp_path / "to" / f"config_{results.name}.sh").read_text()
    assert "LD_PRELOAD=" not in text and "# Left out: " in text


def test_only_known_names_become_a_configuration(results):
    """Every name of this process's environment, and those of the shell, of Python, git and the loader."""
    saved = {"environment": {**os.environ, **dict.fromkeys(HARMLESS, "1"), "LR": "1", "SEED": "1"}}
    assert set(sidecar.variables(saved)) - {"LR"} <= HARMLESS
    assert "SEED" not in sidecar.variables(saved)
    twice = {"environment": {"LR": "1"}, "variables": {"LR": "2", "HOSTS": "x", "DGXSYSTEM": "a\nb"}}
    assert sidecar.variables(twice) == {"LR": "2"} and sidecar.left_out(twice) == ["DGXSYSTEM"]


@pytest.mark.parametrize("name", ["a\ncd;touch PWN\n#", "a'$(touch PWN)", "`touch PWN`", "é \\\r\ntouch PWN"])
def test_the_name_of_a_folder_runs_nothing(results, tmp_path, monkeypatch, name):
    (tmp_path / "in").mkdir()
    folder = pathlib.Path(shutil.copytree(results, tmp_path / "in" / name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    told = planned(folder, tmp_path / "to")
    assert told.here.values["BATCHSIZE"] == "408"
    assert not list(tmp_path.rglob("PWN"))


def test_a_kept_configuration_of_somebody_else_is_not_run(results, tmp_path):
    """The folder `reproduction` of an archive: it looks like one that was begun here."""
    kept = pathlib.Path(planned(results, tmp_path / "to").here.config_file)
    whole = kept.read_text()
    for line in ("touch x", "export LR=$(touch x)", "export LD_PRELOAD=x.so", ". ./other.sh"):
        (tmp_path / "to" / "other.sh").write_text("touch x\n")
        kept.write_text(f"{whole}{line}\n")
        with pytest.raises(UserError, match="is not what was written there: .*; give another --output"):
            planned(results, tmp_path / "to")
    kept.write_text(f"{whole}export DALI_THREADS=7 NCCL_ALGO=Ring\n")
    assert planned(results, tmp_path / "to").here.config.input_pipeline.threads == 7
    assert not (tmp_path / "to" / "x").exists()


def test_a_package_has_neither(results, tmp_path):
    say_in_all(results, environment={"LD_PRELOAD": "e.so", "OMP_NUM_THREADS": "2"})
    saved = sidecar.read(results / "result_0.txt")
    text = source.configuration(saved, "X\ntouch x")
    assert "e.so" not in text and "export OMP_NUM_THREADS=2\n" in text
    assert "\n# Left out: LD_PRELOAD\n" in text and "\ntouch" not in text


def test_the_setup_of_a_framework_of_another_checkout_runs_nothing(results):
    from rn50.submission import own_results

    say_in_all(results)
    for log in results.glob("result_*.txt"):
        saved = json.loads(log.with_suffix(".json").read_text())
        saved["config"]["run"]["framework"] = "x; touch PWN"
        campaigns.change(log, **saved)
    [result] = own_results.read([results])
    assert source._install(result) == ("requirements/install.sh 'x; touch PWN-gpu'",)


@pytest.mark.parametrize("certificate", [[], "x", 7, {"set_sha256": {}}, {"set_sha256": [1]}])
def test_a_certificate_that_is_none_is_not_compared(results, tmp_path, certificate):
    told = planned(results, tmp_path / "to")
    (tmp_path / "certificate.json").write_text(json.dumps({"set_sha256": "a" * 64}))
    config = with_changes(told.here.config, data={"folder": str(tmp_path)})
    assert not here._other_data(told.claim._replace(saved={"data certificate": certificate}), config)

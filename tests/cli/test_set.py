"""``--set NAME=VALUE``: a value in place of the file's, for one command."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from rn50.errors import UserError
from rn50.files import ROOT
from rn50.settings import changed, config, config_file
from rn50.settings.fields import RUNS_OWN_NAMES
from tests.system.job import configuration_file

DEMO = "DEMO_CPU"


def values(file):
    return config_file.sourced_environment(file, {"PATH": os.environ["PATH"]})


def test_the_file_has_the_values_and_a_name_that_says_them(tmp_path):
    file = changed.write(tmp_path, DEMO, ["LR=1", "DATADIR=/a b"], {})
    assert config_file.system_of(file) == "DEMO_CPU+LR=1+DATADIR=_a_b"
    found = config.from_environment(values(file))
    assert (found.hyperparameters.learning_rate, found.data.folder) == (1, "/a b")
    assert found.run.platform.endswith(" LR=1 DATADIR=_a_b") and found.labels == (
        "demo data set, not an MLPerf result",
    )
    again = changed.write(tmp_path, str(file), ["LR=2"], {})
    assert values(again)["LR"] == "2" and values(again)["DATADIR"] == "/a b"


def test_no_page_tells_to_set_what_each_run_has_of_its_own():
    told = {
        (page.name, name)
        for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
        for name in re.findall(r"--set (\w+)=", page.read_text())
    }
    assert len(told) > 5 and [each for each in told if each[1] in RUNS_OWN_NAMES] == []


def test_what_a_file_sources_is_found(tmp_path):
    (tmp_path / "common.sh").write_text(config_file.file_of(DEMO).read_text())
    (tmp_path / "config_OWN.sh").write_text('. "$(dirname "${BASH_SOURCE[0]}")/common.sh"\n')
    file = changed.write(tmp_path, str(tmp_path / "config_OWN.sh"), ["MOM=0.8"], {})
    assert config.from_environment(values(file)).hyperparameters.momentum == 0.8


@pytest.mark.parametrize(
    "value, says",
    [
        ("LR", "--set LR: no NAME=VALUE"),
        ("LRR=1", "--set LRR=1: no such variable; did you mean LR?"),
        ("SEED=4", "each run has its own"),
        ("NCCL_$(touch P)=1", "'NCCL_$(touch P)=1': not the name of a variable"),
        ("NCCL_a;touch P;B=1", "not the name of a variable"),
        ("NCCL_`touch P`=1", "not the name of a variable"),
        ("NCCL_a\ntouch P\nB=1", "not the name of a variable"),
        ("NCCL_a[$(touch P)0]=1", "not the name of a variable"),
        ("MXNET_x;: >P;B=1", "not the name of a variable"),
        ("NCCL_a b=1", "not the name of a variable"),
        ("NCCL_a[0]=1", "not the name of a variable"),
        ("NCCL_\u00e9=1", "not the name of a variable"),
        ("LR=x", "LR=x is not a number"),
        ("SUBMISSION_ORG=" + "x" * 120, "the system would be called"),
    ],
)
def test_what_cannot_be_set(tmp_path, monkeypatch, value, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        changed.write(tmp_path, DEMO, [value], {"HOME": str(tmp_path)})
    assert says in str(refused.value) and str(refused.value).isprintable()
    assert not list(tmp_path.rglob("P"))


@pytest.mark.parametrize(
    "end, values, says",
    [
        ("readonly LR", ["LR=1.5"], "--set LR: .*OWN.sh keeps its own value; change a copy of the file"),
        ("return", ["LR=1.5", "MOM=0.8"], "--set LR MOM: .*config_OWN.sh keeps its own value"),
        ("readonly DATADIR=/a", ["DATADIR=b"], "--set DATADIR: .*keeps its own value"),
    ],
)
def test_a_value_that_the_file_would_not_have_is_refused(tmp_path, end, values, says):
    """Nobody trains with another value than the name of the system says."""
    own = tmp_path / "config_OWN.sh"
    own.write_text(f"{config_file.file_of(DEMO).read_text()}{end}\n")
    with pytest.raises(UserError, match=says):
        changed.write(tmp_path, str(own), values, {"PATH": os.environ["PATH"]})


def test_the_name_of_a_file_is_no_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "config_a\ntouch P\n#.sh"
    own.write_text(config_file.file_of(DEMO).read_text())
    changed.write(tmp_path, str(own), ["SUBMISSION_PLATFORM=mine"], {"PATH": os.environ["PATH"]})
    assert not list(tmp_path.rglob("P"))


@pytest.mark.slow  # starts a whole run
def test_a_run_has_the_value_in_its_log_and_a_folder_of_its_own(tiny_environment, tmp_path):
    del tiny_environment["SEED"]
    file = configuration_file(tmp_path / "config_TINY.sh", tiny_environment)
    results = ROOT / "results" / "TINY+LR=1.5"
    try:
        command = [sys.executable, "-m", "rn50", "run", str(file), "--set", "LR=1.5", "--runs", "1"]
        done = subprocess.run(command, cwd=str(tmp_path), capture_output=True, text=True, timeout=300)
        saved = json.loads((results / "result_0.json").read_text())
        assert saved["variables"]["LR"] == "1.5", done.stdout + done.stderr
        assert "TINY LR=1.5" in (results / "result_0.txt").read_text()
    finally:
        shutil.rmtree(results, ignore_errors=True)


@pytest.mark.parametrize("name", ["somebody's", 'her "own"', "for $5", "a b"])
def test_a_file_that_sources_another_may_lie_anywhere(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "common.sh").write_text(config_file.file_of(DEMO).read_text())
    (folder / "config_OWN.sh").write_text('. "$(dirname "${BASH_SOURCE[0]}")/common.sh"\n')
    file = changed.write(tmp_path, str(folder / "config_OWN.sh"), ["MOM=0.8"], {})
    assert config.from_environment(values(file)).hyperparameters.momentum == 0.8


def test_a_path_begins_where_the_user_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = changed.write(tmp_path, DEMO, ["DATADIR=mine"], {})
    assert values(file)["DATADIR"] == str(tmp_path / "mine")
    assert config_file.system_of(file) == "DEMO_CPU+DATADIR=mine"


@pytest.mark.parametrize("name", ["LR", "MOM", "NOBODYS", "SEED"])
def test_a_long_value_is_not_printed_whole(tmp_path, name):
    with pytest.raises(UserError) as refused:
        changed.write(tmp_path, DEMO, [f"{name}={'9' * 100_000}"], {})
    assert len(str(refused.value)) < 400

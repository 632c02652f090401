"""``--set NAME=VALUE``: a value in place of the file's, for one command.

Processes: what a command writes is read by the next one.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from rn50.cli import main
from rn50.errors import UserError
from rn50.files import ROOT
from rn50.settings import document, header, named, show
from rn50.settings.document import Document
from rn50.settings.fields import RUNS_OWN_NAMES
from rn50.settings.named import Choice
from tests.support import campaigns
from tests.system.job import configuration_file

DEMO = "DEMO_CPU"


def written(folder, name, values):
    return named.write(folder, Choice(document.find(name), values))


def test_a_configuration_has_the_values_and_a_name_that_says_them():
    found = named.read(DEMO, ["LR=1", "DATADIR=/a b"])
    assert (found.hyperparameters.learning_rate, found.data.folder) == (1, "/a b")
    assert found.run.platform.endswith(" LR=1 DATADIR=_a_b") and found.labels == (
        "demo data set, not an MLPerf result",)
    assert found == named.read(DEMO).replaced(LR=1, DATADIR="/a b", SUBMISSION_PLATFORM=found.run.platform)


def test_the_file_of_a_campaign_has_them_too(tmp_path):
    file = written(tmp_path, DEMO, ["LR=1", "DATADIR=/a b"])
    assert document.system_of(file) == "DEMO_CPU+LR=1+DATADIR=_a_b"
    assert named.read(str(file)) == named.read(DEMO, ["LR=1", "DATADIR=/a b"])
    assert "expected" in header.read(document.find(DEMO)) and "expected" not in header.read(Document(file))
    assert written(tmp_path, DEMO, ["LR=1", "DATADIR=/a b"]) == file  # the same command resumes
    again = named.read(str(written(tmp_path, str(file), ["LR=2"])))
    assert (again.hyperparameters.learning_rate, again.data.folder) == (2, "/a b")


def test_no_page_tells_to_set_what_each_run_has_of_its_own():
    told = {
        (page.name, name) for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
        for name in re.findall(r"--set (\w+)=", page.read_text())}
    assert len(told) > 5 and [each for each in told if each[1] in RUNS_OWN_NAMES] == []


def test_what_a_file_sources_is_found(tmp_path):
    (tmp_path / "common.sh").write_text(document.file_of(DEMO).read_text())
    (tmp_path / "config_OWN.sh").write_text('. "$(dirname "${BASH_SOURCE[0]}")/common.sh"\n')
    file = written(tmp_path / "kept", str(tmp_path / "config_OWN.sh"), ["WD=0.0001"])
    assert named.read(str(file)).hyperparameters.weight_decay == 0.0001


@pytest.mark.parametrize(
    "value, says",
    [("LR", "--set LR: no NAME=VALUE"), ("LRR=1", "--set LRR=1: no such variable; did you mean LR?"),
     ("SEED=4", "the runs of one result may differ in it; put it in front of the command: SEED=4 rn50"),
     ("POWER=auto", "put it in front of the command: POWER=auto rn50 ..."),
     ("NCCL_$(touch P)=1", "'NCCL_$(touch P)=1': not the name of a variable"),
     ("NCCL_a;touch P;B=1", "not the name of a variable"),
     ("NCCL_`touch P`=1", "not the name of a variable"),
     ("NCCL_a\ntouch P\nB=1", "not the name of a variable"),
     ("NCCL_a[$(touch P)0]=1", "not the name of a variable"),
     ("MXNET_x;: >P;B=1", "not the name of a variable"), ("NCCL_a b=1", "not the name of a variable"),
     ("NCCL_a[0]=1", "not the name of a variable"), ("NCCL_\u00e9=1", "not the name of a variable"),
     ("LR=x", "LR=x is not a number"), ("SUBMISSION_ORG=" + "x" * 120, "the system would be called")])
def test_what_cannot_be_set(tmp_path, monkeypatch, value, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        named.read(DEMO, [value])
    assert says in str(refused.value) and str(refused.value).isprintable()
    assert not list(tmp_path.rglob("P"))


@pytest.mark.parametrize("values, words, system, differing", [
    ([], ["LR=1"], "DEMO_CPU+LR=1", [("LR", "3.0", "1.0")]),
    (["LR=2", "WD=0.0001"], ["LR=1"], "DEMO_CPU+LR=1+WD=0.0001", [("LR", "2.0", "1.0")]),
    ([], ["DEMO_CPU_PYTORCH"], "DEMO_CPU_PYTORCH", [("FRAMEWORK", "mxnet", "pytorch")]),
    (["LR=2"], ["DEMO_CPU_PYTORCH", "WD=0.0001"], "DEMO_CPU_PYTORCH+LR=2+WD=0.0001",
     [("FRAMEWORK", "mxnet", "pytorch"), ("WD", "5e-05", "0.0001")]),
    ([], ["NCCL_ALGO=Ring"], "DEMO_CPU+NCCL_ALGO=Ring", [("NCCL_ALGO", "-", "Ring")]),
])  # fmt: skip
def test_the_other_side_has_the_values_of_set_and_its_own(values, words, system, differing):
    first = Choice(document.find(DEMO), values)
    second = named.against(first, words)
    assert second.system == system
    found = sorted(named.differences(first.config, second.config))
    assert found == differing


@pytest.mark.parametrize("words, says", [
    (["DEMO_CPU"], "--against DEMO_CPU: has every value that DEMO_CPU has; name another"),
    (["LR=3"], "--against LR=3: has every value that DEMO_CPU has"),
    (["DEMO_CPU_PYTORCH", "DEMO_CPU_PADDLE"], "two configurations; name one"),
    (["LRR=1"], "--against LRR=1: no such variable; did you mean LR?"),
    (["SEED=1"], "--against SEED=1: no part of a configuration"),
    (["DEMO_CPV"], "DEMO_CPV: no such file, and no system of configs/; did you mean DEMO_CPU?"),
    (["config_DEMO_CPU.sh"], "--against config_DEMO_CPU.sh: a file that is called DEMO_CPU too; give it"),
])  # fmt: skip
def test_what_is_no_other_side(tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    text = document.file_of(DEMO).read_text()
    (tmp_path / "config_DEMO_CPU.sh").write_text(text.replace("LR=3.0", "LR=1"))
    with pytest.raises(UserError) as refused:
        named.against(Choice(document.find(DEMO)), words)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "end, values, lost",
    [("readonly LR", ["LR=1.5"], "LR"), ("return", ["LR=1.5", "WD=0.0001"], "LR WD"),
     ("readonly DATADIR=/a", ["DATADIR=b"], "DATADIR")])
def test_a_value_that_a_script_would_not_have_is_refused(tmp_path, end, values, lost):
    """Nobody trains with another value than the name of the system says. What no script sources has it."""
    own = tmp_path / "config_OWN.sh"
    own.write_text(f"{document.file_of(DEMO).read_text()}{end}\n")
    says = f"--set {lost}: .*config_OWN.sh keeps its own value; change a copy of the file"
    with pytest.raises(UserError, match=says):
        written(tmp_path / "kept", str(own), values)
    assert not list((tmp_path / "kept").iterdir())
    resolved = named.read(str(own), values).environ()
    assert all(resolved[name].endswith(text) for name, text in (value.split("=") for value in values))


def test_the_name_of_a_file_is_no_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "config_a\ntouch P\n#.sh"
    own.write_text(document.file_of(DEMO).read_text())
    written(tmp_path, str(own), ["SUBMISSION_PLATFORM=mine"])
    assert not list(tmp_path.rglob("P"))


def contents_below(folder):
    stats = {path: path.stat() for path in folder.rglob("*")}
    return {path: path.is_file() and (path.read_bytes(), s.st_mode, s.st_nlink) for path, s in stats.items()}


@pytest.mark.parametrize(
    "there", ["nothing", "runs of another configuration", "its file", "a file of the user"])
def test_a_command_that_is_refused_leaves_nothing_behind(tmp_path, monkeypatch, there):
    """The doctor of ``run_experiments.sh`` refuses it: there are no data, or other runs."""
    folder = tmp_path / "new" / "results"
    if there == "runs of another configuration":
        campaigns.make(folder, "0" * 40, {}, runs=1, first=1)
    if there == "its file":
        kept = written(folder, DEMO, ["LR=2"])
        kept.write_text(f"{kept.read_text()}# of the runs in this folder\n")
    if there == "a file of the user":
        kept = folder / "config_DEMO_CPU+LR=2.sh"
        folder.mkdir(parents=True)
        kept.write_text("export LR=2\n")
        kept.chmod(0o600)
        (tmp_path / "its link").hardlink_to(kept)
    before = contents_below(tmp_path)
    monkeypatch.setenv("DATADIR", str(tmp_path / "no data"))
    done = CliRunner().invoke(main, ["run", DEMO, "--set", "LR=2", "-o", str(folder)])
    assert done.exit_code == 2 and contents_below(tmp_path) == before


@pytest.mark.slow  # starts a whole run
def test_a_run_has_the_value_in_its_log_and_a_folder_of_its_own(tiny_environment, tmp_path):
    del tiny_environment["SEED"]
    file = configuration_file(tmp_path / "config_TINY.sh", tiny_environment)
    results = ROOT / "results" / "TINY+LR=1.5"
    try:
        command = [sys.executable, "-m", "rn50", "run", str(file), "--set", "LR=1.5", "--runs", "1"]
        done = subprocess.run(command, cwd=str(tmp_path), capture_output=True, text=True, timeout=300)
        assert (results / "config_TINY+LR=1.5.sh").exists()
        saved = json.loads((results / "result_0.json").read_text())
        assert saved["variables"]["LR"] == "1.5", done.stdout + done.stderr
        assert "TINY LR=1.5" in (results / "result_0.txt").read_text()
    finally:
        shutil.rmtree(results, ignore_errors=True)


@pytest.mark.parametrize("name", ["somebody's", 'her "own"', "for $5", "a b"])
def test_a_file_that_sources_another_may_lie_anywhere(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "common.sh").write_text(document.file_of(DEMO).read_text())
    (folder / "config_OWN.sh").write_text('. "$(dirname "${BASH_SOURCE[0]}")/common.sh"\n')
    file = written(tmp_path / "kept", str(folder / "config_OWN.sh"), ["WD=0.0001"])
    assert named.read(str(file)).hyperparameters.weight_decay == 0.0001


def test_a_path_begins_where_the_user_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = written(tmp_path, DEMO, ["DATADIR=mine"])
    for config in (named.read(DEMO, ["DATADIR=mine"]), named.read(str(file))):
        assert config.data.folder == str(tmp_path / "mine")
    assert document.system_of(file) == "DEMO_CPU+DATADIR=mine"


@pytest.mark.parametrize("look", [named.read, lambda name, values: show.show(name, values, False, False)])
@pytest.mark.parametrize("name", ["LR", "MOM", "NOBODYS", "SEED", "SUBMISSION_ORG"])
def test_a_long_value_is_refused_and_not_printed_whole(look, name):
    with pytest.raises(UserError) as refused:
        look(DEMO, [f"{name}={'9' * 100_000}"])
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "arguments, meant",
    [(["run", DEMO, "--lr", "1"], "LR=1"), (["run", DEMO, "--lr=1"], "LR=1"),
     (["run", DEMO, "LR=1"], "LR=1"), (["run", DEMO, "--set", "LR", "1"], "LR=1"),
     (["bench", "throughput", DEMO, "--batch-size", "64"], "BATCHSIZE=64"),
     (["profile", DEMO, "--learning-rate", "2"], "LR=2"),
     (["doctor", DEMO, "--set", "WD=0.0001", "TARGET=none"], "TARGET=none"),
     (["run", DEMO, "--epochs", "5"], "NUMEPOCHS=5"), (["run", DEMO, "--gpus=1"], "DGXNGPU=1"),
     (["run", DEMO, "-lr", "1"], "LR=1")])
def test_a_value_that_is_given_otherwise_is_told_how(arguments, meant):
    done = CliRunner(mix_stderr=False).invoke(main, arguments)
    assert done.exit_code == 2 and done.stderr.rstrip().endswith(f"; write --set {meant}")


@pytest.mark.parametrize(
    "arguments, says",
    [(["run", DEMO, "--seed", "1"],
      "every run draws its own; SEED=1 DGXSYSTEM=NAME ./run_and_time.sh makes one with it"),
     (["bench", "input", DEMO, "--seed", "1"], "put SEED=1 in front of rn50"),
     (["run", DEMO, "--power", "auto"], "put POWER=auto in front of rn50"),
     (["plan", "--gpus", "8"], "write --accelerators 8")])
def test_a_value_that_no_configuration_has_is_told_how(arguments, says):
    done = CliRunner(mix_stderr=False).invoke(main, arguments)
    assert done.exit_code == 2 and done.stderr.rstrip().endswith(f"; {says}")


@pytest.mark.parametrize(
    "arguments", [["run", DEMO, "--bogus"], ["score", "--lr", "1"], ["run", DEMO, "SEED=1"]])
def test_nothing_is_told_of_what_is_no_value(arguments):
    done = CliRunner(mix_stderr=False).invoke(main, arguments)
    assert done.exit_code == 2 and "--set" not in done.stderr


def test_the_files_own_value_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("DATADIR", str(tmp_path))
    own = ["LR=3", "TARGET=0.7590", f"DATADIR={tmp_path}", "DECAY_EPOCHS="]
    assert named.read(DEMO, own) == named.read(DEMO)
    with named.file_in(tmp_path / "none", Choice(document.find(DEMO), own)) as (file, _):
        assert file == document.file_of(DEMO) and not (tmp_path / "none").exists()
    with named.file_in(tmp_path / "one", Choice(document.find(DEMO), [*own, "WD=0.0001"])) as (file, _):
        assert document.system_of(file) == "DEMO_CPU+WD=0.0001"


def test_a_changed_value_is_marked():
    lines = CliRunner().invoke(main, ["config", "show", DEMO, "--set", "LR=1", "--set", "MOM=0.9"]).stdout
    marked = [line.split()[0] for line in lines.splitlines() if line.endswith("[--set]")]
    assert marked == ["LR", "SUBMISSION_PLATFORM"]


@pytest.mark.parametrize(
    "system, words",
    [("DEMO_CPU+LR=1+DATADIR=_data_demo", "DEMO_CPU --set LR=1 --set DATADIR=_data_demo"),
     ("DEMO_CPU", "DEMO_CPU"), ("TOY+LR=1", "CONFIG"),
     ("DEMO_CPU+LR=1;reboot", "CONFIG"), ("DEMO_CPU+LR=$(reboot)", "CONFIG"),  # somebody else has named it
     # A process would run a stranger's code.
     ("DEMO_CPU+LD_PRELOAD=a.so", "CONFIG"), ("DEMO_CPU+MXNET_LIBRARY_PATH=a.so", "CONFIG")])
def test_a_system_becomes_words_that_no_shell_takes_for_more(system, words):
    assert named.arguments(system) == words


COUNTED = """
import sys
from rn50.cli import main
events = []
def count(event, arguments):
    if event == "subprocess.Popen" and "bash" in str(arguments[0]):
        events.append("bash")
    if event == "open" and str(arguments[0]).endswith("config_DEMO_CPU.sh"):
        events.append("file")
sys.addaudithook(count)
try:
    main(sys.argv[1:])
finally:
    print(events.count("bash"), events.count("file"))
"""


def test_a_file_is_read_once_and_sourced_twice(tmp_path):
    """By its own command: to read it with the values, and to see that a script has them."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, "run", DEMO, "--set", "LR=1", "-o", tmp_path / "results"],
        env={**os.environ, "DATADIR": str(tmp_path / "no data")}, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout.split() == ["2", "1"], done.stderr


def test_a_value_is_replaced_without_the_file(tmp_path):
    file = tmp_path / "config_OWN.sh"
    file.write_text(document.file_of(DEMO).read_text())
    config = named.read(str(file))
    file.unlink()
    assert config.replaced(LR=1).hyperparameters.learning_rate == 1

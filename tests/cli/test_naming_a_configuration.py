"""Every verb takes a configuration by name or file, or from the environment, with the values that the scripts
would give it."""

import json
import os

import pytest
from click.testing import CliRunner

from rn50.cli import main
from rn50.errors import UserError
from rn50.files import ROOT
from rn50.settings import named
from rn50.settings.document import systems
from rn50.weights import weights_file
from tests.deploy.networks import random_weights

CONFIG = ROOT / "configs" / "config_DEMO_CPU.sh"
VERBS = (
    ("doctor",), ("config", "show"), ("bench", "input"), ("bench", "comm"), ("bench", "throughput"),
    ("profile",), ("tune", "input"), ("search", "-o", "nowhere"), ("borrow", "rcp/3264"))


def rn50(*arguments, **environment):
    environment = {"DGXSYSTEM": None, "CONFIG_FILE": None, **environment}
    return CliRunner(mix_stderr=False).invoke(main, list(map(str, arguments)), env=environment)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_name_that_is_none_is_refused_with_those_that_there_are(verb):
    done = rn50(*verb, "NONE")
    assert done.exit_code == 2
    assert (
        done.stderr
        == f"rn50: NONE: no such file, and no system of configs/; there are: {', '.join(systems())}; "
        "or write it: rn50 config new NONE\n")


@pytest.mark.parametrize("name, problem", [("/tmp", "a folder"), ("nowhere/none.sh", "no such file")])
def test_a_path_is_no_name_of_a_new_configuration(name, problem):
    done = rn50("config", "show", name)
    assert done.stderr.startswith(f"rn50: {name}: {problem}, and no system of configs/; there are: ")
    assert done.exit_code == 2 and "config new" not in done.stderr


@pytest.mark.parametrize(
    "arguments, says",
    [(("doctor", "demo_cpu"), "did you mean DEMO_CPU? there are: "),
     (("bench", "inputt"), "Did you mean input?"), (("tune", "DEMO_CPU"), "There are: input"),
     (("config", "shw"), "Did you mean show?"), (("scor",), "Did you mean score?"),
     (("borrow", "DGXH100"), "DGXH100: neither a file nor a published result"),
     (("borrow", "DGXH100"), "; --suggest --gbs N ranks what there is"),
     (("help",), "'help'. Write rn50 --help\n"), (("version",), "'version'. Write rn50 --version\n"),
     (("trian",), "No such command 'trian'.\n"),  # train is a verb of the scripts
     (("score", "test/golden"), "test/golden: no such file or folder; did you mean tests?\n"),
     (("watch", "tests/goldn"), "tests/goldn: no such folder; did you mean golden?\n"),
     (("run", "DEMO_CPU", "--set", "LR=1", "--against", "LR=1"), "configuration, or a value that differs\n")])
def test_a_name_that_is_nearly_one(arguments, says, monkeypatch):
    monkeypatch.chdir(ROOT)
    done = rn50(*arguments)
    assert done.exit_code == 2 and says in done.stderr


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != ("doctor",)], ids=" ".join)
def test_no_name_is_refused_in_one_line(verb):
    done = rn50(*verb)
    assert (
        done.exit_code == 2 and done.stderr.startswith("rn50: which configuration?")
        and len(done.stderr.splitlines()) == 1)


@pytest.mark.parametrize(
    "system, values, classes",
    [("DEMO_CPU+NUMCLASSES=3", (), 3), ("DEMO_CPU+NUMCLASSES=3", ("NUMCLASSES=4",), 4), ("MINE", (), None),
     ("DEMO_CPU+NUMCLASSES=$(id)", (), None)])
def test_the_header_of_weights_names_a_configuration_of_ours_or_none(
    monkeypatch, tmp_path, system, values, classes
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "DEMO_CPU").write_text("export NUMCLASSES=9; touch ran")  # a stranger's
    monkeypatch.delenv("DGXSYSTEM", raising=False)
    if classes is None:
        with pytest.raises(UserError, match=r"^which configuration\?"):
            named.read(None, values, system=system)
    else:
        assert named.read(None, values, system=system).data.classes == classes
        monkeypatch.setenv("DGXSYSTEM", "DEMO_CPU_OPEN")  # the environment goes before the header
        assert named.read(None, values, system=system).run.system == "DEMO_CPU_OPEN"


@pytest.mark.parametrize(
    "verb", [("bench", "input"), ("bench", "throughput"), ("profile",), ("tune", "input")], ids=" ".join)
@pytest.mark.parametrize("named", ["argument", "file", "DGXSYSTEM", "CONFIG_FILE"])
def test_the_verbs_that_train_find_the_configuration(verb, named, tmp_path):
    """They get as far as its data set, which is not there."""
    arguments = {"argument": ["DEMO_CPU"], "file": [CONFIG]}.get(named, [])
    environment = {"DGXSYSTEM": {"DGXSYSTEM": "DEMO_CPU"}, "CONFIG_FILE": {"CONFIG_FILE": str(CONFIG)}}.get(
        named, {})
    done = rn50(*verb, *arguments, DATADIR=str(tmp_path / "absent"), **environment)
    assert done.exit_code == 2 and str(tmp_path / "absent") in done.stderr and "is not set" not in done.stderr


def test_the_values_are_those_of_the_scripts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = named.read("DEMO_CPU", environ={"LR": "9", "SEED": "5", "RESULT_FILE": "here.txt"})
    assert config.hyperparameters.learning_rate == 3.0  # the file sets it
    assert config.run.seed == 5  # the file does not
    assert config.data.folder == str(ROOT / "data" / "demo")  # relative to the checkout, from whatever folder
    assert config.run.result_file == str(tmp_path / "here.txt")  # relative to where the command was typed
    assert config.environ()["CONFIG_FILE"] == str(CONFIG)


def test_a_file_that_was_sourced_is_not_sourced_again():
    sourced = {**named.read("DEMO_CPU", environ={}).environ(), "LR": "9"}
    assert named.read(None, environ=sourced).environ() == sourced
    assert named.read("DEMO_CPU", environ=sourced).environ()["LR"] == "3.0"
    with pytest.raises(UserError, match="which configuration"):
        named.read(None, environ={"LR": "9"})


def test_a_folder_with_the_name_of_a_system_is_not_the_system(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("DEMO_CPU")
    assert json.loads(rn50("config", "show", "DEMO_CPU", "--json").stdout)["system"] == "DEMO_CPU"


def test_a_value_that_the_file_replaces_is_named(tmp_path):
    """`LR=9 rn50 bench input DEMO_CPU` looks as if it had an effect."""
    absent = str(tmp_path / "absent")
    done = rn50("bench", "input", "DEMO_CPU", LR="9", BATCHSIZE="32", SEED="5", DATADIR=absent)
    warning = (
        "warning: LR: 9 of the environment has no effect: the configuration sets 3.0; give --set LR=9, or "
        "change it in a copy of the file")
    assert done.stderr.splitlines()[0] == warning and done.stderr.count("warning") == 1


@pytest.mark.parametrize(
    "verb", [("bench", "input"), ("evaluate", "w.safetensors"), ("quantize", "w.onnx", "-o", "int8.onnx")])
def test_a_verb_that_recommends_set_takes_it(verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    weights_file.write(tmp_path / "w.safetensors", random_weights())
    if verb[0] == "quantize":
        pytest.importorskip("onnx", reason="onnx is not installed")
    absent = str(tmp_path / "absent")
    assert "give --set LR=9, or" in rn50(*verb, "DEMO_CPU", LR="9", DATADIR=absent).stderr
    done = rn50(*verb, "DEMO_CPU", "--set", "LR=9", LR="9", DATADIR=absent)
    assert done.exit_code == 2 and done.stderr.startswith("rn50: ") and " --set" not in done.stderr


@pytest.mark.parametrize("folder", ["data", "/data"])
def test_a_folder_that_the_file_replaces_is_named(folder, tmp_path):
    file = tmp_path / "mine.sh"
    file.write_text(f". {CONFIG}\nDATADIR=/absent\n")
    done = rn50("bench", "input", str(file), DATADIR=folder)
    text = f"warning: DATADIR: {folder} of the environment has no effect: the configuration sets /absent; "
    assert done.stderr.startswith(text)

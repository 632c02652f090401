"""Anybody's configuration file is read as bash reads it, or refused in one line.

Processes: bash is the oracle.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest

from rn50 import files
from rn50.errors import UserError
from rn50.settings import config as configuration
from rn50.settings import document, named
from rn50.settings.document import Document
from rn50.settings.named import Choice
from rn50.settings.shell import assignments
from tests.settings.imagenet import IMAGENET


def test_a_misspelled_name_in_our_file_is_an_error_with_the_nearest_name(monkeypatch, tmp_path):
    monkeypatch.setattr(document, "CONFIGS", tmp_path)
    file = tmp_path / "config_MINE.sh"
    file.write_text(
        "export LARSETTA=0.001\nexport DALI_THREDS=4\nexport HOROVOD_CYCLE_TIME=0.1\n  QQQQ=1\n#export "
        "COMMENT=1\n")
    with pytest.raises(UserError) as refused:
        configuration.from_environment(IMAGENET, Document(file))
    lines = str(refused.value).splitlines()
    assert len(lines) == 3
    assert "LARSETTA" in lines[0] and "did you mean LARSETA?" in lines[0]
    assert "DALI_THREDS" in lines[1] and "did you mean DALI_THREADS?" in lines[1]
    assert "QQQQ" in lines[2] and "remove it" in lines[2]
    with pytest.raises(UserError):
        named.of_scripts({**IMAGENET, "CONFIG_FILE": str(file)})


UNSOURCEABLE = [
    ("LR=1\nexit 3\n", "exit status 3"), ("export LR=1\nexit 0\n", "ends the shell"),
    ("set -e\nLR=1\nfalse\n", "exit status 1"), ("LR=1\nfoo(\n", "cannot be sourced"),
    ("python train.py\n:::MLLOG {it's}\n", "a log of a run, no configuration"),
    ("LR=1\nsleep 60\n", "longer than"), ("LR=1\nyes flood >&2\n", "prints more than 4,194,304 bytes"),
    ("LR=1\nwhile :; do echo x >&2; done\n", "longer than|prints more than"),
    ("\ufeffexport LR=1\n", "byte order mark"),
    ("source ./common.sh\n", r":1: sources \./common\.sh, which is not there"),
    ('. "$(dirname ${BASH_SOURCE[0]})/common.sh"\n', "sources common.sh, which is not there"),
    ("source /nowhere/common.sh\n", "sources /nowhere/common.sh, which is not there"),
    (". " + "a" * 200_000 + "\n", "sources a{20,}[.]{3}, which is not there")]


@pytest.mark.parametrize("content, reason", UNSOURCEABLE, ids=[reason for _, reason in UNSOURCEABLE])
def test_a_file_that_cannot_be_sourced(tmp_path, monkeypatch, content, reason):
    monkeypatch.setattr(document, "TIME_LIMIT_S", 0.5)
    file = tmp_path / "config_BAD.sh"
    file.write_text(content)
    began = time.monotonic()
    with pytest.raises(UserError, match=reason) as refused:
        Document(file).sourced()
    assert str(file) in str(refused.value) and len(str(refused.value)) < 500
    assert time.monotonic() - began < 5


def refused_before_it_is_sourced(folder, name, content):
    """Returns the line that refuses a file whose first command would show that a shell had it."""
    file = folder / name
    file.write_text(f"touch {folder}/STARTED || :\n{content}\n")
    with pytest.raises(UserError) as refused:
        Document(file).sourced()
    assert not (folder / "STARTED").exists()
    assert str(refused.value).startswith(str(file))
    return str(refused.value)


@pytest.mark.parametrize(
    "content, line, command",
    [("#SBATCH -N 2\nexport LR=1\nsrun --mpi=pmix ./run_and_time.sh", 4, "srun"),
     ("LR=1\nif true; then # srun\n  MOM=1 time mpirun -np 8 hostname\nfi", 4, "mpirun"),
     ("export LR=$(python3.11 -c 'print(1)')", 2, "python3.11"),
     ("LR=1; ./run_and_time.sh & wait", 2, "./run_and_time.sh"),
     ("for LR in 1 2; do\n\n  exec torchrun train.py\ndone", 4, "torchrun"),
     ("LR=1\ntrain() {\n  docker run x\n}", 4, "docker"), ("LR=`ssh host cat lr`", 2, "ssh"),
     ("LR=1\n! /opt/slurm/bin/sbatch job", 3, "/opt/slurm/bin/sbatch")])
def test_a_script_that_starts_a_job_is_no_configuration(tmp_path, content, line, command):
    said = refused_before_it_is_sourced(tmp_path, "train.sh", content)
    assert f"train.sh:{line}: runs {command}, so it is a script and no configuration" in said


NO_CONFIGURATIONS = [
    ("args.yaml", "lr: 0.5\nsmoothing: 0.1", ": a YAML file, no configuration"),
    ("train.py", "LR = 0.1\nimport torch", ": a Python file, no configuration"),
    ("notes.txt", "Learning rate: 0.1", ": sets no variable of this benchmark"),
    ("env.sh", "export FOO=1 PS1=x", ": sets no variable of this benchmark")]


@pytest.mark.parametrize("name, content, reason", NO_CONFIGURATIONS)
def test_a_file_that_is_no_configuration_is_not_sourced(tmp_path, name, content, reason):
    assert name + reason in refused_before_it_is_sourced(tmp_path, name, content)


@pytest.mark.parametrize(
    "content",
    ["module load cuda || :\nulimit -s 8192\nexport LR=1", "NCCL_DEBUG=INFO",
     'source "$(dirname "$0")/none.sh" 2>/dev/null || :',
     "LR=1 # python x\n[ -z y ] || echo 'python'; # (srun)\n[ $LR = 1 ] && echo srun.log > /dev/null",
     "DGXNSOCKET=1\ncase x in\n  docker) : ;;\nesac"])
def test_a_file_that_may_set_a_variable_and_starts_nothing_is_sourced(tmp_path, content):
    file = tmp_path / "env.sh"
    file.write_text(f"{content}\nA=1\n")
    assert Document(file).sourced()["A"] == "1"


@pytest.mark.parametrize("line", ["export LR = 2.0", "LR = 2.0", "export LR= 2.0", "  export LR =2.0"])
def test_a_blank_beside_the_equals_sign(tmp_path, line):
    file = tmp_path / "config_X.sh"
    file.write_text(f"export MOM=0.9\n{line}\n")
    with pytest.raises(UserError, match="line 2: a blank beside the = of LR; write export LR=VALUE"):
        Document(file).sourced()


@pytest.mark.parametrize(
    "line", ["export LR=  # none", "IFS= read -r x <<< y", "# LR = 2", "[ a = b ] || :", "LR=''"])
def test_a_blank_that_a_shell_takes_as_it_is_meant(tmp_path, line):
    file = tmp_path / "config_X.sh"
    file.write_text(f"MOM=1\n{line}\n:\n")
    Document(file).sourced()


def test_what_a_file_starts_ends_with_it_and_is_not_waited_for(tmp_path):
    file = tmp_path / "config_X.sh"
    file.write_text("sleep 300 &\nexport LR=1 CHILD=$!\n")
    began = time.monotonic()
    child = int(Document(file).sourced()["CHILD"])
    assert time.monotonic() - began < 60
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it is gone
        while "State:\tZ" not in pathlib.Path(f"/proc/{child}/status").read_text():
            assert time.monotonic() - began < 60


@pytest.mark.parametrize("sourced", ["./common.sh", "common.sh", "lib/common.sh"])
def test_a_file_is_sourced_in_its_own_folder(tmp_path, monkeypatch, sourced):
    folder = tmp_path / "a blank"
    (folder / "lib").mkdir(parents=True)
    (folder / sourced).write_text("export LR=9\n")
    (folder / "config_X.sh").write_text(f"export LR=1\nsource {sourced}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CDPATH", str(tmp_path))
    assert Document(pathlib.Path("a blank/config_X.sh")).sourced({"CDPATH": str(tmp_path)})["LR"] == "9"
    assert assignments.read(folder / "config_X.sh").values == {"LR": "9"}
    assert Document(folder / "config_X.sh").names == ["LR"]
    (folder / sourced).unlink()
    with pytest.raises(UserError, match=f"config_X.sh:2: sources {sourced}, which is not there"):
        named.of_scripts({**IMAGENET, "CONFIG_FILE": str(folder / "config_X.sh")})


def test_bytes_that_are_no_text_are_the_same_in_every_reading(tmp_path):
    file = tmp_path / "config_X.sh"
    file.write_bytes(b"export SUBMISSION_ORG='caf\xe9'\n")
    assert Document(file).sourced() == assignments.read(file).values == {"SUBMISSION_ORG": "caf\udce9"}


def test_a_file_that_does_not_exist(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        Document(tmp_path / "config_NONE.sh")


def test_the_shell_and_the_fields_hold_the_same_paths():
    shell = re.search(r"for path_variable in (.*?);", (document.CONFIGS / "start.sh").read_text())[
        1].split()
    assert sorted(shell) == sorted(("CONFIG_FILE", *document.PATHS))


@pytest.mark.parametrize("data", ["data", "data/", "../a checkout/data", "/data/"])
def test_the_shell_and_python_give_paths_one_spelling(tmp_path, monkeypatch, data):
    """So that a campaign goes on with what was begun in another way."""
    checkout = tmp_path / "a checkout"
    shutil.copytree(document.CONFIGS, checkout / "configs")
    monkeypatch.setattr(files, "ROOT", checkout)
    (checkout / "configs" / "config_X.sh").write_text("export DATADIR=${DATADIR:-data}\n")
    load = '. configs/start.sh; . configs/load.sh; printf %s "$DATADIR"'
    monkeypatch.chdir(checkout)
    for environ in ({"DATADIR": data}, {}):
        sourced = Choice(Document(checkout / "configs" / "config_X.sh"), environ=environ).absolute
        shell = subprocess.run(
            ["bash", "-c", load], env={**environ, "DGXSYSTEM": "X"}, capture_output=True, text=True)
        assert shell.stdout == sourced["DATADIR"] == os.path.abspath(environ.get("DATADIR", "data"))

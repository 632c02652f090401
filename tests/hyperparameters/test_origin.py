"""``rn50 borrow`` reads anybody's configuration files and logs without running any, or refuses them by
name."""

import hashlib

import pytest

from rn50.errors import UserError
from rn50.hyperparameters.borrow import borrow, origin
from rn50.settings.document import Document
from tests.hyperparameters.borrowing import EIGHT, configured
from tests.support import imagenet_run

FOREIGN = """#!/bin/bash
source $(dirname ${BASH_SOURCE[0]})/config_common.sh
export BATCHSIZE=$((816 / 2))     # per GPU
export LR="10.5" KVSTORE="horovod"
export WARMUP_EPOCHS=2
export NUMEPOCHS=${NUMEPOCHS:-"37"}
export WD=5.0e-05
if [ -n "$BIG" ]; then export WALLTIME=10; fi
export PGNGPU=8 PGNNODES=1
export SOMETHING=else
touch PWNED
"""
COMMON = (
    'export OPTIMIZER="sgdwfastlars"\nexport MOM=0.9 LABELSMOOTHING=0.1 LARSETA=0.001 EVAL_OFFSET=2 '
    "EVAL_PERIOD=4\n")


def foreign(folder, text=FOREIGN):
    (folder / "config_common.sh").write_text(COMMON)
    file = folder / "config_THEIRS.sh"
    file.write_text(text)
    return file


def test_a_foreign_file_is_read_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = foreign(tmp_path)
    borrowed = borrow.borrow(origin.find(str(file)), Document(EIGHT))
    assert not (tmp_path / "PWNED").exists()
    assert borrowed.config == configured(EIGHT.read_text(), tmp_path)
    assert borrowed.assumed == ()
    for note in (
        "config_THEIRS.sh:8: not read: if [", "config_THEIRS.sh:11: not read: touch PWNED: runs touch",
        "ignored, because they mean nothing here: SOMETHING",
    ):
        assert note in borrowed.text
    assert f"SHA-256: {hashlib.sha256(COMMON.encode()).hexdigest()} config_common.sh" in borrowed.text


def test_a_part_is_refused_unless_asked_for_and_then_labelled(tmp_path):
    file = foreign(tmp_path, FOREIGN.replace("export WD=5.0e-05", "export WD=$(./tune.sh)"))
    with pytest.raises(
        UserError, match=r"says nothing readable of WD; --partial(.|\n)*WD is in doubt: config_THEIRS.sh:7"
    ):
        borrow.borrow(origin.find(str(file)), Document(EIGHT))
    mixed = borrow.borrow(origin.find(str(file)), Document(EIGHT), partial=True)
    assert "WD" in mixed.mixed and "#   PARTIAL     not the whole group: " in mixed.text
    only = borrow.borrow(
        origin.find("v0.7/NVIDIA/dgxa100_ngc20.06_mxnet"), Document(EIGHT), only=["LR", "WARMUP_EPOCHS"])
    h = only.config.hyperparameters
    assert (h.learning_rate, h.warmup_epochs, h.optimizer, h.batch_size) == (6, 5, "lars", 408)
    assert "PARTIAL" in only.text
    with pytest.raises(UserError, match="--only BATCH_SIZE: no hyperparameter"):
        borrow.borrow(origin.find("rcp/3264"), Document(EIGHT), only=["BATCH_SIZE"])


def test_a_whole_group_is_not_labelled():
    assert "PARTIAL" not in borrow.borrow(origin.find("rcp/3264"), Document(EIGHT), partial=True).text


@pytest.mark.parametrize(
    "change, message",
    [({"KVSTORE": "device"}, "KVSTORE=device would make BATCHSIZE the batch of a whole machine"),
     ({"LR": "fast"}, "LR=fast is not a number"),
     ({"OPTIMIZER": "adam"}, "OPTIMIZER=adam is not a known optimizer")])
def test_a_foreign_file_that_cannot_be_run_is_refused(tmp_path, change, message):
    text = FOREIGN + "".join(f"export {name}={value}\n" for name, value in change.items())
    with pytest.raises(UserError, match=message):
        origin.find(str(foreign(tmp_path, text)))


def test_a_log_whose_schedule_is_another_is_refused(tmp_path):
    log = imagenet_run.write(tmp_path / "result_0.txt")
    assert borrow.borrow(origin.find(str(log)), Document(EIGHT)).config.hyperparameters.learning_rate == 10.5
    key = '"lars_opt_end_learning_rate", "value": '
    log.write_text(log.read_text().replace(f"{key}0.0001", f"{key}0.0"))
    with pytest.raises(UserError, match="end learning rate is 0.0, and only 0.0001 is implemented"):
        origin.find(str(log))


def test_runs_of_two_recipes_are_no_source(tmp_path):
    imagenet_run.write(tmp_path / "result_0.txt")
    imagenet_run.write(tmp_path / "result_1.txt", seed=2, LR="9")
    with pytest.raises(UserError, match="result_1.txt: base learning rate differs"):
        origin.find(str(tmp_path))


def test_a_name_in_somebodys_log_cannot_leave_its_comment(tmp_path):
    log = imagenet_run.write(
        tmp_path / "result_0.txt", SUBMISSION_ORG="x\ntouch PWNED\n\x1b[2J", SUBMISSION_PLATFORM="$(id)")
    before, after = borrow.borrow(origin.find(str(log)), Document(EIGHT)).text.split("# --- hyperparameters")
    assert all(line.startswith("#") or not line for line in before.splitlines())
    assert "organisation: x touch PWNED  [2J" in before and "\x1b" not in before


@pytest.mark.parametrize(
    "name, message",
    [("v1.0/Inspur/nf5688m6", "did you mean v1.0/Inspur/nf5688m6_mxnet"),
     ("rcp/2000", "has points at 1632, 3264"), ("rcp/9.9.9/3264", "write rcp/RULESET/BATCH"),
     ("rcp/x", "write rcp/RULESET/BATCH"), ("/dev/zero", "no regular file")])
def test_what_is_no_source(name, message):
    with pytest.raises(UserError, match=message):
        origin.find(name)


@pytest.mark.parametrize(
    "name, message",
    [("args.txt", "holds no hyperparameter that is known; give a result log"),
     ("args.yml", "a YAML file, no configuration")])
def test_a_file_without_hyperparameters_is_no_source(tmp_path, name, message):
    (tmp_path / name).write_text("lr: 0.5\nsmoothing: 0.1\n")
    with pytest.raises(UserError, match=f"{name}: {message}"):
        origin.find(str(tmp_path / name))


def test_a_base_without_sections_is_refused(tmp_path):
    with pytest.raises(UserError, match="no section `# --- hyperparameters`"):
        borrow.borrow(origin.find("rcp/3264"), Document(foreign(tmp_path)))
    file = tmp_path / "config_Y.sh"
    file.write_text(EIGHT.read_text() + "export LR=3\n")
    with pytest.raises(UserError, match="sets hyperparameters outside of their section too"):
        borrow.borrow(origin.find("rcp/3264"), Document(file))


def test_what_sgd_does_not_read_is_not_refused(tmp_path):
    file = foreign(tmp_path, FOREIGN + "export OPTIMIZER=sgd LARSETA=0.0 LR=3.824\n")
    borrowed = borrow.borrow(origin.find(str(file)), Document(EIGHT))
    assert (borrowed.config.hyperparameters.optimizer, borrowed.config.hyperparameters.lars_eta) == (
        "sgd", None)
    assert "LARSETA" not in borrowed.text


def test_a_sourced_file_that_is_missing_is_named(tmp_path):
    file = tmp_path / "config_X.sh"
    file.write_text("source ./absent.sh\n" + FOREIGN.split("\n", 2)[2])
    with pytest.raises(UserError, match=r"config_X\.sh:1: sources \./absent\.sh, which is not there"):
        borrow.borrow(origin.find(str(file)), Document(EIGHT))


def test_a_published_run_below_the_target_has_missed_it():
    """Its log says success, after as many epochs as the others."""
    source = origin.find("v1.0/Intel/8-nodes-64s-8376H-tensorflow")
    assert source.epochs == (47, 47, 47, None, 47)


def test_one_evaluation_tells_no_period_but_on_imagenet(tmp_path):
    """There the rules say 4."""
    one = {"accuracies": (0.77,), "EVAL_OFFSET": "2"}
    values = origin.find(str(imagenet_run.write(tmp_path / "result_0.txt", **one))).values
    assert (values["EVAL_OFFSET"], values["EVAL_PERIOD"]) == ("2", "4")
    log = imagenet_run.write(tmp_path / "result_1.txt", NUMEXAMPLES="10000", **one)
    assert not {"EVAL_OFFSET", "EVAL_PERIOD"} & set(origin.find(str(log)).values)

"""``rn50 search`` says in one line what a user can mend, and leaves alone what is not its own."""

import os
import shutil

import pytest

from rn50.errors import UserError
from rn50.hyperparameters.search import subject
from rn50.hyperparameters.search.journal import Journal
from tests.hyperparameters.searches import DEMO, DONE, complaint

TRIAL = '{"trial": 0, "point": [3.0, 32, 1.0, 5e-05, 12, null], "stage": "a stage", "seed": 5}\n'


@pytest.mark.parametrize(
    "arguments, environ, says",
    [((), {"DATADIR": "/nowhere"}, "/nowhere: No such file or directory; set DATADIR"),
     (("--confirm-data", "/nowhere"), {}, "/nowhere: No such file or directory; set DATADIR"),
     (("--workers", 10_000), {}, "--workers 10000: this machine gives"),
     (("-o", "/proc/nowhere"), {},
      "/proc/nowhere: cannot be made (No such file or directory); give another --output")])
def test_what_a_user_can_mend(seek, arguments, environ, says):
    assert says in complaint(seek(*arguments, **environ))


@pytest.mark.parametrize(
    "change, says",
    [(("LR=3.0", "LR=fast"), "config_X.sh: LR=fast is not a number"),
     (("WARMUP_EPOCHS=1", "WARMUP_EPOCHS=12"), "the warm-up must be shorter than the schedule"),
     (("# --- hyperparameters", "# ---"), "config_X.sh: no section `# --- hyperparameters`")])
def test_a_configuration_that_cannot_be_run(seek, tmp_path, change, says):
    (tmp_path / "config_X.sh").write_text(DEMO.read_text().replace(*change))
    assert says in complaint(seek(config=tmp_path / "config_X.sh"))
    assert not (tmp_path / "to").exists()


def test_no_such_configuration(seek):
    assert "NOBODY: no such file, and no system of configs/; there are: 1xA100" in complaint(
        seek(config="NOBODY"))


def test_a_folder_of_another_search(seek, tmp_path, data):
    seek("--trials", 1)
    config = tmp_path / "config_X.sh"
    config.write_text(DEMO.read_text().replace("WD=5e-5", "WD=1e-4"))
    assert "holds a search with other configuration (WD); give another --output" in complaint(
        seek(config=config))
    assert "holds a search with other options (--repeats)" in complaint(seek("--repeats", 4))
    other = shutil.copytree(str(data), str(tmp_path / "other"))
    assert seek("--trials", 1, DATADIR=other).exit_code == DONE  # a copy is the same data
    (tmp_path / "other" / "val.rec").write_text("more of it")
    assert "holds a search with other data (val.rec)" in complaint(seek(DATADIR=other))


@pytest.mark.parametrize(
    "change, allowed",
    [
        ({"weight_decay": 1e-4}, True),
        ({"weight_decay": 1.5e-4}, False),  # the rules have 0.0001 * 2^n
        ({"warmup_epochs": 12}, False),  # as long as the schedule
        ({"batch_size": 16384}, False),  # more than the data set has
        ({"learning_rate": 123.4}, True),
    ],
)
def test_only_what_can_be_run_by_the_rules_is_tried(data, monkeypatch, change, allowed):
    monkeypatch.setenv("DATADIR", str(data))
    on = subject.read("DEMO_CPU")
    assert on.possible(on.start) and on.possible(on.start._replace(**change)) is allowed


def test_a_configuration_of_the_open_division_may_go_on_leaving_the_rules(data, tmp_path, monkeypatch):
    monkeypatch.setenv("DATADIR", str(data))
    for division, allowed in (("open", True), ("closed", False)):
        text = DEMO.read_text().replace("SUBMISSION_DIVISION=closed", f"SUBMISSION_DIVISION={division}")
        (tmp_path / "config_X.sh").write_text(text)
        on = subject.read(str(tmp_path / "config_X.sh"))
        assert on.possible(on.start._replace(weight_decay=1.5e-4)) is allowed


def test_an_edited_configuration_is_not_overwritten(seek, tmp_path):
    seek("--trials", 12)
    (tmp_path / "to" / "config_DEMO_CPU.sh").write_text("mine now\n")
    assert seek("--trials", 12).exit_code == DONE
    assert (tmp_path / "to" / "config_DEMO_CPU.sh").read_text() == "mine now\n"


@pytest.mark.parametrize(
    "spoil",
    (lambda file: file.write_text("my diary, without a last newline"),
     lambda file: file.write_text("[" * 99_999 + "\n"), lambda file: file.write_bytes(b"\xff\n"),
     lambda file: file.write_text('{"op_code":0,"worker_id":"x","study_name":"other","directions":[1]}\n'),
     lambda file: file.write_text('{"search": 1}\n'), lambda file: file.write_text('{"search": {}}\n[]\n'),
     lambda file: file.write_text(TRIAL.replace("12", "12.5")),
     lambda file: file.write_text(TRIAL.replace("12,", "")),
     lambda file: file.write_text(TRIAL.replace("seed", "seeds")),
     lambda file: file.write_text(TRIAL + '{"trial": 0, "state": "lost"}\n'),
     lambda file: file.write_text(TRIAL + '{"trial": 2, "note": ""}\n'),
     lambda file: file.write_text('{"confirmation": {"points": {"winner": [1]}, "seeds": {}}}\n'),
     os.mkfifo, os.mkdir,
     lambda file: file.symlink_to(file.name)))
def test_a_journal_that_is_none_is_a_line_and_left_alone(tmp_path, spoil):
    file = tmp_path / "journal.log"
    spoil(file)
    before = file.read_bytes() if file.is_file() else None
    with pytest.raises(UserError, match=f"^{file}: .*; give another --output$"):
        Journal(tmp_path)
    assert before is None or file.read_bytes() == before

"""Errors tell their fields, also after they have come from another process."""

import errno
import os
import pathlib
import pickle
import re

import pytest
from click.testing import CliRunner

from rn50.cli import group, main
from rn50.cli.group import report
from rn50.errors import DivergedError, RankLostError, Status, UserError, UserErrors
from tests.results import scored

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    "fields, said",
    [(("LR=x", "no number", "give one"), "LR=x: no number; give one"),
     ((pathlib.Path("odd: name; here"), "is a folder", "give a file"),
      "odd: name; here: is a folder; give a file"),
     (("one result only", None, "give two"), "one result only; give two"),
     (("--only LR", "no hyperparameter"), "--only LR: no hyperparameter"),
     (("which system is it for?",), "which system is it for?")])
def test_what_it_says(fields, said):
    for error in (UserError(*fields), pickle.loads(pickle.dumps(UserError(*fields)))):
        assert str(error) == said and error.lines == (said,)
        assert error.subject == str(fields[0])


def test_several_at_once():
    several = UserErrors(UserError("a", "b", "c"), UserErrors(UserError("d"), UserError("e", "f")))
    for error in (several, pickle.loads(pickle.dumps(several))):
        assert error.lines == ("a: b; c", "d", "e: f")
        assert str(error) == "a: b; c\nd\ne: f"


def test_exit_statuses():
    assert [error.status for error in (UserError("a"), DivergedError("a"), RankLostError())] == [
        Status.USER_ERROR, Status.DIVERGED, Status.FAULT]
    script = (ROOT / "run_experiments.sh").read_text()
    assert (
        f"user_error={Status.USER_ERROR:d} target_missed={Status.TARGET_MISSED:d} "
        f"diverged={Status.DIVERGED:d} " in script)


def test_no_text_of_an_error_is_parsed():
    code = [*(ROOT / "rn50").rglob("*.py"), *(ROOT / "implementations").rglob("*.py")]
    pattern = r"str\((error|failure)\)\.(split|rsplit|partition|startswith)\((?!\))"
    parsed = [path for path in code if re.search(pattern, path.read_text())]
    assert parsed == []


def test_a_full_disk_without_a_name(capsys):
    assert report(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) == Status.USER_ERROR
    assert "No space left on device; free some, or name another place" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error, limit, status, said",
    [(RuntimeError("std::bad_alloc"), None, Status.USER_ERROR, "out of memory"),
     (UserError("FRAMEWORK=mxnet", "failed to map segment"), 10**6, Status.USER_ERROR, "out of memory"),
     (OSError("Could not find/load"), 10**6, Status.FAULT, "ulimit -v 1000000 may be the reason")])
def test_too_little_memory_has_many_names(capsys, monkeypatch, error, limit, status, said):
    class Ended(Exception):
        pass

    def end(number):
        raise Ended(int(number))

    monkeypatch.setattr(group.process, "memory_limit_kib", lambda: limit)
    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(Ended, match=str(int(status))):
        report(error)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["audit {}", "check {} --format sarif --ruleset 4.0.0"])
def test_a_working_folder_that_was_removed_is_a_line(tmp_path, monkeypatch, verb):
    scored.write_runs(tmp_path / "results", 217, 218, 220, 223, 227)  # no other test has had these checked
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    done = CliRunner(mix_stderr=False).invoke(main, verb.format(tmp_path / "results").split())
    assert (done.exit_code, done.stdout) == (Status.USER_ERROR, "")
    assert done.stderr.endswith("rn50: the working folder: it was removed; change to another one\n")

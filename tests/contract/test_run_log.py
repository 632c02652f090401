"""The log of a run: it replaces nothing that is not its own, survives what becomes of its folder, and ends
with run_stop."""

import json
import os
import pathlib
import resource
import shutil
import signal
import time

import pytest

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.run import timed_run
from rn50.run.log_file import stop_abandoned
from rn50.run.mlperf_log import RunLog
from tests.conftest import with_changes
from tests.contract.toy import Toy

pytestmark = pytest.mark.xdist_group("timed_run")


def test_an_existing_result_is_not_overwritten(tiny_config, tmp_path):
    (tmp_path / "result_0.txt").write_text("precious")
    config = with_changes(tiny_config, run={"result_file": str(tmp_path / "result_0.txt")})
    with pytest.raises(UserError, match="result_0.txt: a result of this name exists"):
        timed_run.run(config, lambda config: Toy(config, [800], []), timed_run.Display())
    assert (tmp_path / "result_0.txt").read_text() == "precious"


@pytest.mark.parametrize(
    "task, labelled",
    [({"train_samples": 1281167, "eval_samples": 50000, "classes": 1000, "image_size": 224,
       "eval_resize": 256, "crop_area_min": 0.05, "width": 1.0},
      False),
     ({}, True)])
def test_a_log_on_other_data_says_that_it_is_no_result(tiny_config, capsys, task, labelled):
    config = with_changes(tiny_config, data=task)
    RunLog(0, None).submission(config, 0)
    platform = next(line for line in capsys.readouterr().out.splitlines() if "submission_platform" in line)
    assert (rules.NOT_A_RESULT in platform) == labelled


def test_a_log_that_another_run_is_writing_is_left_alone(tiny_config, tmp_path):
    result_file = tmp_path / "result_0.txt"
    log = RunLog(0, result_file)
    log.run_start()
    partial = tmp_path / "result_0.txt.partial"
    written = partial.read_bytes()
    with pytest.raises(
        UserError, match="result_0.txt.partial: another run is writing this log; wait until that ends"
    ):
        RunLog(0, result_file)
    stop_abandoned(result_file)
    assert partial.read_bytes() == written
    log.run_stop("success")
    log.finish()
    assert result_file.read_bytes().startswith(written) and not partial.exists()


@pytest.mark.parametrize("lost", ["removed", "moved"])
@pytest.mark.parametrize("moment", ["train 2", "evaluate"])
def test_a_folder_that_goes_in_mid_run_ends_it_and_the_log_is_kept(
    tiny_config, tmp_path, capfd, lost, moment
):
    results = tmp_path / "results"
    results.mkdir()

    class Hostile(Toy):
        def _called(self, what):
            super()._called(what)
            if what == moment:
                shutil.rmtree(results) if lost == "removed" else results.rename(tmp_path / "elsewhere")

    config = with_changes(
        tiny_config, data={"eval_samples": 1000, "folder": str(tmp_path / "no data")},
        hyperparameters={"num_epochs": 20, "eval_offset": 4, "eval_period": 4},
        run={"result_file": str(results / "result_0.txt")})
    calls = []
    with pytest.raises(
        UserError, match=f"^{results}/result_0.txt.partial: was removed or moved .*; start the run again$"
    ):
        timed_run.run(config, lambda config: Hostile(config, [800], calls), timed_run.Display())
    assert calls[-2:] == [moment, "close"]
    said = capfd.readouterr().err
    assert f"result_0.txt.partial: is gone; what was logged is kept in {tmp_path}/result_0.txt.kept-" in said
    keys = [
        json.loads(line.split(":::MLLOG ")[1])["key"]
        for line in pathlib.Path(said.split()[-1]).read_text().splitlines()]
    assert keys[0] == "submission_benchmark" and keys[-1] == "run_stop"
    assert not results.exists()


@pytest.mark.parametrize("target", ["precious", "/dev/null", "missing"])
def test_a_link_in_the_place_of_the_log_is_not_followed(tmp_path, target):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "result_0.txt.partial").symlink_to(target)
    with pytest.raises(
        UserError, match="result_0.txt.partial: is a symbolic link, no regular file; move it away or set"
    ):
        RunLog(0, tmp_path / "result_0.txt")
    stop_abandoned(tmp_path / "result_0.txt")
    (tmp_path / "result_1.txt").symlink_to(target)
    with pytest.raises(UserError, match="result_1.txt: a result of this name exists"):
        RunLog(0, tmp_path / "result_1.txt")
    assert (tmp_path / "precious").read_text() == "precious" and not (tmp_path / "missing").exists()


def test_files_of_others_beside_the_log_are_left_alone(tiny_config, tmp_path):
    for name, refused in (
        ("mine.txt.partial", "exists, and is not a log that a run has left"),
        ("run.json", "exists, and no run"),
    ):
        (tmp_path / name).write_text('{"name": "mine"}')
        result_file = tmp_path / name.replace(".partial", "").replace(".json", ".txt")
        config = with_changes(tiny_config, run={"result_file": str(result_file)})
        with pytest.raises(UserError, match=f"{name}: {refused}.*; move it away or set another RESULT_FILE"):
            timed_run.run(config, lambda config: Toy(config, [], []), timed_run.Display())
        assert (tmp_path / name).read_text() == '{"name": "mine"}'
    os.mkfifo(tmp_path / "pipe.txt.partial")
    with pytest.raises(UserError, match="is a pipe, no regular file; move it away"):
        RunLog(0, tmp_path / "pipe.txt")
    with pytest.raises(
        UserError, match="RESULT_FILE=.*result.json: what the run is made with is saved under this name"
    ):
        RunLog(0, tmp_path / "result.json")


def test_run_stop_is_the_last_line_whoever_goes_on(tmp_path):
    log = RunLog(0, tmp_path / "result_0.txt")
    log.run_start()
    log.run_stop("aborted")
    log.epoch_start(1)
    log.eval_stop(1, 0.5)
    log.run_stop("success")
    keys = [
        line.split('"key": "')[1].split('"')[0]
        for line in (tmp_path / "result_0.txt.partial").read_text().splitlines()]
    assert keys == ["run_start", "run_stop"]


def test_a_log_that_a_killed_run_has_left_is_written_anew(tmp_path):
    result_file = tmp_path / "result_0.txt"
    (tmp_path / "result_0.txt.partial").write_text(":::MLLOG what was left")
    log = RunLog(0, result_file)
    log.run_start()
    log.finish()
    assert result_file.read_text().startswith(":::MLLOG ")


def test_time_goes_on_evenly_whatever_becomes_of_the_wall_clock(tmp_path, monkeypatch):
    log = RunLog(0, tmp_path / "result_0.txt")
    log.run_start()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    log.run_stop("success")
    first, last = (
        json.loads(line.split(":::MLLOG ")[1])["time_ms"]
        for line in (tmp_path / "result_0.txt.partial").read_text().splitlines())
    assert 0 <= last - first < 60_000


def test_the_end_of_an_abandoned_log_on_a_full_disk_leaves_the_start_of_the_clock(tmp_path):
    result_file = tmp_path / "result_0.txt"
    log = RunLog(0, result_file)
    for _ in range(9):
        log.block_stop(1)
    log.run_start()
    partial = tmp_path / "result_0.txt.partial"
    size = partial.stat().st_size
    log._file.stream.close()  # as the end of its process does
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))  # not a byte more can be written
    try:
        stop_abandoned(result_file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, ignored)
    keys = [json.loads(line.split(":::MLLOG ")[1])["key"] for line in partial.read_text().splitlines()]
    assert keys[-2:] == ["run_start", "run_stop"]
    assert partial.stat().st_size <= size

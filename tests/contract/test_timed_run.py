"""The clock, the stop rule and the log, with an implementation whose accuracies are chosen.

A toy, because a real network does not stop at exactly 75.9 % on demand.
"""

import hashlib
import json
import os
import pathlib
import resource
import shutil
import signal
import time
import types

import numpy as np
import pytest

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.machine import description
from rn50.run import timed_run
from rn50.run.implementation import EpochResult
from rn50.run.log_file import stop_abandoned
from rn50.run.mlperf_log import RunLog
from rn50.settings import config as configuration
from tests.conftest import with_changes

TENSORS = ["conv0_weight", "fc1_bias"]


class Toy:
    """Counts as many samples correct as it is told, evaluation after evaluation."""

    steps, waits_for_data, forward_seconds = 0, False, 0.1

    def __init__(self, config, correct, calls, total=1000, fault=None, loss=0.5):
        self.communicator = types.SimpleNamespace(
            rank=0, local_rank=0, size=1, barrier=lambda: None, all_reduce=lambda array: array)
        self._correct, self._total, self._fault, self._loss, self.calls = iter(correct), total, fault, loss, calls

    def _called(self, what):
        self.calls.append(what)
        if what == self._fault:
            raise RuntimeError("broken " + what)

    def warm_up(self, seed):
        self._called("warm_up")
        return TENSORS

    def open_data(self):
        self._called("open_data")

    def train_epoch(self, epoch, progress):
        self._called(f"train {epoch}")
        progress(1, self._loss)
        return EpochResult(samples=203, seconds=0.1, data_wait_seconds=0.0)

    def evaluate(self):
        self._called("evaluate")
        return next(self._correct), self._total

    def close(self):
        self.calls.append("close")


def run(tiny_config, tmp_path, correct, num_epochs=15, **toy):
    config = with_changes(
        tiny_config,
        hyperparameters={"num_epochs": num_epochs, "eval_offset": 2, "eval_period": 4},
        data={"eval_samples": 1000, "folder": str(tmp_path / "no data")},  # the toy reads none
        run={"result_file": str(tmp_path / "result_0.txt")},
    )
    calls = []
    try:
        outcome = timed_run.run(config, lambda config: Toy(config, correct, calls, **toy), timed_run.Display())
    except Exception as error:
        outcome = error
    logs = list(tmp_path.glob("result_0.txt*"))
    events = [json.loads(line.split(":::MLLOG ")[1]) for line in logs[0].read_text().splitlines()] if logs else []
    return outcome, calls, events, [path.name for path in logs]


def test_stops_at_the_first_evaluation_at_the_target(tiny_config, tmp_path):
    outcome, calls, events, logs = run(tiny_config, tmp_path, [500, 758, 759, 900])
    assert outcome == (True, 11, 0.759)
    assert [e["value"] for e in events if e["key"] == "eval_accuracy"] == [0.5, 0.758, 0.759]
    assert [e["metadata"]["epoch_num"] for e in events if e["key"] == "eval_accuracy"] == [3, 7, 11]
    assert events[-1]["key"] == "run_stop" and events[-1]["metadata"]["status"] == "success"
    assert calls[-2:] == ["evaluate", "close"]
    assert logs == ["result_0.txt"]


def test_epochs_used_up_is_aborted_and_a_whole_result(tiny_config, tmp_path):
    outcome, calls, events, logs = run(tiny_config, tmp_path, [500, 600, 700, 758], num_epochs=17)
    assert outcome == (False, 15, 0.758)
    assert "train 16" not in calls  # nothing would evaluate it
    assert events[-1]["metadata"]["status"] == "aborted"
    assert logs == ["result_0.txt"]


def test_order_of_the_log(tiny_config, tmp_path):
    _, _, events, _ = run(tiny_config, tmp_path, [800])
    epochs = ["epoch_start", "epoch_stop", "tracked_stats"]
    assert [e["key"] for e in events] == [
        "submission_benchmark", "submission_org", "submission_division", "submission_status", "submission_platform",
        "cache_clear", "init_start", "seed", "global_batch_size", "gradient_accumulation_steps", "model_bn_span", "opt_name",
        "lars_epsilon",
        "lars_opt_base_learning_rate", "lars_opt_end_learning_rate", "lars_opt_learning_rate_decay_poly_power",
        "lars_opt_learning_rate_decay_steps", "lars_opt_learning_rate_warmup_epochs", "lars_opt_momentum",
        "lars_opt_weight_decay", "weights_initialization", "weights_initialization", "init_stop", "run_start", "train_samples",
        "eval_samples", "block_start", *epochs, *epochs, *epochs, "eval_start", "eval_accuracy", "eval_stop", "block_stop",
        "run_stop",
    ]
    times = [e["time_ms"] for e in events]
    assert times == sorted(times)
    assert [e["metadata"]["tensor"] for e in events if e["key"] == "weights_initialization"] == TENSORS
    block = next(e["metadata"] for e in events if e["key"] == "block_start")
    assert (block["first_epoch_num"], block["epoch_count"]) == (1, 3)


def test_what_leaves_the_closed_rules_is_said_and_logged_as_open(tiny_config, tmp_path):
    remarks = []

    class Listening(timed_run.Display):
        def remark(self, line):
            remarks.append(line)

    file = tmp_path / "result_0.txt"
    warning = "WD: the rules allow 0.0001 * 2^n with a whole n; so the log names the open division"
    for weight_decay, said in ((5e-5, []), (3e-5, [warning])):
        file.unlink(missing_ok=True)
        config = with_changes(tiny_config, hyperparameters={"weight_decay": weight_decay}, run={"result_file": str(file)},
                              data={"eval_samples": 1000, "folder": str(tmp_path / "no data")})
        timed_run.run(config, lambda config: Toy(config, [800], []), Listening())
        assert [line for line in remarks if "division" in line] == said
        division = next(line for line in file.read_text().splitlines() if '"submission_division"' in line)
        assert ('"open"' in division) == bool(said)


def test_data_is_opened_after_the_clock_starts(tiny_config, tmp_path):
    outcome, calls, events, _ = run(tiny_config, tmp_path, [800], fault="open_data")
    assert calls == ["warm_up", "open_data", "close"]
    assert [e["key"] for e in events][-2:] == ["run_start", "run_stop"]
    assert events[-1]["metadata"]["status"] == "aborted"
    assert isinstance(outcome, RuntimeError)


@pytest.mark.parametrize("fault", ["train 2", "evaluate"])
def test_fault_with_the_clock_running_aborts_the_run(tiny_config, tmp_path, fault):
    outcome, calls, events, logs = run(tiny_config, tmp_path, [800], fault=fault)
    assert isinstance(outcome, RuntimeError)
    assert events[-1]["key"] == "run_stop" and events[-1]["metadata"]["status"] == "aborted"
    assert calls[-1] == "close"
    assert logs == ["result_0.txt.partial"]


def test_fault_before_the_clock_stops_no_run(tiny_config, tmp_path):
    _, calls, events, _ = run(tiny_config, tmp_path, [], fault="warm_up")
    assert "run_stop" not in [e["key"] for e in events]
    assert calls[-1] == "close"


def test_wrong_number_of_evaluated_samples_is_an_error(tiny_config, tmp_path):
    outcome, _, events, _ = run(tiny_config, tmp_path, [999], total=999)
    assert isinstance(outcome, UserError) and "NUMVALEXAMPLES=1000: 999" in str(outcome)
    assert events[-1]["metadata"]["status"] == "aborted"


def test_an_existing_result_is_not_overwritten(tiny_config, tmp_path):
    (tmp_path / "result_0.txt").write_text("precious")
    config = with_changes(tiny_config, run={"result_file": str(tmp_path / "result_0.txt")})
    with pytest.raises(UserError, match="result_0.txt: a result of this name exists"):
        timed_run.run(config, lambda config: Toy(config, [800], []), timed_run.Display())
    assert (tmp_path / "result_0.txt").read_text() == "precious"


@pytest.mark.parametrize("task, labelled", [
    ({"train_samples": 1281167, "eval_samples": 50000, "classes": 1000, "image_size": 224, "eval_resize": 256,
      "crop_area_min": 0.05, "width": 1.0}, False),
    ({}, True),
])
def test_a_log_on_other_data_says_that_it_is_no_result(tiny_config, capsys, task, labelled):
    config = with_changes(tiny_config, data=task)
    RunLog(0, None).submission(config, 0)
    platform = next(line for line in capsys.readouterr().out.splitlines() if "submission_platform" in line)
    assert (rules.NOT_A_RESULT in platform) == labelled


def test_seed_is_rank_0s_on_every_rank():
    drawn = []

    def communicator(rank):
        def total(array):
            drawn.append(int(array[0]))
            return np.array([sum(drawn)])

        return types.SimpleNamespace(rank=rank, all_reduce=total)

    first = timed_run.agree_on_seed(None, communicator(0))
    assert timed_run.agree_on_seed(None, communicator(1)) == first > 0
    drawn.clear()
    assert timed_run.agree_on_seed(None, communicator(0)) != first


def test_provenance_is_saved_beside_the_result(tiny_config, tmp_path):
    run(tiny_config, tmp_path, [800])
    facts = json.loads(pathlib.Path(tmp_path, "result_0.json").read_text())
    assert facts["config"]["hyperparameters"]["learning_rate"] == 2.0
    assert facts["seed"] == 7
    assert facts["packages"]["numpy"] == np.__version__
    assert facts["system"] == description.read()
    assert configuration.from_environment(facts["variables"]) == configuration.Config(
        **{name: type_(**facts["config"][name]) for name, type_ in configuration.SECTIONS.items()}
    )


def test_the_libraries_variables_of_the_configuration_file_are_saved(tiny_config, tmp_path, monkeypatch):
    file = tmp_path / "config.sh"
    file.write_text("export NCCL_BUFFSIZE=1\nexport BATCHSIZE=1\nexport HOROVOD_CYCLE_TIME=2\n")
    for name, value in (("CONFIG_FILE", str(file)), ("NCCL_BUFFSIZE", "1"), ("BATCHSIZE", "1"), ("OMPI_COMM_WORLD_RANK", "0")):
        monkeypatch.setenv(name, value)
    run(tiny_config, tmp_path, [800])
    assert json.loads((tmp_path / "result_0.json").read_text())["environment"] == {"NCCL_BUFFSIZE": "1"}


def test_a_log_that_another_run_is_writing_is_left_alone(tiny_config, tmp_path):
    result_file = tmp_path / "result_0.txt"
    log = RunLog(0, result_file)
    log.run_start()
    partial = tmp_path / "result_0.txt.partial"
    written = partial.read_bytes()
    with pytest.raises(UserError, match="result_0.txt.partial: another run is writing this log; wait until that ends"):
        RunLog(0, result_file)
    stop_abandoned(result_file)
    assert partial.read_bytes() == written
    log.run_stop("success")
    log.finish()
    assert result_file.read_bytes().startswith(written) and not partial.exists()


@pytest.mark.parametrize("lost", ["removed", "moved"])
@pytest.mark.parametrize("moment", ["train 2", "evaluate"])
def test_a_folder_that_goes_in_mid_run_ends_it_and_the_log_is_kept(tiny_config, tmp_path, capfd, lost, moment):
    results = tmp_path / "results"
    results.mkdir()

    class Hostile(Toy):
        def _called(self, what):
            super()._called(what)
            if what == moment:
                shutil.rmtree(results) if lost == "removed" else results.rename(tmp_path / "elsewhere")

    config = with_changes(tiny_config, data={"eval_samples": 1000, "folder": str(tmp_path / "no data")},
                          hyperparameters={"num_epochs": 20, "eval_offset": 4, "eval_period": 4},
                          run={"result_file": str(results / "result_0.txt")})  # fmt: skip
    calls = []
    with pytest.raises(UserError, match=f"^{results}/result_0.txt.partial: was removed or moved .*; start the run again$"):
        timed_run.run(config, lambda config: Hostile(config, [800], calls), timed_run.Display())
    assert calls[-2:] == [moment, "close"]
    said = capfd.readouterr().err
    assert f"result_0.txt.partial: is gone; what was logged is kept in {tmp_path}/result_0.txt.kept-" in said
    keys = [json.loads(line.split(":::MLLOG ")[1])["key"] for line in pathlib.Path(said.split()[-1]).read_text().splitlines()]
    assert keys[0] == "submission_benchmark" and keys[-1] == "run_stop"
    assert not results.exists()


@pytest.mark.parametrize("target", ["precious", "/dev/null", "missing"])
def test_a_link_in_the_place_of_the_log_is_not_followed(tmp_path, target):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "result_0.txt.partial").symlink_to(target)
    with pytest.raises(UserError, match="result_0.txt.partial: is a symbolic link, no regular file; move it away or set"):
        RunLog(0, tmp_path / "result_0.txt")
    stop_abandoned(tmp_path / "result_0.txt")
    (tmp_path / "result_1.txt").symlink_to(target)
    with pytest.raises(UserError, match="result_1.txt: a result of this name exists"):
        RunLog(0, tmp_path / "result_1.txt")
    assert (tmp_path / "precious").read_text() == "precious" and not (tmp_path / "missing").exists()


def test_files_of_others_beside_the_log_are_left_alone(tiny_config, tmp_path):
    for name, refused in (("mine.txt.partial", "exists, and is no log that a run has left"), ("run.json", "exists, and no run")):
        (tmp_path / name).write_text('{"name": "mine"}')
        result_file = tmp_path / name.replace(".partial", "").replace(".json", ".txt")
        config = with_changes(tiny_config, run={"result_file": str(result_file)})
        with pytest.raises(UserError, match=f"{name}: {refused}.*; move it away or set another RESULT_FILE"):
            timed_run.run(config, lambda config: Toy(config, [], []), timed_run.Display())
        assert (tmp_path / name).read_text() == '{"name": "mine"}'
    os.mkfifo(tmp_path / "pipe.txt.partial")
    with pytest.raises(UserError, match="is a pipe, no regular file; move it away"):
        RunLog(0, tmp_path / "pipe.txt")
    with pytest.raises(UserError, match="RESULT_FILE=.*result.json: what the run is made with is saved under this name"):
        RunLog(0, tmp_path / "result.json")


def test_run_stop_is_the_last_line_whoever_goes_on(tmp_path):
    log = RunLog(0, tmp_path / "result_0.txt")
    log.run_start()
    log.run_stop("aborted")
    log.epoch_start(1)
    log.eval_stop(1, 0.5)
    log.run_stop("success")
    keys = [line.split('"key": "')[1].split('"')[0] for line in (tmp_path / "result_0.txt.partial").read_text().splitlines()]
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
    first, last = (json.loads(line.split(":::MLLOG ")[1])["time_ms"]
                   for line in (tmp_path / "result_0.txt.partial").read_text().splitlines())
    assert 0 <= last - first < 60_000


@pytest.mark.parametrize("fault", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_aborts_the_run(tiny_config, tmp_path, fault):
    outcome, calls, events, _ = run(tiny_config, tmp_path, [800], loss=fault)
    assert isinstance(outcome, UserError) and "the training loss is" in str(outcome)
    assert events[-1]["key"] == "run_stop" and events[-1]["metadata"]["status"] == "aborted"
    assert "evaluate" not in calls and calls[-1] == "close"


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


def test_ranks_whose_data_have_different_certificates_are_refused(tiny_config):
    def check(other):
        communicator = types.SimpleNamespace(rank=1, size=2, all_reduce=lambda array: array + other)
        return timed_run._check_certificate(tiny_config, communicator, timed_run.Display())

    certificate = pathlib.Path(tiny_config.data.folder, "certificate.json")
    sha256 = hashlib.sha256(certificate.read_bytes()).hexdigest()
    assert check(int(sha256[:8], 16))["certificate_sha256"] == sha256
    for other in (0, 5):  # none, and another
        with pytest.raises(UserError, match="different certificates, this one .*; give every machine the same"):
            check(other)

"""The clock and the stop rule of a run, and what it saves, with an implementation whose accuracies are
chosen."""

import hashlib
import json
import pathlib
import types

import numpy as np
import pytest

from rn50.errors import UserError
from rn50.machine import description
from rn50.results import parse
from rn50.run import agreement, provenance, timed_run
from rn50.run.loop import EpochResult
from rn50.run.precision import Precision
from rn50.settings import config as configuration
from rn50.settings import fields
from tests.conftest import with_changes
from tests.contract.toy import TENSORS, Toy, run

pytestmark = pytest.mark.xdist_group("timed_run")


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
        "submission_benchmark", "submission_org", "submission_division", "submission_status",
        "submission_platform", "cache_clear", "init_start", "seed", "global_batch_size",
        "gradient_accumulation_steps", "model_bn_span", "opt_name", "lars_epsilon",
        "lars_opt_base_learning_rate", "lars_opt_end_learning_rate",
        "lars_opt_learning_rate_decay_poly_power", "lars_opt_learning_rate_decay_steps",
        "lars_opt_learning_rate_warmup_epochs", "lars_opt_momentum", "lars_opt_weight_decay",
        "weights_initialization", "weights_initialization", "init_stop", "run_start", "train_samples",
        "eval_samples", "lowest_numerical_precision_in_linear", "lowest_numerical_precision_in_comm",
        "tensor_parallelism", "pipeline_parallelism", "context_parallelism", "expert_parallelism",
        "micro_batch_size", "block_start", *epochs, *epochs, *epochs, "eval_start", "eval_accuracy",
        "eval_stop", "block_stop", "run_stop"]
    times = [e["time_ms"] for e in events]
    assert times == sorted(times)
    assert [e["metadata"]["tensor"] for e in events if e["key"] == "weights_initialization"] == TENSORS
    block = next(e["metadata"] for e in events if e["key"] == "block_start")
    assert (block["first_epoch_num"], block["epoch_count"]) == (1, 3)


def test_a_full_memory_of_a_gpu_names_the_batch_size(tiny_config, tmp_path):
    class Full(Toy):
        def warm_up(self, seed):
            raise RuntimeError("CUDA out of memory")

    config = with_changes(tiny_config, run={"device": "gpu", "result_file": str(tmp_path / "result_0.txt")})
    with pytest.raises(UserError, match="^BATCHSIZE=16: a GPU's memory is used up"):
        timed_run.run(config, lambda config: Full(config, [800], []), timed_run.Display())


def test_each_epoch_logs_the_mean_of_the_losses_that_rank_0_has_seen(tiny_config, tmp_path):
    class Learning(Toy):
        def train_epoch(self, progress):
            self.epoch += 1
            progress(1, 4.0 / self.epoch)
            progress(2, 2.0 / self.epoch)
            return EpochResult(samples=203, seconds=0.1, data_wait_seconds=0.0)

    config = with_changes(
        tiny_config, hyperparameters={"num_epochs": 3, "eval_offset": 2, "eval_period": 4},
        data={"eval_samples": 1000, "folder": str(tmp_path / "no data")},
        run={"result_file": str(tmp_path / "result_0.txt")})
    timed_run.run(config, lambda config: Learning(config, [800], []), timed_run.Display())
    records = [
        json.loads(line.split(":::MLLOG ")[1])
        for line in (tmp_path / "result_0.txt").read_text().splitlines()]
    stats = [
        (e["metadata"]["step"], e["value"]["train_loss"]) for e in records if e["key"] == "tracked_stats"]
    assert stats == [(1, 3.0), (2, 1.5), (3, 1.0)]


@pytest.mark.parametrize("correct, warned", [([30, 20, 800], 1), ([300, 20, 800], 0)])
def test_at_the_first_evaluation_it_is_said_that_validation_does_not_learn(
    tiny_config, tmp_path, correct, warned
):
    """A loss of 1.77 of ten classes, in 1,000 images: as with permuted labels of the demo data set."""
    lines = []

    class Listening(timed_run.Display):
        def remark(self, line):
            lines.append(line)

    config = with_changes(
        tiny_config, hyperparameters={"num_epochs": 15, "eval_offset": 2, "eval_period": 4},
        data={"eval_samples": 1000, "folder": str(tmp_path / "no data")})
    timed_run.run(config, lambda config: Toy(config, correct, [], loss=1.77), Listening())
    assert len([line for line in lines if "training learns, validation does not" in line]) == warned


def test_the_precision_that_warm_up_took_is_shown_and_stands_in_the_log_and_beside_it(tiny_config, tmp_path):
    remarks = []

    class Listening(timed_run.Display):
        def remark(self, line):
            remarks.append(line)

    class Choosing(Toy):
        def warm_up(self, seed):
            self.precision = Precision("bfloat16", "it was the faster one")
            return super().warm_up(seed)

    file = tmp_path / "result_0.txt"
    config = with_changes(
        tiny_config, run={"precision": "auto", "result_file": str(file)},
        data={"eval_samples": 1000, "folder": str(tmp_path / "no data")})
    timed_run.run(config, lambda config: Choosing(config, [800], []), Listening())
    assert "it was the faster one" in remarks
    saved = json.loads(file.with_suffix(".json").read_text())
    assert (saved["precision"], saved["precision_reason"]) == ("bfloat16", "it was the faster one")
    assert saved["variables"]["PRECISION"] == "auto"
    samples = [event for event in parse.read_log(file).events if event.key.endswith("_samples")]
    assert [event.metadata["precision"] for event in samples] == ["bfloat16", "bfloat16"]


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


def test_seed_is_rank_0s_on_every_rank():
    drawn = []

    def communicator(rank):
        def total(array):
            drawn.append(int(array[0]))
            return np.array([sum(drawn)])

        return types.SimpleNamespace(rank=rank, all_reduce=total)

    first = agreement.on_seed(None, communicator(0))
    assert agreement.on_seed(None, communicator(1)) == first > 0
    drawn.clear()
    assert agreement.on_seed(None, communicator(0)) != first


def test_provenance_is_saved_beside_the_result(tiny_config, tmp_path):
    run(tiny_config, tmp_path, [800])
    facts = json.loads(pathlib.Path(tmp_path, "result_0.json").read_text())
    assert facts["config"]["hyperparameters"]["learning_rate"] == 2.0
    assert facts["seed"] == 7
    assert facts["packages"]["numpy"] == np.__version__
    assert facts["system"] == description.read()
    assert configuration.from_environment(facts["variables"]) == configuration.Config(
        **{name: type_(**facts["config"][name]) for name, type_ in fields.SECTIONS.items()})


def test_what_another_log_was_made_with_is_not_replaced(tiny_config, tmp_path):
    run(tiny_config, tmp_path, [800])
    file = tmp_path / "result_0.json"
    before = file.read_bytes()
    with pytest.raises(UserError, match="result_0.json: was saved with result_0.txt; move it away or set"):
        provenance.save(tiny_config, 8, tmp_path / "result_0.log")
    assert file.read_bytes() == before
    (tmp_path / "result_0.txt").unlink()
    provenance.save(tiny_config, 8, tmp_path / "result_0.log")
    assert json.loads(file.read_text())["seed"] == 8


def test_the_libraries_variables_of_the_configuration_file_are_saved(tiny_config, tmp_path, monkeypatch):
    file = tmp_path / "config.sh"
    file.write_text("export NCCL_BUFFSIZE=1\nexport BATCHSIZE=1\nexport HOROVOD_CYCLE_TIME=2\n")
    for name, value in (
        ("CONFIG_FILE", str(file)), ("NCCL_BUFFSIZE", "1"), ("BATCHSIZE", "1"), ("OMPI_COMM_WORLD_RANK", "0"),
    ):
        monkeypatch.setenv(name, value)
    run(tiny_config, tmp_path, [800])
    assert json.loads((tmp_path / "result_0.json").read_text())["environment"] == {"NCCL_BUFFSIZE": "1"}


@pytest.mark.parametrize("fault", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_aborts_the_run(tiny_config, tmp_path, fault):
    outcome, calls, events, _ = run(tiny_config, tmp_path, [800], loss=fault)
    assert isinstance(outcome, UserError) and "the training loss is" in str(outcome)
    assert events[-1]["key"] == "run_stop" and events[-1]["metadata"]["status"] == "aborted"
    assert "evaluate" not in calls and calls[-1] == "close"


def test_ranks_whose_data_have_different_certificates_are_refused(tiny_config):
    def check(other):
        communicator = types.SimpleNamespace(rank=1, size=2, all_reduce=lambda array: array + other)
        return agreement.on_certificate(tiny_config, communicator, timed_run.Display())

    certificate = pathlib.Path(tiny_config.data.folder, "certificate.json")
    sha256 = hashlib.sha256(certificate.read_bytes()).hexdigest()
    assert check(int(sha256[:8], 16))["certificate_sha256"] == sha256
    for other in (0, 5):  # none, and another
        with pytest.raises(
            UserError, match="different certificates, this one .*; give every machine the same"
        ):
            check(other)

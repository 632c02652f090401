"""A run that starts again from zero keeps the checkpoint of the one before until it is as far itself."""

import pathlib

import numpy as np
import pytest
import safetensors

from rn50.errors import UserError
from rn50.run import checkpoint, timed_run
from tests.conftest import with_changes
from tests.contract.toy import Toy

pytestmark = pytest.mark.xdist_group("timed_run")


class Kept(Toy):
    """A toy whose state can be saved."""

    def state(self):
        return {"fc1_bias_momentum": np.zeros(10, np.float32)}

    def begin_after(self, epoch, seed):
        self._called(f"anew after {epoch}")


@pytest.fixture
def config(tiny_config, tmp_path):
    return with_changes(
        tiny_config,
        hyperparameters={"num_epochs": 15, "eval_offset": 2, "eval_period": 4},
        data={"eval_samples": 1000, "folder": str(tmp_path / "no data")},  # the toy reads none
        run={"result_file": str(tmp_path / "result_0.txt"), "checkpoint_epochs": 2, "seed": None},
    )


def ended(config, fault, correct=(0, 0, 0, 0)):
    """Runs until ``fault``; returns what the run did and what it told."""
    calls, told = [], []
    # Its process would have ended, and with it the lock of its log.
    pathlib.Path(f"{config.run.result_file}.partial").unlink(missing_ok=True)

    class Told(timed_run.Display):
        def remark(self, line):
            told.append(line)

    def run():
        return timed_run.run(config, lambda config: Kept(config, correct, calls, fault=fault), Told())

    if fault:
        with pytest.raises(RuntimeError, match=f"broken {fault}"):
            run()
    else:
        assert run().reached_target
    return calls, "\n".join(told)


def header(file):
    with safetensors.safe_open(str(file), "np") as opened:
        return opened.metadata()


def test_hours_are_kept_until_the_new_run_is_as_far(config, tmp_path):
    file = tmp_path / "result_0.checkpoint.safetensors"
    assert "holds epoch" not in ended(config, "train 9")[1]
    before = file.read_bytes()
    assert header(file)["epoch"] == "8"

    calls, told = ended(config, "train 8")
    assert f"{file} holds epoch 8 of an interrupted run: RESUME=1 (rn50 run --resume) goes on" in told
    assert calls.count("anew after 6") == 1 and file.read_bytes() == before

    calls, told = ended(with_changes(config, run={"checkpoint_epochs": 0}), "train 8")
    assert "holds epoch 8" in told and "anew after 6" not in calls and file.read_bytes() == before

    ended(config, "train 11")
    assert header(file)["epoch"] == "10"
    assert "holds epoch 10" in ended(config, None, (800,))[1]
    assert not file.exists(), "the run is whole"


def test_another_configuration_leaves_the_checkpoint_alone(config, tmp_path):
    ended(config, "train 5")
    file = tmp_path / "result_0.checkpoint.safetensors"
    before = file.read_bytes()
    other = with_changes(config, hyperparameters={"num_epochs": 3, "learning_rate": 1.0})
    for start in (lambda: ended(other, "train 3"), lambda: checkpoint.refuse_impossible(other)):
        with pytest.raises(UserError) as refused:
            start()
        assert str(refused.value) == (
            f"{file}: holds epoch 4 of an interrupted run of another configuration; "
            "set its variables and RESUME=1, or move it away")
    assert file.read_bytes() == before
    file.write_bytes(before[:-1])  # nothing that could be resumed
    assert checkpoint.peek(config) == (0, config.sha256)
    ended(config, "train 3")
    assert header(file)["epoch"] == "2"

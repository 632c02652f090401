"""A loss is read without a wait for the step after it: the loop reads that of the step before."""

import contextlib

import pytest

torch = pytest.importorskip("torch")

from implementations.pytorch import engine  # noqa: E402
from implementations.pytorch.dali_batches import DaliBatches  # noqa: E402
from rn50.data.pipeline.batches import BatchFormat  # noqa: E402
from rn50.run.loop import Rank  # noqa: E402
from tests.conftest import ON_GPU, with_changes  # noqa: E402

LONG = 2_000_000_000
"""Cycles of a GPU, about a second."""


class Recorder:
    """In place of a look-back: what was begun when a mark was set, and when it is read."""

    def __init__(self, begun):
        self._begun, self.marked = begun, 0

    def mark(self):
        self.marked = len(self._begun)

    @contextlib.contextmanager
    def reading(self):
        self._begun.append(f"read what {self.marked} have left")
        yield


@pytest.mark.parametrize("samples", [16, 3])
def test_the_mean_of_a_loss_waits_for_the_step_before_alone(tiny_config, monkeypatch, samples):
    rank = Rank(with_changes(tiny_config, run={"framework": "pytorch"}))
    rank.warm_up(1)
    engine, begun = rank.engine, []
    for name in ("_full_step", "_ragged_step"):
        step = getattr(engine, name)
        monkeypatch.setattr(
            engine, name, lambda images, labels, step=step: begun.append("pass") or step(images, labels))
    update = engine.optimizer.step
    monkeypatch.setattr(engine.optimizer, "step", lambda *rate: begun.append("update") or update(*rate))
    monkeypatch.setattr(engine, "_look_back", Recorder(begun))
    batch = engine.synthetic(engine._config.data.image_size)._replace(samples=samples)
    first = engine.step(batch, 0.1)
    engine.step(batch, 0.1)
    engine.mean(first)
    assert begun == ["pass", "update", "pass", "update", "read what 2 have left"]
    rank.close()


def test_a_captured_step_begins_with_the_weights_and_statistics_of_the_seed(tiny_config, monkeypatch):
    def tensors():
        rank = Rank(with_changes(tiny_config, run={"framework": "pytorch", "precision": "float32"}))
        rank.engine.build(7, "float32")
        return rank.weights()

    def after_a_step(mode, step, images, labels, pool):
        step(images, labels)
        return step

    expected = tensors()
    monkeypatch.setattr(engine, "is_captured", lambda mode, device: True)
    monkeypatch.setattr(engine, "captured", lambda run, device: (run, run()))
    monkeypatch.setattr(engine, "full_batch_step", after_a_step)
    found = tensors()
    assert all((found[name] == array).all() for name, array in expected.items())


def test_labels_are_checked_behind_the_step_on_the_latest_batch(tiny_config):
    config = with_changes(tiny_config, run={"framework": "pytorch"})
    rank = Rank(config)
    batches = DaliBatches(config, "train", rank.communicator, 1, BatchFormat(None, "HWC", False), 1)
    begun = []
    batches._look_back = Recorder(begun)
    epoch = batches.epoch()
    for _ in range(2):
        next(epoch)
        begun.append("step")
    batches.check_labels()
    assert begun == ["step", "step", "read what 1 have left"]
    rank.close()


@pytest.mark.parametrize("device", [pytest.param("gpu", marks=ON_GPU)])
def test_the_device_goes_on_while_a_loss_is_read(tiny_config, monkeypatch, device):
    rank = Rank(with_changes(tiny_config, run={"framework": "pytorch", "device": device}))
    rank.warm_up(1)
    engine, batch = rank.engine, rank.engine.synthetic(rank.config.data.image_size)
    engine.mean(engine.step(batch, 0.1))  # what is loaded at a first use is loaded
    first, step = engine.step(batch, 0.1), engine._full_step
    monkeypatch.setattr(
        engine, "_full_step", lambda images, labels: torch.cuda._sleep(LONG) or step(images, labels))
    engine.step(batch, 0.1)
    assert engine.mean(first) > 0
    assert not torch.cuda.current_stream().query(), "it waited for the device"
    rank.close()

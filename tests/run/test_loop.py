"""A rank: the loops over batches, around an engine."""

import types

import numpy as np

from rn50.run import loop
from rn50.run.communicators import SingleProcess
from tests.conftest import with_changes


class Engine:
    """An engine that knows the rank it computes on, and computes nothing."""

    def __init__(self, config, communicator):
        self.ranks, self.local_rank = communicator.size, communicator.local_rank

    def build(self, seed, precision):
        self.precision = precision

    def synthetic(self, image_size):
        return None


def test_a_precision_is_tried_alone_on_the_gpu_of_the_rank(monkeypatch, tiny_config):
    """Several ranks of a machine that tried it on the first GPU would time each other."""
    monkeypatch.setattr(loop, "connect", lambda config: SingleProcess(local_rank=1))
    modules = {"engine": types.SimpleNamespace(create=Engine)}
    monkeypatch.setattr(loop.frameworks, "module", lambda framework, name: modules[name])
    rank = loop.Rank(tiny_config)
    rank._seed = 7
    engine = rank._trial("bfloat16").args[0]
    assert (engine.ranks, engine.local_rank, engine.precision) == (1, 1, "bfloat16")


def test_a_run_begins_as_if_nothing_had_warmed_up(monkeypatch, tiny_config):
    """A gradient that overflows spoils weights, statistics and momentum, at a learning rate of 0 too."""
    rank = loop.Rank(with_changes(tiny_config, run={"precision": "float32"}))
    engine, step = rank.engine, rank.engine.step

    def spoiled(batch, learning_rate, average_share=0.0):
        loss = step(batch, learning_rate)
        for tensor in (*engine.tensors().values(), *engine.state()["momentum"].values()):
            engine.set(tensor, engine.array(tensor) * np.nan)
        return loss

    monkeypatch.setattr(engine, "step", spoiled)
    rank.warm_up(7)
    after = rank.weights()
    assert {value for array in rank.state().values() for value in np.unique(array)} == {0}
    engine.build(7, "float32")
    assert all((after[name] == array).all() for name, array in rank.weights().items())
    rank.close()

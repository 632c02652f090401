"""A rank: the loops over batches, around an engine."""

import types

from rn50.run import loop
from rn50.run.communicators import SingleProcess


class Engine:
    """An engine that knows the rank it computes on, and computes nothing."""

    def __init__(self, config, communicator, model):
        self.ranks, self.local_rank = communicator.size, communicator.local_rank

    def build(self, seed, precision):
        self.precision = precision

    def synthetic(self):
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

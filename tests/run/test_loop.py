"""A rank: the loops over batches, around an engine."""

import dataclasses
import types

from rn50.run import loop
from rn50.run.single_process import SingleProcess


class Engine:
    """An engine that knows the rank it computes on, and computes nothing."""

    def __init__(self, config, communicator):
        self.ranks, self.local_rank = config.ranks, communicator.local_rank

    def build(self, seed, precision):
        self.precision = precision

    def synthetic(self):
        return None


def test_a_precision_is_tried_alone_on_the_gpu_of_the_rank(monkeypatch, tiny_config):
    """Several ranks of a machine that tried it on the first GPU would time each other."""
    modules = {
        "communicator": types.SimpleNamespace(connect=lambda config: SingleProcess()),
        "engine": types.SimpleNamespace(create=Engine),
    }
    monkeypatch.setattr(loop.frameworks, "module", lambda framework, name: modules[name])
    run = dataclasses.replace(tiny_config.run, ranks_per_node=2)
    rank = loop.Rank(dataclasses.replace(tiny_config, run=run))
    rank.communicator.local_rank, rank._seed = 1, 7
    engine = rank._trial("bfloat16").args[0]
    assert (engine.ranks, engine.local_rank, engine.precision) == (1, 1, "bfloat16")

"""What a rank is started with."""

import os

import pytest

from rn50 import launch
from rn50.errors import UserError
from tests.conftest import with_changes


@pytest.mark.parametrize("device, ranks, cores, threads", [
    ("cpu", 1, 8, "7"),  # one core is left to the input pipeline
    ("cpu", 1, 1, "1"),
    ("cpu", 4, 8, "1"),
    ("gpu", 4, 32, "8"),
    ("gpu", 8, 4, "1"),
])
def test_threads_are_a_ranks_share_of_the_cores(tiny_config, monkeypatch, device, ranks, cores, threads):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    config = with_changes(tiny_config, run={"device": device, "ranks_per_node": ranks})
    assert launch.rank_environment(config, {})["OMP_NUM_THREADS"] == threads
    assert launch.rank_environment(config, {"OMP_NUM_THREADS": "3", "X": "y"})["OMP_NUM_THREADS"] == "3"


def test_several_machines_are_refused(tiny_config):
    with pytest.raises(UserError, match="DGXNNODES=2"):
        launch.command(with_changes(tiny_config, run={"nodes": 2}))

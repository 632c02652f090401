"""PRECISION=auto in the frameworks: the run that follows is that of the precision named outright."""

import gc

import numpy as np
import pytest

from rn50 import frameworks
from rn50.errors import UserError
from rn50.machine import hardware
from rn50.run import loop, precision
from tests.conftest import with_changes
from tests.contract.frameworks import WITH_TOY, installed

FRAMEWORKS = ("mxnet", "pytorch")


@pytest.fixture(params=FRAMEWORKS)
def warmed_up(request, tiny_config, monkeypatch):
    """A function that returns a rank with seed 5 under a PRECISION."""
    installed(request.param)
    if not frameworks.traits(request.param).bfloat16_flags <= hardware.cpu_flags():
        pytest.skip("MXNet computes in bfloat16 with AVX-512 alone")
    # Without the instructions PyTorch is slow, not wrong.
    monkeypatch.setattr(precision, "cpu_flags", lambda: hardware.BFLOAT16 | hardware.AVX512)
    monkeypatch.setattr(precision, "TURN_S", 0.01)
    ranks = []

    def warm_up(name):
        config = with_changes(tiny_config, run={"framework": request.param, "precision": name})
        ranks.append(loop.Rank(config))
        ranks[-1].warm_up(5)
        return WITH_TOY[request.param], ranks[-1]

    yield warm_up
    for rank in ranks:
        rank.close()


def trained(framework, rank):
    """Weights and statistics after three steps."""
    size, random = rank.config.data.image_size, np.random.RandomState(0)
    for _ in range(3):
        images, labels = random.standard_normal((16, 3, size, size)), random.randint(10, size=16)
        rank.engine.step(framework.batch(images.astype(np.float32), labels.astype(np.float32), 16, 16), 0.5)
    return {**framework.weights(rank), **framework.running_statistics(rank)}


@pytest.mark.parametrize("taken", precision.TIMED)
def test_a_run_is_that_of_the_precision_taken(warmed_up, monkeypatch, taken):
    monkeypatch.setattr(precision, "decide", lambda float32, bfloat16: precision.Precision(taken, "so it is"))
    framework, automatic = warmed_up("auto")
    assert automatic.precision == (taken, "so it is")
    _, explicit = warmed_up(taken)
    first, second = (framework.weights(rank) for rank in (automatic, explicit))
    for name, weight in first.items():
        np.testing.assert_array_equal(weight, second[name])
    first, second = (trained(framework, rank) for rank in (automatic, explicit))
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])


def test_only_the_network_that_trains_is_left(warmed_up):
    _, rank = warmed_up("auto")
    assert [each for each in gc.get_objects() if type(each).__name__ == "ResNet50"] == [rank.engine.network]
    assert rank.precision.name in precision.TIMED and rank.precision.reason


def test_networks_of_both_precisions_are_timed_and_counted_as_progress(warmed_up, monkeypatch):
    _, rank = warmed_up("float32")
    built, ours, before = [], type(rank.engine).build, rank.steps
    monkeypatch.setattr(
        type(rank.engine), "build", lambda engine, seed, name: built.append(name) or ours(engine, seed, name))
    automatic = with_changes(rank.config, run={"precision": "auto"})
    precision.choose(automatic, rank.communicator, rank._trial)
    assert built == [*precision.TIMED]
    assert rank.steps >= before + len(built) * (1 + precision.TURNS)


def test_mxnet_refuses_bfloat16_without_avx512(tiny_config, monkeypatch):
    installed("mxnet")
    monkeypatch.setattr(precision, "cpu_flags", frozenset)
    config = with_changes(tiny_config, run={"framework": "mxnet", "precision": "bfloat16"})
    with pytest.raises(UserError, match="^PRECISION=bfloat16: MXNet needs AVX-512, .*; set PRECISION=auto$"):
        loop.Rank(config)

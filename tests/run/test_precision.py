"""The choice of PRECISION=auto on a CPU: what is taken, by whom, and what is left of what was not."""

import dataclasses
import gc
import threading
import time
import weakref

import numpy as np
import pytest

from rn50.machine import hardware
from rn50.run import precision, provenance
from rn50.run.communicators import SingleProcess
from rn50.run.precision import Precision
from tests.conftest import with_changes


@pytest.fixture
def config(tiny_config):
    """PRECISION=auto on a CPU."""
    return with_changes(tiny_config, run={"precision": "auto"})


@pytest.fixture(autouse=True)
def a_processor_with_bfloat16(monkeypatch):
    """The processor of every test names bfloat16, and trials are short."""
    monkeypatch.setattr(precision, "cpu_flags", lambda: hardware.BFLOAT16 | hardware.AVX512)
    monkeypatch.setattr(precision, "TURN_S", 0.02)


def sleeping(milliseconds):
    """A trial whose steps take the milliseconds of their precision."""
    return lambda name: lambda: time.sleep(milliseconds[name] / 1e3)


@pytest.mark.parametrize(
    "float32, bfloat16, taken",
    [(14.0, 10.0, "bfloat16"), (10.5, 10.0, "bfloat16"), (10.4, 10.0, "float32"), (10.0, 10.0, "float32"),
     (10.0, 14.0, "float32")])
def test_bfloat16_has_to_be_worth_it(float32, bfloat16, taken):
    found = precision.decide(float32, bfloat16)
    assert found.name == taken
    assert found.reason.startswith(
        f"PRECISION=auto is {taken}: a step timed at warm-up takes {bfloat16} ms in bfloat16, "
        f"{float32} ms in float32 (")


@pytest.mark.parametrize("faster", precision.TIMED)
def test_the_faster_one_is_taken(config, faster):
    found = precision.choose(
        config, SingleProcess(), sleeping({**dict.fromkeys(precision.TIMED, 12), faster: 3}))
    assert found.name == faster and " ms in float32" in found.reason


def test_the_first_step_compiles_and_does_not_count(config):
    def trial(name):
        steps = iter([0.05 if name == "bfloat16" else 0.0])
        return lambda: time.sleep(next(steps, 0.002 if name == "bfloat16" else 0.01))

    assert precision.choose(config, SingleProcess(), trial).name == "bfloat16"


def test_load_during_one_visit_does_not_decide(config):
    visits = []

    def step_of(name):
        def step():
            if visits[-1:] != [name]:
                visits.append(name)
            loaded = len(visits) == 4  # after the steps that compile, the first of bfloat16
            time.sleep(0.03 if loaded else {"float32": 0.01, "bfloat16": 0.004}[name])

        return step

    assert precision.choose(config, SingleProcess(), step_of).name == "bfloat16"
    assert visits == [*precision.TIMED] * (1 + precision.TURNS)


@pytest.mark.parametrize(
    "run, expected",
    [({"precision": "bfloat16"}, "bfloat16"), ({"precision": "float32"}, "float32"),
     ({"device": "gpu"}, "float16")])
def test_where_there_is_no_choice_nothing_is_timed_or_said(config, run, expected):
    config = with_changes(config, run=run)
    assert (
        precision.choose(config, SingleProcess(), None) == precision.before_warm_up(config)
        == Precision(expected))


def test_a_processor_without_bfloat16_takes_float32_untimed(config, monkeypatch):
    monkeypatch.setattr(precision, "cpu_flags", frozenset)
    found = precision.choose(config, SingleProcess(), None)
    assert found == ("float32", "PRECISION=auto is float32: the processor has no instructions for bfloat16")


def test_discarded_networks_are_gone_at_the_end(config):
    alive = weakref.WeakSet()

    class Network:
        def __init__(self):
            alive.add(self)
            self.itself = self

    def trial(name):
        network = Network()
        return lambda: time.sleep(0.001 if network else 0)

    gc.disable()
    try:
        precision.choose(config, SingleProcess(), trial)
        assert not alive
    finally:
        gc.enable()


class Ranks:
    """Communicators of threads."""

    def __init__(self, size):
        self._barrier, self._arrays = threading.Barrier(size), [None] * size
        self.of = [
            dataclasses.make_dataclass("Rank", ["rank", "size", "barrier", "all_reduce"])(
                rank, size, self._barrier.wait, lambda array, rank=rank: self._all_reduce(rank, array))
            for rank in range(size)]

    def _all_reduce(self, rank, array):
        self._arrays[rank] = array
        self._barrier.wait()
        total = np.sum(self._arrays, axis=0)
        self._barrier.wait()
        return total


def chosen_by(config, trials):
    """What each rank chooses whose steps take these milliseconds. It may have a configuration of its own."""
    found, configs = [None] * len(trials), config if isinstance(config, list) else [config] * len(trials)

    def choose(rank):
        found[rank] = precision.choose(configs[rank], communicators[rank], sleeping(trials[rank]))

    communicators = Ranks(len(trials)).of
    threads = [threading.Thread(target=choose, args=(rank,)) for rank in range(len(trials))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_all_ranks_take_the_same_by_their_sum(config):
    fast, slow = {"float32": 10, "bfloat16": 5}, {"float32": 10, "bfloat16": 30}
    first, second = chosen_by(config, [fast, slow])
    assert first == second and first.name == "float32"
    first, second = chosen_by(config, [fast, {"float32": 30, "bfloat16": 31}])
    assert first == second and first.name == "bfloat16"  # 40 to 36


@pytest.mark.parametrize(
    "changes, facts, is_taken",
    [({"run": {"seed": 8}}, {}, True), ({"data": {"folder": "/nvme"}}, {}, True),
     ({"run": {"target": "0.5"}}, {}, False), ({}, {"machine": "another"}, False),
     ({}, {"precision": "float16"}, False)])
def test_the_runs_of_a_campaign_have_the_precision_of_the_first(config, tmp_path, changes, facts, is_taken):
    """Rank 0 reads it; the other rank may not see the folder. Trials would find float32."""
    config, nowhere = (
        with_changes(config, run={"result_file": str(folder / "result_1.txt")})
        for folder in (tmp_path, tmp_path / "nowhere"))
    provenance.save(with_changes(config, **changes), 7, tmp_path / "result_0.txt")
    provenance.add(tmp_path / "result_0.txt", {"precision": "bfloat16"} | facts)
    trials = [{"float32": 3, "bfloat16": 12}] * 2
    assert chosen_by(config, trials)[0].name == "float32"  # no log yet
    (tmp_path / "result_0.txt").write_text("")
    first, second = chosen_by([config, nowhere], trials)
    assert first == second and (first.name == "bfloat16") == is_taken
    assert first.reason.endswith("as in earlier runs of this configuration") == is_taken


def test_one_processor_without_bfloat16_decides_for_all(config, monkeypatch):
    flags = iter([hardware.BFLOAT16, frozenset()])
    monkeypatch.setattr(precision, "cpu_flags", lambda: next(flags))
    first, second = chosen_by(config, [{}, {}])
    assert (
        first == second
        == ("float32", "PRECISION=auto is float32: not every rank's processor has instructions for bfloat16"))

"""The watchdog says who waits for whom, second by second; ranks hear each other, over real sockets.

The moments of a run are told apart here; a whole run is watched once, in tests/system/test_faults.py.
"""

import threading
import types

import numpy as np
import pytest

from rn50.errors import UserError
from rn50.run import watchdog
from rn50.run.watchdog import WAITING_FOR_DATA, Heartbeats, Limits, Watchdog

USUAL = Limits()


def hear(heartbeats, steps, doing="training epoch 1", silent=()):
    """All ranks but the ``silent`` ones speak."""
    for rank, count in enumerate(steps):
        if rank not in silent:
            activity = doing if isinstance(doing, str) else doing[rank]
            heartbeats.ranks[rank].record(f"host{rank}", count, activity)


def turns(heartbeats, number, steps, **said):
    """``number`` seconds in which nothing new happens; the first fault, and the second in which it was
    seen."""
    for turn in range(1, number + 1):
        hear(heartbeats, steps, **said)
        heartbeats.turn()
        fault = heartbeats.silent_ranks() or heartbeats.stalled_ranks()
        if fault:
            return turn, fault
    return None


@pytest.fixture
def heartbeats():
    """Four ranks that have trained for a while, with the clock running."""
    heartbeats = Heartbeats([0, 1, 2, 3], 4, USUAL)
    heartbeats.start_the_clock()
    for step in range(50):
        hear(heartbeats, [step] * 4)
        heartbeats.turn()
    return heartbeats


def test_a_run_that_goes_on_has_no_fault(heartbeats):
    for step in range(50, 500):
        hear(heartbeats, [step, step + 1, step, step + 2])
        heartbeats.turn()
        assert heartbeats.silent_ranks(0.4) is None and heartbeats.stalled_ranks(0.4) is None


def test_a_rank_that_is_silent(heartbeats):
    second, fault = turns(heartbeats, 60, [51, 50, 51, 51], silent=[1])
    assert second in (USUAL.silent - 1, USUAL.silent)
    assert fault.startswith(
        f"rank 1 (host1) not heard of for {USUAL.silent} s, and rank 0 (host0), rank 2 (host2), "
        "rank 3 (host3) waiting for it")


def test_a_rank_that_waits_for_data(heartbeats):
    doing = ["training epoch 1", "training epoch 1", WAITING_FOR_DATA, "training epoch 1"]
    second, fault = turns(heartbeats, 60, [51, 51, 50, 51], doing=doing)
    assert second in (USUAL.still, USUAL.still + 1)
    assert (
        "rank 2 (host2) waiting for data, and rank 0 (host0), rank 1 (host1), rank 3 (host3) waiting for it"
        in fault)
    assert "look at DATADIR" in fault


def test_a_rank_that_is_behind(heartbeats):
    _, fault = turns(heartbeats, 60, [52, 52, 52, 50])
    assert "rank 3 (host3) training epoch 1, after batch 50, and rank 0 (host0), rank 1" in fault


def test_ranks_that_all_stand_at_the_same_step(heartbeats):
    _, fault = turns(heartbeats, 60, [50] * 4)
    assert "after batch 50; look at the devices, and at the network" in fault


def test_where_steps_are_long_more_patience_is_shown():
    heartbeats = Heartbeats([0], 1, USUAL)
    assert turns(heartbeats, 100, [0], doing="warming up") is None  # compiling
    assert turns(heartbeats, 19, [1], doing="warming up") is None  # the last step of the warm-up takes 20 s
    hear(heartbeats, [2])
    heartbeats.turn()
    heartbeats.start_the_clock()
    second, fault = turns(heartbeats, 1000, [2])
    assert 90 <= second <= 110 and "rank 0 (host0) training epoch 1" in fault


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize(
    "doing, limit",
    [("warming up", USUAL.warming_up), (["timing the ranks", "warming up"], USUAL.warming_up),
     ("timing the ranks", USUAL.still_before_the_clock)])
def test_in_the_warm_up_compiling_may_take_its_time(steps, doing, limit):
    """Kernels are compiled in the first step and where shapes or precision change; later a step hangs."""
    heartbeats = Heartbeats([0, 1], 2, USUAL)
    second, _ = turns(heartbeats, 2000, [steps, steps], doing=doing)
    assert limit <= second <= limit + 2


def test_a_rank_that_was_never_heard_is_not_called_silent():
    heartbeats = Heartbeats([0, 1], 2, USUAL)
    for step in range(3 * USUAL.silent):
        hear(heartbeats, [step, 0], silent=[1])
        heartbeats.turn()
    assert heartbeats.silent_ranks() is None


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("clock_runs", [False, True], ids=["warming up", "training"])
def test_a_silent_rank_is_named_at_any_moment(victim, clock_runs):
    heartbeats = Heartbeats([0, 1], 2, USUAL)
    hear(heartbeats, [0, 0], doing="warming up")
    if clock_runs:
        heartbeats.start_the_clock()
    second, fault = turns(heartbeats, 60, [0, 0], silent=[victim])
    assert second == USUAL.silent
    assert fault.startswith(
        f"rank {victim} (host{victim}) not heard of for {USUAL.silent} s, and rank {1 - victim} (")


def test_the_limits_are_those_of_the_variable():
    assert watchdog.limits({}) == watchdog.limits({watchdog.VARIABLE: ""}) == (20, 30, 300, 1800)
    assert watchdog.limits({watchdog.VARIABLE: "20"}) == (20, 30, 300, 1800)
    short = watchdog.limits({watchdog.VARIABLE: "4"})
    assert short == (4, 6, 60, 360)
    heartbeats = Heartbeats([0, 1], 2, short)
    hear(heartbeats, [0, 0])
    heartbeats.start_the_clock()
    assert turns(heartbeats, 60, [0, 0], silent=[1])[0] == 4
    heartbeats = Heartbeats([0, 1], 2, short)
    assert turns(heartbeats, 100, [1, 1])[0] == 61
    heartbeats = Heartbeats([0, 1], 2, short)
    heartbeats.start_the_clock()
    assert turns(heartbeats, 60, [0, 0])[0] == 6


@pytest.mark.parametrize("asked", ["0", "-1", "2.5", "abc", "100000", " 4", "٤"])
def test_what_is_no_limit_is_a_line(asked):
    with pytest.raises(UserError) as refused:
        watchdog.limits({watchdog.VARIABLE: asked})
    assert str(refused.value) == (
        f"RN50_WATCHDOG_S={asked}: no whole number of seconds from 1 to 99,999; correct or unset it")


class Ranks:
    """Implementations whose ranks are threads: ``all_reduce`` waits for all of them."""

    def __init__(self, size):
        self._notes = [None] * size
        self._all_there = threading.Barrier(size)
        self.implementations = [
            types.SimpleNamespace(
                steps=0, waits_for_data=False,
                communicator=types.SimpleNamespace(
                    rank=rank, size=size, all_reduce=lambda note, rank=rank: self._sum(rank, note)))
            for rank in range(size)]

    def _sum(self, rank, note):
        self._notes[rank] = note
        self._all_there.wait()
        return np.sum(self._notes, axis=0)


@pytest.fixture
def watched(monkeypatch):
    """Three ranks under watch, with turns of 20 ms; and what each watch said."""
    monkeypatch.setattr(watchdog, "TURN_S", 0.02)
    ranks, said = Ranks(3), {"warned": [], "ended": {}, "over": threading.Event()}

    def end(rank, line):
        said["ended"].setdefault(rank, line)
        if len(said["ended"]) == 2:
            said["over"].set()

    watches = [
        Watchdog(implementation, said["warned"].append, lambda line, rank=rank: end(rank, line), USUAL)
        for rank, implementation in enumerate(ranks.implementations)]
    threads = [threading.Thread(target=each.__enter__) for each in watches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield ranks.implementations, watches, said
    for each in watches:
        each.__exit__()


def test_ranks_hear_each_other(watched):
    implementations, watches, said = watched
    hosts = watches[0].hosts()
    assert sorted(hosts) == [0, 1, 2] and "?" not in hosts.values()
    assert said["warned"] == [] and said["ended"] == {}


@pytest.mark.parametrize("victim", [0, 2])
def test_the_others_end_when_a_rank_falls_silent(watched, victim):
    _, watches, said = watched
    watches[victim].__exit__()
    assert said["over"].wait(10)
    assert set(said["ended"]) == {0, 1, 2} - {victim}
    lines = {line for line in said["ended"].values() if line}
    assert len(lines) == 1 and f"rank {victim} (" in lines.pop()
    assert any(f"rank {victim} (" in line for line in said["warned"]) == (victim != 0)

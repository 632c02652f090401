"""The order in which the runs of two configurations are made, and what is kept."""

import dataclasses

import pytest

from rn50.errors import UserError
from rn50.launch.campaign import state, turns
from tests.results.scored import write_run
from tests.support import campaigns


@pytest.fixture
def sides(tmp_path):
    return [turns.Side(tmp_path / f"config_{name}.sh", tmp_path / name) for name in "AB"]


def named(order):
    return " ".join(f"{side.folder.name}{number}" for number, side in order)


def kept(sides, made):
    """Logs of the runs ``made``, which began one after the other."""
    folders = {side.folder.name: side.folder for side in sides}
    for start, run in enumerate(made.split()):
        write_run(folders[run[0]] / f"result_{run[1]}.txt", 600, start=3600 * start)


@pytest.mark.parametrize("runs, made, left", [
    (3, "", "A0 B0 B1 A1 A2 B2"),
    (1, "", "A0 B0"),
    (3, "A0", "B0 B1 A1 A2 B2"),
    (3, "A0 B0 B1", "A1 A2 B2"),
    (2, "A0 B0 B1 A1", ""),
    (3, "A0 B0 B1 A1", "A2 B2"),
    (1, "A0 B0 B1 A1", ""),
])  # fmt: skip
def test_the_runs_that_are_missing_follow_in_turn(sides, runs, made, left):
    kept(sides, made)
    assert named(turns._missing(sides, runs)) == left


@pytest.mark.parametrize("made", [
    "A0 A1", "B0", "A0 A1 B0 B1", "B0 A0", "A0 B0 A1", "A0 B0 A1 B1", "A0 B0 B1 A2"])
def test_runs_that_were_not_made_in_turn_are_no_pairs(sides, made):
    kept(sides, made)
    with pytest.raises(UserError, match="A: its runs and those of .*B were not made in turn; give another"):
        turns._missing(sides, 3)


def test_the_time_that_is_left_counts_both(tmp_path):
    folders = [campaigns.make(tmp_path / name, "0" * 40, {}, runs=2) for name in "AB"]
    one, other = (state.read(folder, 3) for folder in folders)
    both = dataclasses.replace(one, others_s=other.left.of_campaign)
    assert both.left.of_campaign == one.left.of_campaign + other.left.of_campaign > one.left.of_campaign > 0
    assert dataclasses.replace(one, others_s=None).left.of_campaign is None

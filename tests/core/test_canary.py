"""Losses that are as they must be, and losses that are not."""

import re

import pytest

from rn50.errors import UserError
from rn50.run.loss_check import Canary
from tests.conftest import with_changes


@pytest.fixture
def canary(tiny_config):
    """On ImageNet's 1000 classes: ln(1000) is 6.91. What it said is in ``canary.said``."""
    said = []
    canary = Canary(with_changes(tiny_config, data={"classes": 1000}), said.append)
    canary.said = said
    return canary


def look(canary, losses, epoch=1):
    for loss in losses:
        canary.look(epoch, loss)
    return canary.said


def test_a_run_as_it_must_be_gives_no_warning(canary):
    assert look(canary, [6.95, 7.1, 7.0, 6.6, 6.1, 5.2]) == []
    assert look(canary, [4.0, 3.0, 2.1, 1.6], epoch=2) == []


@pytest.mark.parametrize("losses, says", [
    ([9.2], "first training loss is 9.20 where guessing one of 1000 classes gives 6.91"),
    ([2.3], "first training loss is 2.30 "),
    ([6.95, 7.2, 11.0], "loss is 11.00 in epoch 1 .*: LR=2 with WARMUP_EPOCHS=1 is too high"),
    ([6.95, 6.5, 3.4], "loss is down to 3.40 in epoch 1 .*labels all alike, or sorted"),
])
def test_what_is_odd_is_said_once(canary, losses, says):
    (line,) = look(canary, losses + losses[-1:])
    assert re.search(says, line)


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_what_is_no_number_ends_the_run(canary, loss):
    with pytest.raises(UserError, match=r"training loss is (nan|inf) in epoch 3: LR=2 .*lower LR"):
        canary.look(3, loss)

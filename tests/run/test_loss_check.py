"""The check of losses is silent on those that are as they must be, warns of odd ones, and ends a run whose
loss is not a number."""

import re

import pytest

from rn50.errors import UserError
from rn50.run.loss_check import LossCheck
from tests.conftest import with_changes


@pytest.fixture
def loss_check(tiny_config):
    """On ImageNet's 1000 classes: ln(1000) is 6.91. What it said is in ``loss_check.said``."""
    said = []
    loss_check = LossCheck(with_changes(tiny_config, data={"classes": 1000}), said.append)
    loss_check.said = said
    return loss_check


def look(loss_check, losses, epoch=1):
    for loss in losses:
        loss_check.check_loss(epoch, loss)
    return loss_check.said


def test_a_run_as_it_must_be_gives_no_warning(loss_check):
    assert look(loss_check, [6.95, 7.1, 7.0, 6.6, 6.1, 5.2]) == []
    assert look(loss_check, [4.0, 3.0, 2.1, 1.6], epoch=2) == []


@pytest.mark.parametrize(
    "losses, says",
    [([9.2], "first training loss is 9.20 where guessing one of 1000 classes gives 6.91"),
     ([2.3], "first training loss is 2.30 "),
     ([6.95, 7.2, 11.0], "loss is 11.00 in epoch 1 .*: LR=2 with WARMUP_EPOCHS=1 is too high"),
     ([6.95, 6.5, 3.4], "loss is down to 3.40 in epoch 1 .*labels all alike, or sorted")])
def test_what_is_odd_is_said_once(loss_check, losses, says):
    (line,) = look(loss_check, losses + losses[-1:])
    assert re.search(says, line)


def test_a_network_that_was_trained_before_begins_low_and_may_not_rise_above_guessing(tiny_config):
    said = []
    loss_check = LossCheck(tiny_config, said.append, pretrained=True)
    for loss in (0.6, 0.7, 2.4):
        loss_check.check_loss(1, loss)
    assert said == []
    loss_check.check_loss(1, 4.0)
    assert "is too high, or the labels are wrong" in said[0]


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_what_is_no_number_ends_the_run(loss_check, loss):
    with pytest.raises(UserError, match=r"training loss is (nan|inf) in epoch 3: LR=2 .*lower LR"):
        loss_check.check_loss(3, loss)


@pytest.mark.parametrize(
    "loss, top1, warned",
    [(5.2, 0.0011, True), (5.2, 0.0, True), (5.2, 0.01, False), (6.5, 0.001, False), (6.95, 0.0, False)])
def test_a_network_that_learns_only_what_is_not_validated_is_said_to(loss_check, loss, top1, warned):
    loss_check.check_top1(top1, 50_000, loss)
    says = rf"training learns, validation does not: loss 5.20 and top-1 {top1:.4f}, .* 6\.91 and 0\.0010; "
    assert [bool(re.match(says, line)) for line in loss_check.said] == [True] * warned


@pytest.mark.parametrize("images, warned", [(50_000, 1), (5_000_000, 0)])
def test_a_little_more_than_chance_is_chance_on_few_images(loss_check, images, warned):
    loss_check.check_top1(0.0013, images, 5.0)
    assert len(loss_check.said) == warned


def test_a_handful_of_images_excuses_nobody(loss_check):
    loss_check.check_top1(0.05, 20, 5.0)
    assert loss_check.said == []

"""Losses of input and training step to each other, from three rates; an H200's among them."""

import pytest

from rn50.speed import overlap

ROUNDS = 5
H200 = 21_303.0, 8_465.0
"""The input alone and a step alone, STEP_MODE=fused, batch 400, ImageNet-like images."""


def of(alone, step, together, device="gpu"):
    """Return the overlap of rates that every round finds."""
    rates = ([float(rate)] * ROUNDS for rate in (alone, step, together))
    return overlap.of_rounds(device, *rates)


@pytest.mark.parametrize(
    "alone, step, together, held, excluded",
    [
        (*H200, 6_400, True, True),  # measured: one after the other they take 66.0 ms a batch, together 62.5
        (32_291, 7_547, 5_880, True, True),  # compile, longer than one after the other
        (32_291, 6_250, 5_720, True, False),  # eager: they overlap, and slow each other
        (*H200, 8_200, False, False),  # 3 % lost
        (*H200, 8_465, False, False),
        (6_000, 8_465, 5_900, False, False),  # a slow input, and nothing lost to the step
        (6_000, 8_465, 3_600, True, True),
        (8_000, 8_000, 4_000, True, True),
        (100_000, 8_465, 7_800, True, True),  # one after the other: 7,804
    ],
)
def test_what_they_lose_follows_from_three_rates(alone, step, together, held, excluded):
    found = of(alone, step, together)
    assert (found.hold_each_other_up, found.exclude_each_other) == (held, excluded)
    assert found.lost == pytest.approx(1 - together / min(alone, step))
    assert bool(found.remedy) == held


def test_the_share_that_is_hidden_is_of_the_shorter_one():
    apart = 1 / (1 / 8_000 + 1 / 2_000)
    assert of(8_000, 2_000, apart).hidden == pytest.approx(0)
    assert of(8_000, 2_000, 2_000).hidden == pytest.approx(1)
    assert of(2_000, 8_000, 2_000).hidden == pytest.approx(1)


def test_a_loss_that_not_every_round_finds_is_none():
    found = overlap.of_rounds("gpu", [9000.0] * 5, [1000.0] * 5, [800.0, 810.0, 790.0, 800.0, 1001.0])
    assert found.lost == pytest.approx(0.2) and not found.hold_each_other_up and found.remedy == ""
    assert found.sentence == (
        "the input can deliver 9,000 images/s, the step takes 1,000, together 800: no less than the slower "
        "one, as far as these rounds show")
    few = overlap.of_rounds("gpu", [9000.0] * 4, [1000.0] * 4, [500.0] * 4)
    assert not few.hold_each_other_up


def test_it_is_told_in_one_sentence_with_what_a_user_can_do():
    told = of(*H200, 6_400).sentence
    assert told.startswith(
        "the input can deliver 21,303 images/s, the step takes 8,465, together 6,400: 24.4% less than the "
        "slower one; they wait for each other: ")
    for name in ("CUDA_DEVICE_MAX_CONNECTIONS=32", "rn50 tune input", "DALI_THREADS", "DALI_HW_DECODER_LOAD"):
        assert name in told
    assert "; they slow each other: " in of(32_291, 6_250, 5_720).sentence
    assert of(*H200, 8_200).sentence.endswith("together 8,200: 3.1% less than the slower one")


def test_on_a_cpu_the_cores_are_shared():
    told = of(2_000, 1_000, 600, "cpu").sentence
    assert "CUDA" not in told and "the cores are shared, so that is to be expected" in told
    assert "DALI_THREADS and OMP_NUM_THREADS divide them" in told

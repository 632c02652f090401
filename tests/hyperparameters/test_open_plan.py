"""``rn50 plan`` of the open recipe: what is known of published runs, rates between and beyond the measured
sizes, what it refuses."""

import json

import pytest
from click.testing import CliRunner

from rn50.cli import main
from rn50.hyperparameters.plan import images_per_second, open_recipe
from rn50.settings import named
from tests.support import documented

H200 = "224:9424,160:16873,128:24260"
# Images/s of each of 8 accelerators in epochs 1 to 27: 1,281,167 images over the mean time of five runs from
# epoch_start to epoch_stop, in the published logs of v2.0/MosaicML/8xA100_80GB-methods and
# v3.1/Ailiverse/8xA100_40GB_open, whose mean minutes are 23.89 and 29.03.
MOSAICML = [
    1002, 4038, 4012, 3976, 4036, 4037, 4031, 4014, 4022, 4030, 4024, 4016, 3949, 3972, 3918, 3777, 3658,
    3434, 3334, 3101, 2933, 2684, 2559, 2511, 2515, 2514, 2520]
AILIVERSE = [
    2259, 2609, 2644, 2662, 2646, 2639, 2651, 2642, 2656, 2657, 2650, 2651, 2659, 2645, 2659, 2645, 2647,
    2647, 2632, 2610, 2516, 2405, 2299, 2276, 2278, 2283, 2274]
RAMP = [96, 104, 116, 124, 132, 140, 148, 156, 164, 172, 176]
"""Sides of epochs 13 to 23 in these runs; 88 before, and 176 to the end."""


@pytest.fixture(scope="module")
def eight():
    return named.read("DGXH100_OPEN", environ={})


def plan(*arguments):
    return CliRunner(mix_stderr=False).invoke(
        main, ["plan", *arguments], env={"DGXSYSTEM": "", "CONFIG_FILE": ""})


@pytest.mark.parametrize("rates, minutes", [(MOSAICML, 23.8), (AILIVERSE, 29.1)])
def test_the_rates_of_each_epoch_give_the_published_minutes(eight, rates, minutes):
    sides = range(150, 177)  # one for each epoch, so that each has a rate of its own; the last is 176
    sizes = ",".join(f"{side}:{epoch}" for epoch, side in enumerate(sides, 1))
    of_size = {str(side): rate for side, rate in zip(sides, rates, strict=True)}
    predicted = open_recipe.plan(eight.replaced(IMAGE_SIZES=sizes), of_size, None)
    assert (predicted.accelerators, predicted.evaluations) == (8, 9)
    assert predicted.minutes == pytest.approx(minutes, rel=0.03)


def test_rates_of_a_few_sizes_give_all_but_the_slow_first_epoch(eight):
    ramp = ",".join(f"{side}:{epoch}" for epoch, side in enumerate(RAMP, 13))
    config = eight.replaced(IMAGE_SIZES=f"88:1,{ramp}")
    predicted = open_recipe.plan(config, {"88": 4020, "124": 3777, "148": 3101, "176": 2515}, 8)
    assert predicted.epochs == {"88": 12, **dict.fromkeys(map(str, RAMP[:-1]), 1), "176": 5}
    assert predicted.minutes + 2.0 == pytest.approx(23.8, rel=0.03)
    assert any("IMAGE_SIZES differ from DGXH100_OPEN" in each for each in predicted.cautions)
    assert any("the rate of 224 pixels" in each for each in predicted.cautions)


@pytest.mark.parametrize(
    "size, seconds",
    [(128, 1 / 24260), (160, 1 / 16873), (224, 1 / 9424), (64, 1 / 24260), (448, 4 / 9424),
     (144, (1 / 24260 * (160**2 - 144**2) + 1 / 16873 * (144**2 - 128**2)) / (160**2 - 128**2))])
def test_the_time_of_an_image_is_linear_in_its_pixels(size, seconds):
    rates = {"224": 9424.0, "160": 16873.0, "128": 24260.0}
    assert images_per_second.at_size(size, rates) == pytest.approx(1 / seconds)
    assert images_per_second.at_size(size, {**rates, "input": 15_000.0}) == pytest.approx(
        min(1 / seconds, 15_000))


def test_the_plan_of_a_configuration():
    done = plan("H200_OPEN", "--images-per-second", f"{H200},input:22720", "--json")
    told = json.loads(done.stdout)
    assert documented.differences("plan --open", told) == []
    assert told["epochs"] == {"96": 14, "128": 4, "160": 3, "176": 6}
    rates = told["images_per_second_per_accelerator"]
    assert (rates["96"], rates["128"], rates["160"], rates["224"]) == (22720, 22720, 16873, 9424)
    seconds = 1281167 * sum(count / rates[size] for size, count in told["epochs"].items())
    seconds += 9 * 50_000 / (images_per_second.EVALUATION_SPEED * 9424)
    assert told["minutes"] == pytest.approx(seconds / 60, abs=0.1)
    assert [len(told["published"][name]) for name in told["published"]] == [5, 5]
    text = plan("H200_OPEN", "--accelerator", "H200", "--images-per-second", f"{H200},input:22720").stdout
    assert f"1 x H200: {told['minutes']:.3g} minutes for 27 epochs and 9 evaluations" in text
    assert "of 10 published open runs of as many epochs 10 reached 75.9 %" in text


def test_the_open_recipe_needs_no_configuration_and_scales_with_the_accelerators():
    one, eight = (
        json.loads(plan("--open", "--accelerators", n, "--images-per-second", H200, "--json").stdout)
        for n in ("1", "8"))
    assert one["system"] == "DGXH100_OPEN" and eight["accelerators"] == 8
    start_up = images_per_second.START_UP_SECONDS / 60
    assert one["minutes"] - start_up == pytest.approx(8 * (eight["minutes"] - start_up), rel=1e-3)


def test_epochs_that_nobody_published_are_no_proof(eight):
    config = eight.replaced(NUMEPOCHS=18, IMAGE_SIZES="176:1")
    predicted = open_recipe.plan(config, {"224": 9424.0}, 1)
    assert (sum(predicted.epochs.values()), predicted.published) == (18, {})
    assert predicted.cautions[0].startswith("NUMEPOCHS, IMAGE_SIZES differ from DGXH100_OPEN")


@pytest.mark.parametrize(
    "arguments, part",
    [(["H200_OPEN"], "--images-per-second: give SIZE:RATE"),
     (["H200_OPEN", "--images-per-second", "9424"], "give SIZE:RATE"),
     (["H200_OPEN", "--images-per-second", "input:9424"], "give SIZE:RATE"),
     (["H200_OPEN", "--images-per-second", "224:"], "is not a number"),
     (["H200_OPEN", "--images-per-second", "0:5"], "0 is not in the range 1 to 8,192"),
     (["H200_OPEN", "--images-per-second", "224:9,wide:5"], "wide is not a number"),
     (["H200_OPEN", "--images-per-second", "224:-1"], "0.001 to"),
     (["--open", "--curve", "--images-per-second", H200], "--curve"),
     (["--open", "--global-batch-size", "8", "--images-per-second", H200], "--global-batch-size"),
     (["H200", "--images-per-second", H200], "H200: not the open recipe on ImageNet"),
     (["DGXH100"], "rn50 plan --accelerators 8 --global-batch-size 3200 --accelerator NAME"),
     (["DEMO_CPU", "--images-per-second", H200], "not the open recipe on ImageNet"),
     (["--accelerators", "8", "--global-batch-size", "3200", "--images-per-second", H200],
      "sizes are of the open recipe; give --open")])
def test_what_is_refused(arguments, part):
    done = plan(*arguments)
    assert done.exit_code == 2 and part in done.stderr and done.stdout == ""


@pytest.mark.parametrize(
    "arguments, of_all",
    [(["--accelerators", "8", "--global-batch-size", "3200", "--images-per-second", "56071"], True),
     (["--accelerators", "8", "--global-batch-size", "3200", "--images-per-second", "9071"], False),
     (["--open", "--images-per-second", "224:56071"], True),
     (["--open", "--images-per-second", H200], False)])
def test_a_rate_that_no_accelerator_has_may_be_that_of_all(arguments, of_all):
    says = "caution: 56,071 images/s are 7.2 times those of the fastest published accelerator: is it the"
    assert (f"{says} rate of all ranks together?" in plan(*arguments).stdout) is of_all

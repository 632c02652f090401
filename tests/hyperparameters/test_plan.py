"""``rn50 plan``: what it predicts of systems that it was not told of, what it borrows, and what it
refuses."""

import dataclasses
import json
import math
import statistics
import xml.etree.ElementTree as ElementTree

import pytest
from click.testing import CliRunner
from PIL import Image

from rn50 import files
from rn50.benchmark import rules
from rn50.cli import main
from rn50.errors import UserError
from rn50.hyperparameters import expected_epochs, reference
from rn50.hyperparameters.plan import display, epochs, images_per_second
from rn50.hyperparameters.plan.epochs import EpochModel
from rn50.hyperparameters.plan.images_per_second import Conditions, ThroughputModel
from rn50.hyperparameters.plan.planner import SCALES, SystemPlanner, planner_for
from rn50.results import chips, published, score, timing
from tests.hyperparameters.borrowing import recipe_of
from tests.support.published import LOGS, needs_published

NAME = "A100-SXM-80GB"


@pytest.fixture(scope="module")
def planner():
    return SystemPlanner()


def plan(*arguments):
    return CliRunner(mix_stderr=False).invoke(
        main, ["plan", *arguments], env={"DGXSYSTEM": "", "CONFIG_FILE": ""})


def as_json(*arguments):
    done = plan(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def result(**changes):
    [base] = [each for each in published.results() if (each.round, each.system) == ("v1.0", "nf5688m6_mxnet")]
    return dataclasses.replace(base, **changes)


def test_the_promised_keys_and_a_prediction_near_the_published_one():
    said = as_json("--accelerators", "8", "--global-batch-size", "3200", "--accelerator", "h100 sxm5 80")
    assert {"epochs", "minutes", "minutes_low", "minutes_high", "hyperparameters"} <= said.keys()
    assert (said["accelerator"], said["epochs"]) == ("H100-SXM-80GB", 35)
    assert said["minutes_low"] < said["minutes"] < said["minutes_high"]
    alike = [
        each.olympic_minutes for each in published.distinct("lars")
        if (each.accelerators, each.recipe.global_batch_size) == (8, 3200)
        and "H100-SXM" in each.accelerator_model]
    assert len(alike) > 10 and said["minutes"] == pytest.approx(statistics.median(alike), rel=0.03)
    borrowed = said["hyperparameters"]
    assert (borrowed["global_batch_size"], borrowed["base_learning_rate"], borrowed["decay_epochs"]) == (
        3200, 11, 37)
    source = tuple(borrowed["source"][name] for name in ("round", "organisation", "system"))
    assert source in {(each.round, each.organisation, each.system) for each in published.results()}


def test_a_system_that_was_left_out_is_predicted_from_the_others():
    held = [
        each for each in published.results() if each.system.lower().startswith(("nf5688m6", "dgxa100_n8_"))]
    assert len(held) >= 6
    systems = {images_per_second.system(each) for each in held}
    planner = SystemPlanner(
        [each for each in published.distinct("lars") if images_per_second.system(each) not in systems])
    for each in held:
        name, size = chips.name(each.accelerator_model), each.recipe.global_batch_size
        said = planner.predict(name, each.accelerators, size)
        assert said.epochs == pytest.approx(epochs.mean_epochs(each), abs=1.5), each.system
        assert said.minutes == pytest.approx(each.olympic_minutes, rel=0.08), each.system


def test_a_known_recipe_counts_for_more_than_what_is_usual(planner):
    [slow] = [each for each in published.distinct("lars") if each.recipe.global_batch_size == 1000]
    assert epochs.mean_epochs(slow) == 55
    usual = planner.predict("A100-PCIe-80GB", 1, 1000)
    assert usual.epochs == pytest.approx(35, abs=1)
    assert planner.predict("A100-PCIe-80GB", 1, 1000, slow).epochs == 55
    # Nobody is to borrow that path, though no recipe is nearer.
    assert planner.recipe(1000, 1).epochs < 36


def test_open_division_results_predict_nothing():
    model = EpochModel(published.results())
    at_32k = [
        each for each in published.results()
        if (each.recipe.global_batch_size, each.recipe.optimizer) == (32768, "lars")]
    assert min(map(epochs.mean_epochs, at_32k)) == 24
    assert model.predict(32768).low > 50
    closed = [each for each in published.results() if each.is_closed and each.recipe.optimizer == "lars"]
    opened = [each for each in at_32k if not each.is_closed]
    assert opened and EpochModel(closed).predict(32768) == EpochModel([*closed, *opened]).predict(32768)


def test_without_results_nearby_the_reference_speaks():
    model = EpochModel([result()])
    assert model.predict(49152).expected == 68
    assert (model.predict(49152).low, model.predict(49152).high) == (64, 72)  # an evaluation before and after
    assert model.predict(3264).expected == pytest.approx(35)
    assert EpochModel([result(epochs=(47.0,) * 5)] * 9).predict(3264).expected == pytest.approx(47)


def test_the_reference_is_the_one_that_the_official_checker_prunes():
    from mlperf_logging.rcp_checker.rcp_checker import RCP_Checker

    checker = RCP_Checker("training", rules.RULESETS[-1], "resnet", False)
    checker._prune_rcps()
    official = {
        each["BS"]: statistics.mean(each["Epochs to converge"]) for each in checker.pruned_rcp_data.values()}
    assert 4096 not in official and {each.batch_size: each.mean for each in reference.points()} == official


def test_plan_and_borrow_have_one_reference_and_one_order_of_recipes(planner):
    assert reference.interpolated(4096).mean == pytest.approx(
        35.79, abs=0.005
    )  # and not the 40 of the point that the checker prunes
    assert expected_epochs.of_recipe(recipe_of(4096), ()).mean == reference.interpolated(4096).mean
    for size in (256, 1632, 2448, 3264, 4096, 16384, 49152, 67456):
        suggested = next(
            each for each in expected_epochs.candidates(size, "lars") if not each.name.startswith("rcp/"))
        chosen = planner.recipe(size, 8)
        assert chosen.source.recipe.shared == suggested.values
        assert (chosen.runs, chosen.missed) == (suggested.prediction.runs, suggested.prediction.missed)


def test_of_recipes_whose_epochs_are_printed_alike_the_one_of_most_runs_comes_first(planner):
    first, second = expected_epochs.candidates(3264, "lars")[:2]
    assert (
        f"{first.expected(3264):.1f}" == f"{second.expected(3264):.1f}"
        and first.prediction.runs > 300 > second.prediction.runs)
    assert planner.recipe(3264, 8).runs == first.prediction.runs


@pytest.mark.parametrize(
    "name, number, fitting, size",
    [(NAME, 8, 0, 3264),
     ("H100-SXM-80GB", 8, 0, 3264),  # 4,080 is 1.4 % faster, by a recipe of five runs
     ("H100-SXM-80GB", 8, 1216, 3264),  # as rn50 config new asks
     ("H200-SXM-141GB", 1, 2176, 408)])  # of 816 and more on one accelerator few are published
def test_of_batch_sizes_about_as_fast_a_usual_one_of_most_runs_wins(planner, name, number, fitting, size):
    best = planner.best(name, number, fitting)
    plans = planner.candidates(name, number, fitting)
    usual = [each for each in plans if each.global_batch_size <= 408 * number]
    fewest = min(each.prediction.minutes_high for each in usual)
    alike = [each for each in usual if each.prediction.minutes_high <= 1.03 * fewest]
    assert best.global_batch_size == size and best in alike
    assert best.evidence == max(each.evidence for each in alike) > 0


@pytest.mark.parametrize("name, number, size", [("H200-SXM-141GB", 1, 408), ("RTX-4090", 1, 320)])
def test_the_memory_of_the_data_sheet_counts_where_others_published_less(planner, name, number, size):
    assert planner.best(name, number).global_batch_size == size


def test_fewer_epochs_than_anybody_needed_are_not_predicted(planner):
    fewest = min(map(epochs.mean_epochs, planner.results))
    for size in range(400, 67456, 500):
        assert planner.plan(NAME, 8, size).prediction.epochs_low >= fewest


def test_time_adds_up():
    # 8 accelerators of 1,000 images/s: 35 epochs, 9 evaluations, start-up.
    seconds = (
        35 * rules.TRAIN_SAMPLES / 8000 + 9 * rules.EVAL_SAMPLES / 8000 / images_per_second.EVALUATION_SPEED)
    said = images_per_second.minutes(35, images_per_second.evaluations(35, 3, 4), 8, 1000)
    assert said * 60 == pytest.approx(seconds + images_per_second.START_UP_SECONDS)
    # And what a published result took comes out again.
    for each in published.distinct("lars"):
        rate = images_per_second.training_rate(each)
        if rate and set(each.epochs) == {35.0} and each.first_evaluation_epoch == 3:
            assert rate >= each.images_per_second_per_accelerator
            count = images_per_second.evaluations(35, 3, 4)
            assert images_per_second.minutes(35, count, each.accelerators, rate) == pytest.approx(
                each.olympic_minutes, rel=2e-3)


@needs_published
def test_evaluation_and_start_up_are_what_published_logs_say():
    speeds, start_ups = [], []
    for system in score.score([LOGS]):
        if not system.images_per_second_per_accelerator:
            continue
        logs = [log for log in (run.log for run in system.runs) if timing.run_times(log)]
        times = [
            (timing.run_times(log), statistics.median(r for _, r in timing.throughput(log).epochs), log)
            for log in logs if timing.throughput(log).epochs and timing.run_times(log).evaluation]
        if times:
            counts = [len(timing.accuracies(log)) for _, _, log in times]
            speeds.append(
                statistics.median(
                    c * rules.EVAL_SAMPLES / t.evaluation / r
                    for c, (t, r, _) in zip(counts, times, strict=False)))
            start_ups.append(
                statistics.median(t.first_epoch - rules.TRAIN_SAMPLES / r + t.gaps for t, r, _ in times))
    assert len(speeds) == 6
    assert statistics.median(speeds) == pytest.approx(images_per_second.EVALUATION_SPEED, rel=0.1)
    assert statistics.median(start_ups) == pytest.approx(images_per_second.START_UP_SECONDS, rel=0.1)


def test_accelerators_scale_as_others_do_where_they_were_not_published(planner):
    near, far = (planner.throughput.predict(Conditions("L40", n, 300)) for n in (8, 1024))
    assert far.images_per_second < near.images_per_second
    assert far.spread > 2 * near.spread


def test_an_outlier_has_little_say():
    usual = [each for each in published.distinct("lars") if chips.name(each.accelerator_model) == NAME]
    at = Conditions(NAME, 8, 408)
    before = ThroughputModel(usual).predict(at).images_per_second
    broken = result(images_per_second_per_accelerator=1000, olympic_minutes=93.4)
    after = ThroughputModel([*usual, *[broken] * 5]).predict(at).images_per_second
    assert abs(math.log(after / before)) < 0.02


def test_what_was_measured_is_believed_and_scaled():
    planner, name = planner_for(None, 5000, 8, 3200)
    here = planner.plan(name, 8, 3200).prediction
    assert here.images_per_second_per_accelerator == pytest.approx(5000, rel=0.01)
    there = planner.plan(name, 512, 16384).prediction
    assert there.images_per_second_per_accelerator < here.images_per_second_per_accelerator
    assert there.spread > here.spread
    # Of a known accelerator as well, whose published ones are twice as fast.
    planner, name = planner_for("A100-SXM4-80GB", 1700, 8, 3264)
    again = planner.plan(name, 8, 3264).prediction
    assert again.images_per_second_per_accelerator == pytest.approx(1700, rel=0.01)


def test_the_curve_has_every_scale_and_batches_that_fit(planner):
    plans = planner.curve(NAME)
    assert [each.accelerators for each in plans] == list(SCALES) == [2**n for n in range(13)]
    assert all(each.global_batch_size % each.accelerators == 0 for each in plans)
    minutes = [each.prediction.minutes for each in plans]
    assert minutes == sorted(minutes, reverse=True)
    for each in plans:
        assert (
            each.prediction.minutes_high
            <= 1.03 * planner.plan(NAME, each.accelerators, 15 * each.accelerators).prediction.minutes_high)
        assert 15 <= each.global_batch_size / each.accelerators <= 512  # as were published with it
    said = as_json("--curve")
    assert [each["minutes"] for each in said["curve"]] == [round(value, 4) for value in minutes]


@pytest.mark.slow
def test_a_plot_is_what_its_name_says(planner, tmp_path):
    plans = planner.curve(NAME)[:3]
    svg, png, pdf = (tmp_path / f"curve.{form}" for form in ("svg", "png", "PDF"))
    for file in (svg, png, svg, png, pdf):
        display.draw_curve(plans, planner.results, file)
    assert ElementTree.parse(svg).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    with Image.open(png) as image:
        assert image.format == "PNG" and image.width > 1000 and image.info["Software"] == files.MARK
    assert pdf.read_bytes().startswith(b"%PDF-")
    with pytest.raises(UserError, match=r"curve.PDF: exists; give --plot another file, or move it away"):
        display.draw_curve(plans, planner.results, pdf)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["curve.PDF", "curve.png", "curve.svg"]


def test_what_a_person_reads():
    said = plan("--accelerators", "8", "--global-batch-size", "3264").stdout
    assert (
        "8 x A100-SXM-80GB at global batch 3,264: 28.4 minutes to 75.9 %" in said
        and "base_learning_rate 10.5" in said)
    assert said.splitlines()[-1] == "rn50 borrow v0.7/Inspur/nf5488_mxnet CONFIG -o config_MINE.sh"
    other = as_json("--accelerators", "8", "--global-batch-size", "2000")
    name = other["hyperparameters"]["source"]["name"]
    assert other["command"] == f"rn50 borrow {name} CONFIG --global-batch-size 2000 -o config_MINE.sh"
    assert "rn50 bench throughput CONFIG --seconds 30" in said
    measured = ("--accelerators", "8", "--global-batch-size", "3264", "--images-per-second", "2900")
    assert "--seconds 30" not in plan(*measured).stdout
    table = plan("--accelerator", "H200").stdout
    assert "the speed of H200-SXM-141GB is from one published system" in table
    assert table.count("│") > 90 and "…" not in table and "beyond 8 together" in table
    far = plan("--accelerators", "10", "--global-batch-size", "3264", "--accelerator", "L4").stdout
    assert "3264 is not a whole number of images for each of 10 accelerators; 3260 and 3270 are" in far
    assert "L4 was not seen with more than 110 images each" in far


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--accelerator", "H100"], "several are called so: H100-SXM-80GB, H100-PCIe-80GB, H100-SXM-96GB"),
     (["--accelerator", "A100"],
      "several are called so: A100-SXM-80GB, A100-PCIe-80GB, A100-SXM-40GB, A100-PCIe-40GB"),
     (["--accelerator", "A100-SXM"], "several are called so: A100-SXM-80GB, A100-SXM-40GB; say which"),
     (["--accelerator", "A100", "--accelerators", "8", "--global-batch-size", "3264",
       "--images-per-second", "2500"],
      "several are called so: A100-SXM-80GB, A100-PCIe-80GB, A100-SXM-40GB, A100-PCIe-40GB; say which"),
     (["--accelerator", "B200"],
      "nobody published a result with it; did you mean H200-SXM-141GB? known are A100"),
     (["--accelerator", "-"], "nobody published a result with it"),
     (["--global-batch-size", "3200"], "without --accelerators"),
     (["--images-per-second", "3000"], "give --accelerators and --global-batch-size too"),
     (["--accelerators", "8", "--global-batch-size", "4"], "not an image for each of 8"),
     (["--accelerators", "8", "--global-batch-size", "4", "--images-per-second", "3000"],
      "not an image for each of 8"),
     (["--accelerators", "8", "--global-batch-size", "100000"],
      "reached the target is 67456; choose one up to that"),
     (["--accelerators", "100000"], "more than images in the largest published batch"),
     (["--plot", "/proc/absent/plot.svg"],
      "cannot be written (No such file or directory); give --plot another file"),
     (["--plot", "/dev/null"],
      "--plot /dev/null: the name does not end in .png, .svg, .pdf; give --plot such a file"),
     (["--plot", "curve.jpg"], "the name does not end in .png, .svg, .pdf")])
def test_refusals_are_a_line(arguments, message):
    done = plan(*arguments)
    assert done.exit_code == 2 and done.stdout == ""
    assert message in done.stderr and len(done.stderr.splitlines()) == 1


NO_NUMBERS = ["nan", "-inf", "Infinity", "1_0", "\uff18", "1e999", "0x10", "", "8 8", "1e300", "-8"]


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize("option", ["--images-per-second", "--accelerators", "--global-batch-size"])
def test_what_is_no_number_is_refused(option, value):
    others = {
        "--images-per-second": "3000", "--accelerators": "8", "--global-batch-size": "3264", option: value}
    done = plan(*(word for pair in others.items() for word in pair), "--json")
    assert done.exit_code == 2 and done.stdout == "" and f"Invalid value for '{option}'" in done.stderr


@pytest.mark.parametrize("fitting", [96, 224, 1000])
@pytest.mark.parametrize("name", [NAME, "A30", "one that nobody published"])
def test_what_does_not_fit_is_not_planned(planner, name, fitting):
    for number in (1, 8):
        plans = planner.candidates(name, number, fitting)
        sizes = [each.global_batch_size for each in plans]
        assert max(sizes) <= number * fitting
        assert not any("may not have the memory" in caution for each in plans for caution in each.cautions)
        rounded = {round((each.recipe.global_batch_size or 0) / number) * number for each in planner.results}
        assert set(sizes) <= rounded or sizes == [number * fitting]


def test_whose_rate_is_planned_with_is_said_and_a_given_one_comes_back():
    ours = plan(
        "--accelerators", "8", "--gbs", "3264", "--accelerator", "H200", "--images-per-second", "6400")
    assert " at 6,400 images/s per accelerator (give" in ours.stdout
    others = plan("--accelerators", "8", "--accelerator", "H100-SXM-80GB").stdout
    assert "this is others' code; to narrow" in others and "others' code" not in ours.stdout

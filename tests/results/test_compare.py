"""Comparison: the figures against textbook values, and sentences that claim no more than the runs show."""

import io
import itertools
import json
import math
import pathlib
import re
import shutil
import statistics

import pytest

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.printed import as_json
from rn50.results import compare, parse, published, score, significance
from rn50.results.validity.result_rules import NOT_VALID
from rn50.terminal import Terminal
from tests.results import scored
from tests.support.published import LOGS, needs_published


def write_result(folder, speeds=(10_000, 9_000, 11_000, 12_000, 10_500), **options):
    """Runs of so many seconds each, which are a valid result."""
    scored.write_runs(folder, *speeds, **options)
    return folder


def against(quantity, a, b):
    return compare.difference(quantity, a, b, "B")


def test_interval_and_p_value():
    """p by counting all 252 divisions; the interval with t from a table: 2.306 at the 8 degrees of freedom of
    like variances."""
    a, b = [27.1, 27.4, 27.2, 27.9, 27.3], [26.8, 27.0, 26.5, 27.25, 26.9]
    found = against("minutes", a, b)
    assert found.difference == pytest.approx(-0.49)
    both, observed = a + b, abs(found.difference)
    extreme = sum(
        abs(sum(both[i] for i in chosen) / 5 - (sum(both) - sum(both[i] for i in chosen)) / 5)
        >= observed - 1e-12 for chosen in itertools.combinations(range(10), 5))
    assert found.p == pytest.approx(extreme / 252)
    assert found.shown and "show that B is faster, by 0.49 (1.8%)" in found.sentence
    like = against("minutes", a, [value + 1 for value in a])
    margin = 2.306 * (2 * statistics.variance(a) / 5) ** 0.5
    assert (like.low, like.high) == (pytest.approx(1 - margin, abs=1e-3), pytest.approx(1 + margin, abs=1e-3))


def test_noise_is_not_called_a_difference():
    found = against("minutes", [10.0, 11.0, 12.0, 13.0, 14.0], [10.5, 11.2, 12.6, 12.9, 14.1])
    assert (
        not found.shown and "do not show a difference" in found.sentence
        and "could show one of about" in found.sentence)
    assert found.low < 0 < found.high


def test_no_spread_at_all():
    same = against("epochs", [35] * 5, [35] * 5)
    assert (
        not same.shown and same.low is None
        and same.sentence.startswith("no difference: every run of both has 35 epochs"))
    other = against("epochs", [35] * 5, [39] * 5)
    assert (
        other.shown and other.p == pytest.approx(2 / 252)
        and "B needs more epochs, by 4 (11.4%)" in other.sentence)


def test_too_few_runs_never_show_anything():
    for few in ([1.0], [1.0, 1.1, 1.2]):
        found = against("minutes", few, [9.0 + value for value in few])
        assert not found.shown and "cannot show a difference, whatever it is" in found.sentence


def test_p_values_of_tests_made_at_once():
    """The worked example of Benjamini and Hochberg (1995): of 15 p-values four stay below 5 %, though nine
    are below alone."""
    p = [
        0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719,
        0.6528, 0.7590, 1.0]
    by_hand = [min(p[k] * 15 / (k + 1) for k in range(i, 15)) for i in range(15)]
    found = significance.adjusted(p)
    assert found == pytest.approx(by_hand)
    assert [value < 0.05 for value in found] == [True] * 4 + [False] * 11
    shuffled = [7, 0, 14, 3, 9, 1, 12, 5, 2, 10, 4, 13, 6, 8, 11]
    assert significance.adjusted([p[i] for i in shuffled]) == pytest.approx([by_hand[i] for i in shuffled])
    assert significance.confidence_at_once(found) == pytest.approx(1 - 0.05 * 4 / 15)
    assert significance.adjusted([]) == [] and significance.adjusted([0.02]) == [0.02]
    assert (
        significance.confidence_at_once([0.02]) == significance.confidence_at_once([0.7])
        == pytest.approx(0.95))


def test_one_small_p_value_among_many_tests_shows_nothing(tmp_path):
    """Alone it would: of three results only the last is faster, and not by much."""
    speeds = (10_000, 9_000, 11_000, 12_000, 10_500)
    folders = [write_result(tmp_path / name, speeds, platform=name) for name in ("first", "same", "faster")]
    scored.write_runs(folders[1], 10_010, 9_010, 11_010, 12_010, 10_510, platform="same")  # other seeds
    scored.write_runs(folders[2], 8_500, 8_800, 9_000, 9_100, 9_300, platform="faster")
    systems = score.score(folders)
    _, found = compare.compare(systems)
    minutes = found.differences[1]
    assert found.tests == 6 and minutes.p < 0.05 < minutes.p_adjusted and not minutes.shown
    [alone] = compare.compare([systems[0], systems[2]])
    assert (
        alone.tests == 3 and minutes.p == alone.differences[1].p
        and alone.differences[1].p_adjusted < minutes.p_adjusted)
    assert against("minutes", *([run.minutes for run in systems[i].runs] for i in (0, 2))).shown


def test_intervals_widen_with_the_tests_made_at_once(tmp_path):
    folders = [write_result(tmp_path / "first", platform="first")]
    for name, speeds in (
        ("second", (20_000, 18_000, 22_000, 24_000)), ("third", (30_000, 27_000, 33_000, 36_000)),
    ):
        folders.append(write_result(tmp_path / name, speeds, platform=name))
    comparisons = compare.compare(score.score(folders))
    assert [[d.shown for d in each.differences] for each in comparisons] == [[False, True, True]] * 2
    assert comparisons[0].confidence == pytest.approx(1 - 0.05 * 4 / 6)
    minutes = comparisons[0].differences[1]
    samples = ([run.minutes for run in system.runs] for system in score.score(folders[:2]))
    one = against("minutes", *samples)
    assert minutes.low < one.low and one.high < minutes.high and "96.7% interval" in minutes.sentence
    said = compare.correction(comparisons)
    assert said == "p-values and intervals are corrected for 6 tests"
    stream = io.StringIO()
    compare.print_table(comparisons, Terminal(file=stream))
    assert stream.getvalue().count(said) == 1
    assert as_json(comparisons)[1]["tests"] == 6


@pytest.mark.parametrize(
    "seconds, epochs",
    [((100, 101, 102, 103, 104), 31), ((80, 81, 82, 83, 84), 35), ((80, 81, 82, 83, 84), 39)])
def test_a_split_has_no_rest(tmp_path, seconds, epochs):
    """Fewer epochs of a longer time, and the other way round, pull against each other."""
    scored.write_runs(tmp_path / "one", 100, 101, 102, 103, 104)
    scored.write_runs(tmp_path / "two", *seconds, epochs=epochs)
    [found] = compare.compare(score.score([tmp_path / "one", tmp_path / "two"]))
    split = found.split
    assert split.epochs == (35, epochs)
    assert split.by_epochs + split.by_speed == pytest.approx((seconds[2] - 102) / 60)
    ratio = math.log(epochs / 35), math.log(seconds[2] / epochs * 35 / 102)
    assert split.by_epochs * ratio[1] == pytest.approx(split.by_speed * ratio[0])
    assert (split.by_epochs > 0) == (epochs > 35)


def test_two_results(tmp_path):
    first = write_result(tmp_path / "first", platform="one")
    second = write_result(tmp_path / "second", speeds=(5_000, 5_100, 5_200, 5_050, 5_150), platform="two")
    for folder, threads in ((first, 1), (second, 2)):
        for number in range(5):
            facts = {
                "seed": parse.read_log(folder / f"result_{number}.txt").seed,
                "config": {"run": {"result_file": str(folder)}, "input_pipeline": {"threads": threads}},
                "variables": {"RESULT_FILE": str(folder), "DALI_THREADS": str(threads)},
                "precision_reason": f"a step takes {number} ms",
                "packages": {"numpy": f"1.{threads}", "pytest": f"8.{threads}", "rich": "\ud800"},
            }  # half a character is a text of JSON too
            (folder / f"result_{number}.json").write_text(json.dumps(facts))
    [found] = compare.compare(score.score([first, second]))
    assert (found.first, found.second) == ("one", "two")
    assert [(d.quantity, d.shown) for d in found.differences] == [
        ("epochs", False), ("minutes", True), ("images_per_second", True)]
    assert found.settings[:-1] == (
        ("platform", "one", "two"), ("DALI_THREADS", "1", "2"), ("packages / numpy", "1.1", "1.2"))
    name, one, other = found.settings[-1]
    assert (name, one[:2], other[:2]) == (compare.OTHER_PACKAGES, "2 ", "2 ") and one != other
    assert found.cautions == ()
    stream = io.StringIO()
    compare.print_table([found], Terminal(file=stream))
    assert "two is faster" in stream.getvalue() and "DALI_THREADS: 1 -> 2" in stream.getvalue()
    assert as_json(found)["differences"][1]["shown"] is True


def test_results_of_one_system_are_named_by_their_folders(tmp_path):
    first, second = write_result(tmp_path / "first"), write_result(tmp_path / "second")
    [found] = compare.compare(score.score([first, second]))
    assert found.first.endswith(str(first)) and found.second.endswith(str(second))


def test_a_result_and_its_own_copy_are_the_same_logs(tmp_path):
    """Whatever the names of the files, and beside a third result whose tests stay its own."""
    first, other = (
        write_result(tmp_path / "first"), write_result(tmp_path / "other", (1000, 1001, 1002, 1003, 1004)))
    for number in range(5):
        copy = tmp_path / "copy" / f"result_{9 - number}.txt"
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes((first / f"result_{number}.txt").read_bytes())
    systems = score.score([first, tmp_path / "copy", other])
    same, different = compare.compare(systems)
    assert same.same_logs and not different.same_logs and same.tests == different.tests == 3
    assert [(d.sentence, d.shown) for d in same.differences] == [("the same logs", False)] * 3
    stream = io.StringIO()
    compare.print_table(compare.compare(systems[:2]), Terminal(file=stream))
    one, two = f"8xBox in {first}", f"8xBox in {tmp_path}/copy"
    assert stream.getvalue() == f"the same logs: {one} and {two} are one result\n"
    assert as_json(same)["same_logs"] is True


def test_logs_that_are_in_both_are_no_independent_runs(tmp_path):
    first, second = write_result(tmp_path / "first"), write_result(tmp_path / "second")
    scored.write_run(second / "result_0.txt", 15_000)
    [found] = compare.compare(score.score([first, second]))
    assert not found.same_logs and found.cautions == (
        "4 of the logs are in both, so the runs are not independent",)


def test_what_is_not_comparable_is_said(tmp_path):
    first = write_result(tmp_path / "first")
    scored.write_run(first / "result_1.txt", 9_000, accuracy=0.7, status="aborted")
    second = write_result(
        tmp_path / "second", speeds=(1000, 1001, 1002, 1003, 1004), train_samples=10_000,
        platform=f"8xBox ({rules.NOT_A_RESULT})")
    [found] = compare.compare(score.score([first, second]))
    assert not any(d.shown for d in found.differences)
    assert {d.sentence for d in found.differences} == {"not comparable: other data"}
    assert re.findall(r"│ +(\S+) │$", shown([found]), re.MULTILINE) == ["-"] * 3  # no p-values
    said = " ".join(found.cautions)
    assert "different data" in said and "not an MLPerf result" in said and "1 of 5 runs of" in said
    log = shutil.copytree(second, tmp_path / "cut") / "result_1.txt"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:9]))  # without the number of its images
    [found] = compare.compare(score.score([second, log.parent]))
    assert NOT_VALID in found.reason and "different data" not in " ".join(found.cautions)


def test_one_result_is_not_two(tmp_path):
    with pytest.raises(UserError, match="one result only"):
        compare.compare(score.score([write_result(tmp_path / "first")] * 2))


@needs_published
def test_published_results_of_one_vendor():
    systems = {system.system: system for system in score.score([LOGS / "v1.0" / "Inspur"])}
    [found] = compare.compare([systems["nf5688m6_mxnet"], systems["nf5488a5_mxnet"]])
    epochs, minutes, _ = found.differences
    assert not epochs.shown and minutes.shown and minutes.runs == (5, 4)
    assert 0.09 < minutes.low < minutes.difference < minutes.high < 0.12
    assert "1 of 5 runs of nf5488a5_mxnet did not converge" in " ".join(found.cautions)


def shown(comparisons):
    stream = io.StringIO()
    compare.print_table(comparisons, Terminal(file=stream))
    return stream.getvalue()


def test_different_targets_are_said_before_the_figures(tmp_path):
    scored.write_runs(tmp_path / "one", 100, 101, 102, 103, 104)
    for number in range(5):
        scored.write_run(tmp_path / "two" / f"result_{number}.txt", 30 + number, accuracy=0.1, target="none")
    found = compare.compare(score.score([tmp_path / "one", tmp_path / "two"]))
    said = shown(found)
    assert found[0].split is None and "by the time of an epoch" not in said
    assert "caution: their targets differ (0.759 and none), so" in said.splitlines()[0]
    assert not any(
        "targets" in each
        for each in compare.compare(score.score([tmp_path / "two"] + [tmp_path / "one"]))[0].settings)


def test_where_no_run_reached_the_target_accuracy_is_compared(tmp_path):
    scored.write_runs(tmp_path / "one", 100, 101, 102)
    scored.write_runs(tmp_path / "two", 100, 101, accuracy=0.7, status="aborted")
    [found] = compare.compare(score.score([tmp_path / "one", tmp_path / "two"]))
    assert [d.quantity for d in found.differences] == ["accuracy", "images_per_second"]
    assert (found.differences[0].first, found.differences[0].second) == (0.76, 0.7)
    assert "top-1 at the end" in shown([found]) and found.split is None
    assert found.cautions[0].endswith("two did not converge; no minutes to compare")


def test_a_published_result_is_compared_by_its_name(tmp_path):
    scored.write_runs(tmp_path / "mine", 1000, 1001, 1002, 1003, 1004, platform="mine")
    name = "v3.0/NVIDIA/dgxh100_ngc23.04_mxnet"
    [found] = compare.compare(compare.compared_results([tmp_path / "mine", pathlib.Path(name.upper())]))
    assert (found.first, found.second) == ("mine", name)
    assert [(d.quantity, d.runs) for d in found.differences] == [("epochs", (5, 4)), ("minutes", (5, 4))]
    assert ("base learning rate", "10.5", "11") in found.settings
    assert all(value != "-" for _, *values in found.settings for value in values)
    assert found.cautions == (
        f"1 of 5 runs of {name} did not converge; epochs and minutes are of those that did",)
    row = published.find(name, "")
    scored.write_runs(tmp_path / "own", *(60 * minutes for minutes in row.minutes), platform="own")
    [own] = compare.compare(compare.compared_results([tmp_path / "own", pathlib.Path(name)]))
    assert own.same_logs and own.differences[1].sentence == "the same logs" and own.split is None
    [turned] = compare.compare(compare.compared_results([pathlib.Path(name), tmp_path / "mine"]))
    assert (turned.first, turned.second) == (name, "mine")
    with pytest.raises(UserError, match="a published result, did you mean v3.0/NVIDIA/dgxh100_ngc23.04"):
        compare.compared_results([tmp_path / "mine", pathlib.Path("v3.0/NVIDIA/dgxh100")])


def test_table_and_split_have_one_pair_of_means(tmp_path):
    scored.write_runs(tmp_path / "one", 100, 101, 102, 103, 150)
    scored.write_runs(tmp_path / "two", 80, 81, 82, 83, 84)
    [found] = compare.compare(score.score([tmp_path / "one", tmp_path / "two"]))
    minutes = found.differences[1]
    assert (found.split.first, found.split.second) == pytest.approx((minutes.first, minutes.second))


def test_what_more_than_doubles_is_a_factor(tmp_path):
    scored.write_runs(tmp_path / "one", 100, 101, 102, 103, 104)
    scored.write_runs(tmp_path / "two", 1300, 1310, 1320, 1330, 1340, epochs=70)
    said = shown(compare.compare(score.score([tmp_path / "one", tmp_path / "two"])))
    assert "13 times: 2.00 times by epochs (35 to 70), 6.47 times by the time of an epoch" in said
    assert "(13 times)" in said and "(2.00 times)" in said and "100.0%" not in said


def test_a_setting_is_said_once(tmp_path):
    for name, rate in (("one", "10.5"), ("two", "9.0")):
        variables = {"LR": rate, "SUBMISSION_PLATFORM": name, "NUMEPOCHS": "37"}
        for number in range(5):
            file = tmp_path / name / f"result_{number}.txt"
            scored.write_run(file, 100 + number, platform=name, base_learning_rate=float(rate))
            file.with_suffix(".json").write_text(json.dumps({"seed": number, "variables": variables}))
    [found] = compare.compare(score.score([tmp_path / "one", tmp_path / "two"]))
    assert found.settings == (("LR", "10.5", "9.0"), ("SUBMISSION_PLATFORM", "one", "two"))


def test_no_sentence_contradicts_its_interval(tmp_path):
    """Four runs against four cannot pass beside tests that show nothing, and those that could may not."""
    scored.write_runs(tmp_path / "one", 1000, 1001, 1002, 1003)
    scored.write_runs(tmp_path / "like", 990, 995, 1005, 1010)
    scored.write_runs(tmp_path / "two", 100, 101, 102, 103)
    _, found = compare.compare(score.score([tmp_path / name for name in ("one", "like", "two")]))
    minutes = found.differences[1]
    assert minutes.p == pytest.approx(2 / 70) and minutes.p_adjusted > 0.05 and minutes.high < 0
    said = (
        "4 runs against 4 cannot show a difference among so many tests, whatever it is; here it is 15 (89.9%)"
    )
    assert minutes.sentence == said
    found = compare.difference("minutes", [10, 10.2, 10.4, 12], [9, 9.1, 9.2, 9.3, 9.4], "B", 0.03, 0.975)
    assert found.high > 0 and not found.shown and "p = 0.030, which is not enough while the" in found.sentence
    one, two = [1, 2, 3, 4, 5], [4.5, 5.5, 6.5, 7.5, 4.4]
    found = compare.difference("minutes", one, two, "B", p_adjusted=0.06, lowest=0.02)
    assert found.low > 0 and found.sentence.endswith(
        "do not show a difference: it is 2.68 (89.3%); p = 0.060")


def test_cut_epochs_are_a_caution(tmp_path):
    scored.write_runs(tmp_path / "whole", 100, 101, 102, 103, 104, platform="whole")
    scored.write_runs(tmp_path / "cut", 80, 81, 82, 83, 84, platform="cut", epoch_samples=6400)
    [found] = compare.compare(score.score([tmp_path / "whole", tmp_path / "cut"]))
    assert found.cautions == (f"cut: {rules.CUT}",)


@pytest.mark.parametrize("device, said", [("gpu", ("8", "4")), ("cpu", ("8", "0"))])
def test_accelerators_beside_a_published_result(tmp_path, device, said):
    scored.write_runs(tmp_path / "mine", 1000, 1001, 1002, 1003, 1004)
    run = {"ranks_per_node": 4, "nodes": 1, "device": device}
    saved = {"config": {"run": run}, "system": {"accelerator_model_name": "NVIDIA A30"}}
    (tmp_path / "mine" / "result_0.json").write_text(json.dumps(saved))
    name = pathlib.Path("v3.0/NVIDIA/dgxh100_ngc23.04_mxnet")
    [found] = compare.compare(compare.compared_results([name, tmp_path / "mine"]))
    by_name = {name: values for name, *values in found.settings}
    assert by_name["accelerators"] == list(said)
    assert ("accelerator model" in by_name) == (device == "gpu")


@pytest.mark.parametrize("runs", [2, 5, 8])  # of 8 and 8 runs there are more divisions than are tried
def test_the_lowest_p_is_that_of_results_that_do_not_overlap(runs):
    separate = significance.permutation_p(range(runs), range(100, 100 + runs))
    assert separate == pytest.approx(significance.lowest_p(runs, runs))

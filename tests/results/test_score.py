"""The score is the trimmed mean: which runs it drops, and when there is none."""

import csv
import io
import json

import pytest

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.printed import as_json
from rn50.results import run, score, scoreboard
from tests.results.scored import kept, printed, write_run, write_runs

DEMO = f"8xBox ({rules.NOT_A_RESULT})"


def test_the_fastest_and_the_slowest_are_dropped(tmp_path):
    write_runs(tmp_path, 120, 60, 600, 180, 240)
    [system] = score.score([tmp_path])
    assert (system.system, system.valid, system.reasons, system.label) == ("8xBox", True, (), None)
    assert system.olympic_minutes == pytest.approx((2 + 3 + 4) / 3, rel=1e-12)
    assert kept(system) == ["result_0.txt", "result_3.txt", "result_4.txt"]


@pytest.mark.parametrize(
    "failure, contradiction",
    [({"accuracy": 0.7589}, "the status is success, but no evaluation reaches 0.759"),
     ({"status": "aborted"}, "the status is aborted, but epoch 35 reached 0.759"),
     ({"status": None}, None), ({"accuracy": 0.7589, "status": "aborted"}, None)])
def test_a_run_that_did_not_converge_is_the_slowest(tmp_path, failure, contradiction):
    write_runs(tmp_path, 120, 60, 600, 180, 240)
    write_run(tmp_path / "result_1.txt", 60, **failure)
    [system] = score.score([tmp_path])
    assert system.reasons == ((f"result_1.txt, line 51: {contradiction}",) if contradiction else ())
    assert system.olympic_minutes == pytest.approx((3 + 4 + 10) / 3, rel=1e-12)
    assert kept(system) == ["result_2.txt", "result_3.txt", "result_4.txt"]
    outcome = "is unfinished" if failure == {"status": None} else "did not converge"
    assert f"result_1.txt {outcome}" in printed([system])


def test_two_runs_that_did_not_converge_make_the_set_invalid(tmp_path):
    write_runs(tmp_path, 120, 60, 600, 180, 240)
    write_run(tmp_path / "result_1.txt", 60, accuracy=0.7, status="aborted")
    write_run(tmp_path / "result_3.txt", 180, accuracy=0.7, status="aborted")
    [system] = score.score([tmp_path])
    assert (system.valid, system.olympic_minutes, kept(system)) == (False, None, [])
    assert system.reasons == ("2 runs did not converge (result_1.txt, result_3.txt), and only one may",)
    assert "8xBox: no score: 2 runs did not converge (result_1.txt, result_3.txt)" in printed([system])


def test_results_of_several_organisations_are_named_with_theirs(tmp_path):
    """Of a round, organisations may use one name for their systems."""
    for organisation in ("One", "Other"):
        write_runs(tmp_path / "v1.1" / organisation / "results" / "box" / "resnet", 120, 60, 600, 180, 240)
    text = printed(score.score([tmp_path]))
    for organisation in ("One", "Other"):
        assert text.count(f"v1.1/{organisation}/box\n") == 1
        assert f"v1.1/{organisation}/box: 3.00 minutes" in text
    assert "v1.1" not in printed(score.score([tmp_path / "v1.1" / "One"]))


@pytest.mark.parametrize("count, reason", [(1, "1 run of 5"), (4, "4 runs of 5")])
def test_fewer_runs_are_shown_without_a_score(tmp_path, count, reason):
    write_runs(tmp_path, *range(60, 60 + count))
    [system] = score.score([tmp_path])
    assert (system.valid, system.olympic_minutes, system.reasons) == (False, None, (reason,))
    assert len(system.runs) == count and kept(system) == []


def write_in_a_row(folder, *seconds, **options):
    """Runs one after the other, named in the other order: the clock tells which are consecutive, not the
    names."""
    for number, each in enumerate(seconds):
        failed = {"accuracy": 0.7, "status": "aborted"} if each < 0 else {}
        write_run(
            folder / f"result_{len(seconds) - number}.txt", abs(each), start=10_000 * number, **failed,
            **options)


def test_of_more_runs_the_median_set_of_five_consecutive_ones_counts(tmp_path):
    # The means of the three sets: 3, 4 and 6 1/3 minutes.
    write_in_a_row(tmp_path, 60, 180, 240, 120, 300, 600, 1200)
    [system] = score.score([tmp_path])
    assert system.valid and system.olympic_minutes == pytest.approx((180 + 240 + 300) / 180, rel=1e-12)
    assert [run.file.name for run in system.runs if not run.in_set] == ["result_1.txt", "result_7.txt"]
    text = printed([system])
    assert "the median set of five consecutive ones of 7" in text and text.count("unused") == 2


def test_of_two_sets_the_slower_counts(tmp_path):
    write_in_a_row(tmp_path, 60, 120, 180, 240, 300, 360)
    [system] = score.score([tmp_path])
    assert system.olympic_minutes == pytest.approx((180 + 240 + 300) / 180, rel=1e-12)


def test_sets_of_which_most_did_not_converge_give_no_score(tmp_path):
    write_in_a_row(tmp_path, 60, 60, -60, 60, -60, 60)
    [system] = score.score([tmp_path])
    assert (system.valid, system.olympic_minutes) == (False, None)
    assert "2 runs did not converge" in system.reasons[0]


@pytest.mark.parametrize(
    "epochs, passed, factor, says",
    [(35, True, 1.0043956, "passed; faster than the reference, so minutes x 1.0043956 = 1.71 minutes"),
     (39, True, 1.0, "passed; not scaled"),
     (31, False, 1.1339950, "FAILED: no score that can be published")])
def test_reference_convergence_is_shown_apart(tmp_path, epochs, passed, factor, says):
    write_runs(tmp_path, 100, 101, 102, 103, 104, global_batch_size=3264, epochs=epochs)
    [system] = score.score([tmp_path])
    assert system.olympic_minutes == pytest.approx(1.7, rel=1e-12)
    assert (system.convergence.ruleset, system.convergence.passed) == ("4.0.0", passed)
    assert system.convergence.factor == pytest.approx(factor, abs=1e-7)
    assert (system.scaled_minutes is None) != passed
    assert says in printed([system])


def test_convergence_of_another_data_set_is_not_compared(tmp_path):
    write_runs(tmp_path, 100, 101, 102, 103, 104, platform=DEMO)
    assert score.score([tmp_path])[0].convergence is None


def test_csv_has_a_row_a_run(tmp_path):
    write_runs(tmp_path, 100, 101, 102, 103, 104, global_batch_size=3264)
    rows = list(csv.DictReader(io.StringIO(scoreboard.to_csv(score.score([tmp_path])))))
    assert [row["minutes"] for row in rows] == ["1.6667", "1.6833", "1.7", "1.7167", "1.7333"]
    assert [row["kept"] for row in rows] == ["False", "True", "True", "True", "False"]
    assert {(row["system"], row["olympic_minutes"], row["scaled_minutes"]) for row in rows} == {
        ("8xBox", "1.7", "1.7075")}


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)"])
def test_csv_holds_no_formula(tmp_path, name):
    write_runs(tmp_path, 100, 101, 102, 103, 104, platform=name)
    rows = list(csv.DictReader(io.StringIO(scoreboard.to_csv(score.score([tmp_path])))))
    assert {row["system"] for row in rows} == {f"'{name}"}


def test_images_per_second_on_each_accelerator(tmp_path):
    write_runs(tmp_path / "Org" / "results" / "box" / "resnet", 100, 101, 102, 103, 104)
    description = tmp_path / "Org" / "systems" / "box.json"
    description.parent.mkdir()
    for text, accelerators in (
        ('{"number_of_nodes": "2", "accelerators_per_node": "8"}', 16), ("{}", None), ("{half", None),
    ):
        description.write_text(text)
        [system] = score.score([tmp_path])
        assert system.accelerators == accelerators
    assert system.images_per_second == pytest.approx(35 * rules.TRAIN_SAMPLES / 102, rel=1e-12)
    description.write_text('{"number_of_nodes": "2", "accelerators_per_node": "8"}')
    [system] = score.score([tmp_path])
    assert system.images_per_second_per_accelerator == pytest.approx(
        35 * rules.TRAIN_SAMPLES / 102 / 16, rel=1e-12)


def test_many_files_are_counted_as_they_are_read(tmp_path):
    write_runs(tmp_path, *range(60, 60 + run.MANY_FILES))
    seen = []
    score.score([tmp_path], progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, run.MANY_FILES) for done in range(1, run.MANY_FILES + 1)]
    score.score([tmp_path / "result_0.txt"], progress=lambda done, total: seen.append("few"))
    assert "few" not in seen


def test_a_run_in_progress_is_shown_as_such(tmp_path):
    write_run(tmp_path / "result_0.txt.partial", 60, accuracy=0.4, status=None)
    [system] = score.score([tmp_path / "result_0.txt.partial"])
    [run] = system.runs
    assert (run.log.status, run.epochs, run.accuracy, run.minutes, run.converged) == (
        "unfinished", 35, 0.4, None, False)


def test_json_is_what_the_documentation_says(tmp_path):
    write_runs(tmp_path, 100, 101, 102, 103, 104)
    [system] = json.loads(json.dumps(as_json(score.score([tmp_path]))))
    runs = system.pop("runs")
    assert system == {
        "system": "8xBox", "valid": True, "olympic_minutes": 1.7, "reasons": [], "mean_minutes": None,
        "label": None, "unverified": None, "division": "closed",
        "convergence": {
            "ruleset": "4.0.0", "passed": True, "message": "RCP found", "factor": 1.0043956043956044,
            "scaled_minutes": 1.7075},
        "spread": 0.039216, "accelerators": None,
        "images_per_second": round(35 * rules.TRAIN_SAMPLES / 102, 1),
        "images_per_second_per_accelerator": None, "accuracy": None, "energy": None}
    assert runs[1] == {
        "file": str(tmp_path / "result_1.txt"), "seed": 101, "epochs": 35, "accuracy": 0.76,
        "status": "success", "minutes": 1.6833, "kept": True, "in_set": True, "findings": [], "energy": None}
    assert [run["kept"] for run in runs] == [False, True, True, True, False]


def test_the_label_follows_that_of_the_log(tmp_path):
    write_runs(tmp_path, 100, 101, 102, 103, 104, train_samples=10_000, platform=DEMO)
    [demo] = score.score([tmp_path])
    assert demo.valid and demo.label == rules.NOT_A_RESULT
    assert f"1.70 minutes, mean of the middle 3 of 5 runs [{rules.NOT_A_RESULT}]" in printed([demo])
    (tmp_path / "result_4.txt").unlink()
    assert f"no score: 4 runs of 5 [{rules.NOT_A_RESULT}]" in printed(score.score([tmp_path]))


def test_the_mean_of_fewer_runs(tmp_path):
    write_runs(tmp_path, 60, 90)
    (system,) = score.score([tmp_path])
    assert system.mean_minutes == 1.25 and system.olympic_minutes is None
    assert "1.25 minutes is the mean so far" in printed([system])
    write_run(tmp_path / "result_2.txt", 120, accuracy=0.7, status="aborted")
    (system,) = score.score([tmp_path])
    assert system.mean_minutes is None and "so far" not in printed([system])


def test_one_run_on_other_data_labels_the_whole_score(tmp_path):
    write_runs(tmp_path, 100, 101, 102, 103, 104)
    write_run(tmp_path / "result_4.txt", 104, platform=DEMO)
    [system] = score.score([tmp_path])
    assert (
        system.label == rules.NOT_A_RESULT and not system.valid
        and "the run is labelled, but not" in system.reasons[0])


def test_runs_of_two_configurations_are_no_result(tmp_path):
    write_runs(tmp_path, 100, 101, 102, 103, 104)
    assert score.score([tmp_path])[0].valid
    write_run(tmp_path / "result_4.txt", 104, base_learning_rate=11)
    [system] = score.score([tmp_path])
    assert not system.valid and system.olympic_minutes == pytest.approx(1.7, rel=1e-12)
    [reason] = system.reasons
    assert "is 10.5 in result_0.txt, result_1.txt, result_2.txt, result_3.txt, 11 in result_4.txt" in reason
    assert "8xBox: 1.70 minutes, NOT A VALID RESULT: " in printed([system])


def test_systems_are_told_apart_by_folder_and_named(tmp_path):
    write_runs(tmp_path / "tree" / "Org" / "results" / "box_mxnet" / "resnet", 60, 61, 62, 63, 64)
    write_runs(tmp_path / "ours", 120, 121, 122, 123, 124, platform="8xOther")
    write_runs(tmp_path / "nameless", 240, platform=None)
    scores = score.score([tmp_path / "tree", tmp_path / "ours", tmp_path / "nameless" / "result_0.txt"])
    assert [system.system for system in scores] == ["box_mxnet", "8xOther", "nameless"]
    assert [system.valid for system in scores] == [True, True, False]


def test_the_same_file_counts_once(tmp_path):
    write_runs(tmp_path, 60, 61, 62, 63)
    [system] = score.score([tmp_path, tmp_path / "result_0.txt"])
    assert system.reasons == ("4 runs of 5",)


def test_what_is_wrong_with_a_log_is_printed_under_the_table(tmp_path):
    write_runs(tmp_path, 60, 61, 62, 63, 64)
    with (tmp_path / "result_2.txt").open("a") as file:
        file.write(":::MLLOG {half a rec\n" * 5)
    text = printed(score.score([tmp_path]))
    assert "result_2.txt: line 52: not an MLPerf record" in text
    assert "result_2.txt: 2 more findings" in text


def test_another_benchmark_is_refused(tmp_path):
    write_run(tmp_path / "bert.log", 60, benchmark="bert")
    with pytest.raises(UserError, match="bert.log: a log of bert"):
        score.score([tmp_path / "bert.log"])

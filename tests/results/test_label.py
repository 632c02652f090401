"""Runs of another task than the benchmark's are labelled, by their log and by what they saved."""

import json
import shutil

import pytest

from rn50.benchmark import rules
from rn50.printed import as_json
from rn50.results import run, score
from rn50.results.validity import result_rules
from rn50.results.validity.findings import ERROR, WARNING
from rn50.submission import check, own_results
from tests.results.mutations import ALL, rewrite, value
from tests.results.scored import printed, write_runs
from tests.support import imagenet_run
from tests.support.campaigns import change, replace

pytestmark = pytest.mark.xdist_group("campaign")


@pytest.mark.parametrize(
    "changes",
    [{"WIDTH": "0.5"}, {"IMAGE_SIZE": "128", "EVAL_RESIZE": "146"}, {"BENCHMARK_STEPS": "10"},
     {"NUMVALEXAMPLES": "2000"}, {"NUMCLASSES": "10"}, {"CROP_AREA_MIN": "0.25"}, {"NUMEXAMPLES": "10000"},
    ])
def test_a_run_of_another_task_is_labelled_by_its_log_and_by_what_it_saved(
    tmp_path, checkout, machine, changes
):
    log = imagenet_run.write(tmp_path / "result_0.txt", **changes)
    label = "; ".join([rules.NOT_A_RESULT, *([rules.CUT] if "BENCHMARK_STEPS" in changes else [])])
    assert run.read_run(log).label == label
    saved = imagenet_run.configured(**changes).to_dict()
    plain = imagenet_run.write(tmp_path / "result_1.txt")
    assert run.read_run(plain).label is None
    plain.with_suffix(".json").write_text(json.dumps({"config": saved}))
    assert run.read_run(plain).label == label
    assert not imagenet_run.configured(**changes).is_imagenet


def test_a_result_of_another_task_is_labelled_by_all(results, judged):
    for name in ALL:
        replace(results / name.replace(".txt", ".json"), '"width": 1.0', '"width": 0.5')
        replace(results / name.replace(".txt", ".json"), '"WIDTH": "1.0"', '"WIDTH": "0.5"')
    rewrite(results, value("submission_platform", f"box ({rules.NOT_A_RESULT})"), ALL)
    assert judged(results) == ([], [], [])
    assert score.score([results])[0].label == check.check([results]).labels[0] == rules.NOT_A_RESULT
    assert own_results.read([results])[0].score.label == rules.NOT_A_RESULT


def test_a_resumed_run_is_labelled_by_its_log_beside_another_task(results):
    rewrite(results, value("submission_platform", f"box ({rules.RESUMED})"), ALL)
    (resumed,) = score.score([results])
    assert (resumed.label, resumed.name, resumed.unverified) == (rules.RESUMED, "box", None)
    assert f"[{rules.RESUMED}]" in printed([resumed])
    for name in ALL:
        replace(results / name.replace(".txt", ".json"), '"width": 1.0', '"width": 0.5')
    both = score.score([results])[0]
    assert both.label == f"{rules.NOT_A_RESULT}; {rules.RESUMED}"
    assert "the run is labelled, but not" not in "".join(both.reasons)
    assert f"says {both.label}, and the log does not" in "".join(both.reasons)


def test_our_result_on_imagenet_is_unverified_until_a_round_has_published_it(results, tmp_path):
    [system] = score.score([results])
    text = printed([system])
    assert system.unverified == rules.NOT_VERIFIED == "Result not verified by MLCommons Association."
    assert (
        f"{system.olympic_minutes:.2f} minutes (unverified), " in text and text.count(rules.NOT_VERIFIED) == 1
    )
    assert as_json(system)["unverified"] == rules.NOT_VERIFIED
    for file in results.glob("*.json"):
        file.unlink()
    assert score.score([results])[0].unverified  # the log itself says who wrote it
    for tree, unverified in (("ours/Org", True), ("training_results_v2.1/Org", False)):
        folder = tmp_path / tree / "results" / "box" / "resnet"
        shutil.copytree(results, folder)
        assert bool(score.score([folder])[0].unverified) == unverified


def test_what_is_no_result_of_ours_on_imagenet_is_not_called_unverified(results, tmp_path):
    write_runs(tmp_path / "theirs", 100, 101, 102, 103, 104)
    rewrite(results, value("submission_platform", f"box ({rules.NOT_A_RESULT})"), ALL)
    for folder in (tmp_path / "theirs", results):
        [system] = score.score([folder])
        assert system.unverified is None and "verified" not in printed([system])


def test_a_certificate_of_other_data_labels(results):
    log = results / "result_0.txt"
    change(log, **{"data certificate": {"imagenet": True}})
    assert run.read_run(log).label is None
    change(log, **{"data certificate": {"imagenet": False}})
    assert run.read_run(log).label == rules.NOT_A_RESULT


@pytest.mark.parametrize("samples, severity", [(1_277_952, WARNING), (1_281_168, WARNING), (160_000, ERROR)])
def test_another_count_of_samples_is_a_finding_and_no_label(results, samples, severity):
    rewrite(results, value("train_samples", samples), ALL)
    rewrite(results, value("global_batch_size", 4096), ALL)
    for name in ALL:
        (results / name).with_suffix(".json").unlink()
    judgement = result_rules.judge([run.read_run(results / name) for name in ALL], ["1.0.0"])
    assert judgement.label is None
    assert {(each.severity, each.message) for each in judgement.findings if "samples" in each.message} == {
        (severity, f"train_samples is {samples:,}, not 1,281,167")}


def test_cut_epochs_are_labelled_by_the_samples_alone(tmp_path):
    write_runs(tmp_path / "cut", 60, 61, 62, 63, 64, epoch_samples=6400)
    [system] = score.score([tmp_path / "cut"])
    assert system.label == rules.CUT and f"[{rules.CUT}]" in printed([system])


@pytest.mark.parametrize(
    "logged, folder, named",
    [("SUBMISSION_ORG_PLACEHOLDER", "v3.1/Quanta/results/box/resnet", "Quanta"),
     ("Somebody", "v3.1/Quanta/results/box/resnet", "Somebody"),
     ("SUBMISSION_ORG_PLACEHOLDER", "box", "SUBMISSION_ORG_PLACEHOLDER")])
def test_a_placeholder_is_no_organisation(tmp_path, logged, folder, named):
    write_runs(tmp_path / folder, 100)
    log = tmp_path / folder / "result_0.txt"
    log.write_text(value("submission_org", logged)(log.read_text()))
    assert run.read_run(log).organisation == named

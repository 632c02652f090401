"""Logs of published systems score what was published."""

import csv
import shutil

import pytest

from rn50.printed import as_json
from rn50.results import score
from tests.results.scored import kept, printed
from tests.support.published import FOLDER, LOGS, needs_published


def published_systems():
    with (FOLDER / "resnet_results.csv").open(newline="", encoding="utf-8") as table:
        for row in csv.DictReader(table):
            folder = LOGS / row["version"] / row["org"] / "results" / row["system"]
            if folder.is_dir():
                yield pytest.param(folder, row, id=row["system"])


@needs_published
@pytest.mark.parametrize("folder, row", list(published_systems()) if FOLDER.is_dir() else [])
def test_published_systems_score_what_was_published(folder, row):
    [system] = score.score([folder])
    assert system.system == row["system"]
    assert (system.valid, system.label) == (True, None)
    # One system has no published score: its logs fail the compliance check. The mean of its runs is worked
    # out here by hand.
    expected = float(row["olympic_minutes"] or (28.6040 + 28.6148 + 28.6201) / 3)
    assert system.olympic_minutes == pytest.approx(expected, abs=0.0005)
    assert [str(run.epochs) for run in system.runs] == row["epochs"].split()
    assert [run.log.status for run in system.runs] == row["run_status"].replace("None", "unfinished").split()
    assert (system.convergence.message, system.convergence.passed) == (
        row["rcp_checker"].split(",")[0], row["rcp_checker"].endswith("PASSED"))
    assert system.convergence.ruleset == f"{row['version'][1:]}.0"
    if row["version"] < "v2.1":  # scores were not scaled before
        assert system.scaled_minutes is None
    elif row["summarizer_after_package_checker"] and system.convergence.passed:
        assert system.scaled_minutes == pytest.approx(
            float(row["summarizer_after_package_checker"]), abs=0.0005)
    per_accelerator = system.images_per_second_per_accelerator
    assert (
        per_accelerator == pytest.approx(float(row["img_s_per_acc_effective"]), abs=1) if per_accelerator
        else (row["img_s_per_acc_effective"] == ""))


@needs_published
def test_a_whole_published_tree_gives_every_system():
    assert len(score.score([LOGS])) == 8
    assert [system.system for system in score.score([LOGS / "v1.0" / "Inspur"])] == [
        "nf5488a5_mxnet", "nf5688m6_mxnet"]


@needs_published
def test_systems_of_a_round_are_printed_with_their_organisation():
    """With one organisation, its name would only repeat."""
    text = printed(score.score([LOGS]))
    assert "v1.0/Inspur/nf5688m6_mxnet: 27.38 minutes" in text and "\nnf5688m6_mxnet" not in text
    text = printed(score.score([LOGS / "v1.0" / "Inspur"]))
    assert "\nnf5688m6_mxnet: 27.38 minutes" in text and "v1.0/Inspur" not in text


@needs_published
def test_nf5688m6():
    [system] = as_json(score.score([LOGS / "v1.0" / "Inspur" / "results" / "nf5688m6_mxnet"]))
    assert system["olympic_minutes"] == 27.3779
    assert [run["epochs"] for run in system["runs"]] == [35] * 5
    assert [run["kept"] for run in system["runs"]] == [False, True, False, True, True]


@needs_published
def test_nf5488a5_and_a_second_run_that_did_not_converge(tmp_path):
    folder = LOGS / "v1.0" / "Inspur" / "results" / "nf5488a5_mxnet" / "resnet"
    [system] = score.score([folder])
    assert [(run.log.status, run.kept) for run in system.runs if not run.converged] == [("aborted", False)]
    assert kept(system) == ["result_1.txt", "result_3.txt", "result_5.txt"]

    for file in folder.iterdir():
        shutil.copyfile(file, tmp_path / file.name)
    second = tmp_path / "result_2.txt"
    second.write_text(second.read_text().replace('"value": 0.75986', '"value": 0.75886'))
    [system] = score.score([tmp_path])
    assert (system.valid, system.olympic_minutes) == (False, None)
    assert system.reasons[0] == "2 runs did not converge (result_2.txt, result_4.txt), and only one may"

"""Other load on the machine: images/s that move within a run, and more minutes than the configuration
expects, say so in the score, the report and the end of a campaign; nothing else does."""

import json
import pathlib
import shutil
import types

import pytest

from rn50.launch.campaign import summary
from rn50.results import other_load, score
from rn50.results.report import report
from rn50.results.run import Run
from rn50.settings import header
from tests.results.scored import printed
from tests.support.four_epochs import write_run
from tests.support.published import LOGS, needs_published

EVIDENCE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "evidence" / "h200"
MEASURED = (
    "epoch 4 (35 of 37 seeds, else 7); 0.4 to 0.5 minutes on two cores of an EPYC, 0.6 to 0.7 on "
    "an older one. At 1,739 and 464 images/s")


def run_of(folder, *seconds, ours=True):
    """A run of four epochs of these lengths; evaluated after the second and the last."""
    file = write_run(folder / "result_0.txt", [1000 * each for each in seconds])
    if ours:
        file.with_suffix(".json").write_text(json.dumps({"config": {}}))
    [system] = score.score([folder])
    return system


@pytest.mark.parametrize(
    "seconds, moved",
    [
        ((10, 10, 10, 10), None),
        ((40, 10, 10, 10), None),  # the first epoch warms up
        ((5, 10, 10, 10), None),
        ((10, 10, 14, 10), None),
        ((10, 10, 16, 10), "80,073 and 128,117"),
        ((10, 20, 12, 20), "64,058 and 106,764"),
    ],
)
def test_images_a_second_that_move_within_a_run(tmp_path, seconds, moved):
    system = run_of(tmp_path, *seconds)
    says = f"{other_load.PROBABLY}: images/s of result_0 moved between {moved}"
    assert other_load.caution(system.runs) == [says] * bool(moved)
    checked = types.SimpleNamespace(verdicts=(), findings=(), has_another_target=False)
    told = dict(summary.lines(system, checked, None, "X"))
    assert told.get("Caution") == (moved and says)
    assert ("other load" in printed([system])) == bool(moved)
    assert (f"<p>{says.capitalize()}.</p>" in report.render([system], ())) == bool(moved)


def test_of_others_logs_nothing_is_known(tmp_path):
    assert other_load.caution(run_of(tmp_path, 10, 10, 30, 10, ours=False).runs) == []


def test_a_run_without_epochs_says_nothing(tmp_path):
    file = tmp_path / "result_0.txt"
    file.write_text(':::MLLOG {"time_ms": 1, "key": "init_start", "value": null, "metadata": {}}\n')
    file.with_suffix(".json").write_text("{}")
    [system] = score.score([tmp_path])
    assert other_load.caution(system.runs) == []


@pytest.mark.parametrize(
    "seconds, expected, says",
    [
        (11, MEASURED, "result_0 took 0.76 minutes, and at most 0.7 are expected"),
        (10, MEASURED, None),
        (5, MEASURED, None),  # a faster machine
        (11, MEASURED.replace("epoch 4", "epoch 3"), None),  # it took more epochs
        (11, MEASURED.replace("to 0.7", "and more"), None),
        (11, MEASURED + ", an estimate", None),
        (11, "epoch 4; not measured with this code", None),
        (11, "", None),
    ],
)
def test_more_minutes_than_the_configuration_expects(tmp_path, monkeypatch, seconds, expected, says):
    monkeypatch.setattr(Run, "header", {"expected": expected})
    told = other_load.caution(run_of(tmp_path, *[seconds] * 4).runs)
    cause = f"{other_load.PROBABLY}, or a slower machine than those measured"
    assert told == [f"{cause}: {says}"] * bool(says)


@pytest.mark.parametrize(
    "entry, expected",
    [(MEASURED, (4, 0.7)),
     ("epoch 11 (5 of 6, else 15); 0.34 to 0.45 minutes on one H200 of 4c6d435. 9 epochs", (11, 0.45)),
     ("epoch 35; minutes not measured with this code: 28 to 30 with STEP_MODE=fused", None),
     ("epoch 7; 1.0 minutes on two cores of an EPYC, 2.8 and more on an older one", None),
     ("35.2 epochs (35 to 36); 286 minutes (238 to 344) at the rate of others' code", None),
     ("not known", None), ("epoch 4; a page has the minutes", None)])
def test_what_is_expected_is_read_from_the_header(entry, expected):
    assert header.expected({"expected": entry}) == expected


@pytest.mark.parametrize("folder", ["seeds_fused", "one_run_graph"])
def test_idle_machines_are_not_accused(tmp_path, folder):
    """Runs of ours on an H200, and published ones as if they were ours, have steady images/s."""
    [system] = score.score([EVIDENCE / folder])
    assert other_load.caution(system.runs) == []


@needs_published
def test_published_runs_would_not_be_accused_of_it(tmp_path):
    copies = pathlib.Path(shutil.copytree(str(LOGS), str(tmp_path / "logs")))
    for log in copies.rglob("result_*.txt"):
        log.with_suffix(".json").write_text("{}")
    for system in score.score([copies]):
        assert other_load.caution(system.runs) == []
